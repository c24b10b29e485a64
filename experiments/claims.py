"""The paper's claims held against the runs of a study: one table of verdicts.

    dpsparfl claims --results=experiments/results/full

reads the tables beside the figures, prints a verdict on every claim (`--markdown`: as a
Markdown table) and writes claims.json and claims.md into the same folder, beside
accuracies.md and differences.md (what the protocol has told, not judged, of every
trained series, and every comparison of accuracies by statistics that are not judged)
and times.md (how long it trained). It never trains. How claims are judged is fixed in
experiments/paper/PROTOCOL.md.
"""

import pathlib

from absl import flags

from . import cli
from .paper import accuracies, claims, differences, times

_RESULTS = flags.DEFINE_string(
    "results", "experiments/results/full", "folder with the tables of the figures"
)
_MARKDOWN = flags.DEFINE_bool("markdown", False, "print a Markdown table")


def main() -> None:
    """Prints the verdicts and leaves them in the folder."""
    folder = pathlib.Path(_RESULTS.value)
    verdicts = claims.evaluate(folder)
    shown = claims.as_markdown if _MARKDOWN.value else claims.as_text
    print(shown(verdicts), end="")
    claims.write(folder, verdicts)
    accuracies.write(folder)
    differences.write(folder)
    times.write(folder)


if __name__ == "__main__":
    cli.run(main)
