"""Recorded runs as one page with charts, PNG figures and tables.

    python -m experiments.report runs/grid --title="Policies on glyphs"

looks for runs in the folders and below, and writes report.html (which needs no
network), the main charts as PNG files, runs.csv and rounds.csv. It never trains. Of
more than 24 runs the page has heat maps, and means and bands over seeds.
"""

import pathlib

from absl import flags

from dpsparfl_jax import records
from dpsparfl_jax.errors import InputError

from . import cli, damage

_OUT = flags.DEFINE_string("out", "", "folder of the report; empty is the first one")
_TITLE = flags.DEFINE_string("title", "Recorded runs", "title of the page")


def main(folders: list[str]) -> None:
    """Writes the report of all runs in these folders."""
    if not folders:
        raise InputError("name at least one folder with recorded runs.")
    from dpsparfl_jax.report import group_page, writing  # load plotly

    found, damaged = records.FoundRuns(folders), damage.Damaged()
    target = pathlib.Path(_OUT.value or folders[0])
    if len(found) <= records.index.FEW:
        whole = records.find_runs(folders, damaged)
        page, count = writing.write_report(whole, target, _TITLE.value), len(whole)
    else:
        runs = damage.read(found, damaged)
        page, count = group_page.write_report(runs, target, _TITLE.value), len(runs)
    damaged.end()
    print(f"report of {count} run(s): {page}")


if __name__ == "__main__":
    cli.run(main)
