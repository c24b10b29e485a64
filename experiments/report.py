"""Recorded runs as one page with charts, PNG figures and tables.

    python -m experiments.report runs/grid --title="Policies on glyphs"

looks for runs in the folders and below, and writes report.html (which needs no
network), the main charts as PNG files, runs.csv and rounds.csv. It never trains.
"""

import pathlib
import sys

from absl import flags

from dpsparfl_jax import records
from dpsparfl_jax.errors import InputError

from . import cli

_OUT = flags.DEFINE_string("out", "", "folder of the report; empty is the first one")
_TITLE = flags.DEFINE_string("title", "Recorded runs", "title of the page")


def main(folders: list[str]) -> None:
    """Writes the report of all runs in these folders."""
    if not folders:
        raise InputError("name at least one folder with recorded runs.")
    from dpsparfl_jax.report import writing  # loads plotly

    runs = records.find_runs(folders, damaged=_say_left_out)
    target = pathlib.Path(_OUT.value or folders[0])
    page = writing.write_report(runs, target, _TITLE.value)
    print(f"report of {len(runs)} run(s): {page}")


def _say_left_out(problem: str) -> None:
    print(f"Left out: {problem}", file=sys.stderr)


if __name__ == "__main__":
    cli.run(main)
