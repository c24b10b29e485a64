"""Recorded runs as one page with charts, PNG figures and tables.

    dpsparfl report runs/grid --title="Policies on glyphs" [--paper]

looks for runs in the folders and below, and writes report.html (which needs no
network), the main charts as PNG files, runs.csv and rounds.csv. It never trains. Of
more than 24 runs the page has heat maps, and means and bands over seeds. With --paper
there is also a folder `paper` with pictures in the width of a column, as PDF and PNG.
"""

import pathlib

from absl import flags

from dpsparfl_jax import records
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.records import groups

from . import cli, damage

_OUT = flags.DEFINE_string("out", "", "folder of the report; empty is the first one")
_TITLE = flags.DEFINE_string("title", "Recorded runs", "title of the page")
_PAPER = flags.DEFINE_bool("paper", False, "draw pictures for a paper too")
_STYLE = flags.DEFINE_string(
    "style", "", "matplotlib style file for --paper; empty is that of the package"
)
_BAND = flags.DEFINE_enum(
    "band",
    "range",
    list(groups.BANDS),
    "bands around means over seeds in pictures of --paper: "
    + ", or ".join(f"{name}, {words}" for name, words in groups.BANDS.items()),
)


def main(folders: list[str]) -> None:
    """Writes the report of all runs in these folders."""
    if not folders:
        raise InputError("name at least one folder with recorded runs.")
    if _STYLE.value and not _PAPER.value:
        raise InputError("--style is for the pictures of --paper: add that.")
    if flags.FLAGS["band"].present and not _PAPER.value:
        raise InputError("--band is for the pictures of --paper: add that.")
    found, damaged = records.FoundRuns(folders), damage.Damaged()
    from dpsparfl_jax.report import group_page, paper_pictures, writing  # load plotly

    style = paper_pictures.read_style(
        pathlib.Path(_STYLE.value) if _STYLE.value else None
    )
    target = pathlib.Path(_OUT.value or folders[0])
    whole: list[records.RecordedRun] = []
    runs: list[records.IndexedRun] = []
    if len(found) <= records.index.FEW:
        whole = records.find_runs(folders, damaged)
        page, count = writing.write_report(whole, target, _TITLE.value), len(whole)
    else:
        runs = damage.read(found, damaged)
        page, count = group_page.write_report(runs, target, _TITLE.value), len(runs)
    damaged.end()
    print(f"report of {count} run(s): {page}")
    if _PAPER.value:
        runs = runs or [records.index.read_run(run.path, run.name) for run in whole]
        pictures = paper_pictures.write_pictures(
            runs, whole, target, style, _BAND.value
        )
        print(f"pictures for a paper: {pictures}")


if __name__ == "__main__":
    cli.run(main)
