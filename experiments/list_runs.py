"""What became of many recorded runs: how many there are, and one line a setting.

    python -m experiments.list_runs runs/grid [--all] [--csv=runs.csv]

looks for runs in the folders and below. Runs that differ in their seed alone are one
line, with mean and range; settings in which runs differ are columns. It never trains,
and reads the index of a sweep instead of its folders where there is one.
"""

import pathlib
import sys

from absl import flags
from tqdm import tqdm

from dpsparfl_jax import records
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.records import groups
from dpsparfl_jax.storage import write_whole

from . import cli, tables

_ALL = flags.DEFINE_bool("all", False, f"every line, not {tables.MOST_LINES} at most")
_CSV = flags.DEFINE_string("csv", "", "file for a table with every run")
_TOLD = 5  # damaged runs that are told of one by one


class Damaged:
    """Tells of the first runs that cannot be read, and counts the others."""

    def __init__(self) -> None:
        """Nothing was told so far."""
        self.count = 0

    def __call__(self, problem: str) -> None:
        """Hears of one."""
        self.count += 1
        if self.count <= _TOLD:
            tqdm.write(f"Left out: {problem}", file=sys.stderr)

    def end(self) -> None:
        """Says how many others there were."""
        if self.count > _TOLD:
            print(f"and {self.count - _TOLD:,} more.", file=sys.stderr)


def read(
    folders: list[str],
) -> tuple[list[records.IndexedRun], Damaged]:
    """All runs in these folders, and what was said about others."""
    found, damaged = records.FoundRuns(folders), Damaged()
    bar = {"desc": "runs read", "disable": None, "leave": False, "delay": 1}
    runs = found.read(damaged, watch=lambda numbers: tqdm(numbers, **bar))
    damaged.end()
    return runs, damaged


def main(folders: list[str]) -> None:
    """Prints the table of all runs in these folders."""
    if not folders:
        raise InputError("name at least one folder with recorded runs.")
    cli.check_output("csv", _CSV.value)
    runs, damaged = read(folders)
    finished = [run for run in runs if run.done]
    counts = [
        f"{len(finished):,} finished",
        f"{len(runs) - len(finished):,} unfinished",
    ]
    if damaged.count:
        counts.append(f"{damaged.count:,} unreadable")
    print(f"{len(runs) + damaged.count:,} runs: {', '.join(counts)}.")
    if finished:
        made = groups.group_runs(finished)
        print(tables.of_groups(made, whole=_ALL.value))
        if len(made) > tables.MOST_LINES and not _ALL.value:
            print("(--all lists all of them, --csv=FILE writes every run.)")
    if _CSV.value:
        text = groups.runs_frame(runs).to_csv(index=False, lineterminator="\n")
        write_whole(pathlib.Path(_CSV.value), text)


if __name__ == "__main__":
    cli.run(main)
