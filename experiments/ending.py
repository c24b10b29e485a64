"""How `run` and `sweep` end: what was finished before, the final table, a report.

Nothing here loads JAX, so that a sweep that is finished already ends at once.
"""

import pathlib
import sys
from collections.abc import Mapping, Sequence

from dpsparfl_jax import records
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.records import groups

from . import tables
from .grid import Points

FAILED = 1  # exit code
_NAMED = 24  # runs that are named one by one
_TOLD = 40  # failures that are told one by one


def open_index(sweep: pathlib.Path | None) -> records.Index | None:
    """The index of a sweep's folder; None if there is no sweep in it."""
    if sweep is None or (sweep / records.MANIFEST).is_file():
        return None
    return records.Index(sweep)


def all_finished(points: Points, out: pathlib.Path) -> bool:
    """Whether the index knows every run of a sweep as finished."""
    index = open_index(out)
    return index is not None and all(
        index.has_finished(name, settings) for name, settings in points.settings.items()
    )


def end(points: Points, out: pathlib.Path, *, report: bool) -> int:
    """Shows a sweep of which nothing is left to do; gives the exit code."""
    failed = dict(points.problems)
    folders = {name: out / name for name in points.settings}
    try:
        show(list(folders), folders, failed, out if report else None)
    finally:
        tell_failed(failed)
    return FAILED if failed else 0


def names_of(runs: Sequence[str]) -> str:
    """Names of some runs, or how many there are."""
    return ", ".join(runs) if len(runs) <= _NAMED else f"{len(runs):,} runs"


def tell_failed(failed: Mapping[str, str]) -> None:
    """Says which runs failed, and why."""
    for name, reason in list(failed.items())[:_TOLD]:
        print(f"FAILED {name}: {reason}", file=sys.stderr)
    if len(failed) > _TOLD:
        print(f"FAILED: {len(failed) - _TOLD:,} more runs.", file=sys.stderr)


def tell_stopped(stopped: Sequence[str], *, resume: bool) -> None:
    """Says which runs were stopped, and what goes on with them."""
    how = "" if resume else " with --resume"
    print(
        f"Stopped: {names_of(stopped)}; the same command{how} goes on.",
        file=sys.stderr,
    )


def show(
    skipped: Sequence[str],
    folders: Mapping[str, pathlib.Path],
    failed: dict[str, str],
    report: pathlib.Path | None,
) -> None:
    """Prints the table of all that was recorded, and writes a report to a folder."""
    if skipped:
        print(f"Finished before: {names_of(skipped)}.")
    if len(folders) <= records.index.FEW:
        _show_few(folders, failed, report)
        return
    runs = read_many(folders, failed)
    finished = [run for run in runs if run.done]
    if len(folders) <= tables.MOST_LINES:
        _show_few(folders, failed, None)
    elif finished:
        print(tables.of_groups(groups.group_runs(finished), whole=False))
    if report and any(run.summary["rounds"] for run in runs):
        from dpsparfl_jax.report import group_page  # loads plotly

        print(f"Report: {group_page.write_report(runs, report)}")


def _show_few(
    folders: Mapping[str, pathlib.Path],
    failed: dict[str, str],
    report: pathlib.Path | None,
) -> None:
    """A line a run, and a report of every run."""
    recorded = []
    for name, folder in folders.items():
        try:
            if (folder / records.MANIFEST).is_file():
                recorded.append(records.load_run(folder, name))
        except InputError as reason:
            failed.setdefault(name, str(reason))
    if recorded:
        print(tables.of_runs(recorded))
    if report and any(len(run.rounds) for run in recorded):
        from dpsparfl_jax.report import writing  # loads plotly

        print(f"Report: {writing.write_report(recorded, report)}")


def read_many(
    folders: Mapping[str, pathlib.Path], failed: dict[str, str]
) -> list[records.IndexedRun]:
    """All runs that left something; those that cannot be read count as failed."""
    index = records.Index(next(iter(folders.values())).parent)
    runs = []
    for name, folder in folders.items():
        known = index.find(name)
        try:
            if known is not None:
                runs.append(known)
            elif (folder / records.MANIFEST).is_file():
                runs.append(index.read(name))
        except InputError as reason:
            failed.setdefault(name, str(reason))
    return runs
