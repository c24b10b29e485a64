"""What became of many recorded runs: how many there are, and one line a setting.

    dpsparfl list runs/grid [--all] [--csv=runs.csv]

looks for runs in the folders and below. Runs that differ in their seed alone are one
line, with mean and range; settings in which runs differ are columns. It never trains,
and reads the index of a sweep instead of its folders where there is one.
"""

import pathlib

from absl import flags

from dpsparfl_jax import records
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.records import groups
from dpsparfl_jax.storage import write_whole

from . import cli, damage, tables

_ALL = flags.DEFINE_bool("all", False, f"every line, not {tables.MOST_LINES} at most")
_CSV = flags.DEFINE_string("csv", "", "file for a table with every run")


def main(folders: list[str]) -> None:
    """Prints the table of all runs in these folders."""
    if not folders:
        raise InputError("name at least one folder with recorded runs.")
    cli.check_output("csv", _CSV.value)
    damaged = damage.Damaged()
    runs = damage.read(records.FoundRuns(folders), damaged)
    damaged.end()
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
