"""What `run` and `sweep` share: training points, stopping kindly, the final table."""

import hashlib
import json
import pathlib
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

import jax
from tqdm import tqdm

from dpsparfl_jax import __version__, config_values, records
from dpsparfl_jax.config import PerfConfig, RunConfig
from dpsparfl_jax.errors import InputError, StorageError, UnfinishedRunError
from dpsparfl_jax.records import columns, rows
from dpsparfl_jax.runner import drive, processes
from dpsparfl_jax.runner.drive import describe_failure
from dpsparfl_jax.runner.folder_sink import FolderSink
from dpsparfl_jax.runner.run import Run
from dpsparfl_jax.runner.shared_sinks import share_sinks
from dpsparfl_jax.runner.sinks import Sink

from .grid import Points

_FAILED = 1
_OWN_PATHS = (("data", "dir"), ("perf", "cache_dir"))  # each process may have its own
_SHOWN = ("rounds", "accuracy", "delay_s", "energy_j", "epsilon_max", "fairness")


class Stopper:
    """The first Ctrl-C or SIGTERM asks to stop, the second one stops at once."""

    def __init__(self) -> None:
        """Takes over both signals."""
        self.signal = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        # The next one ends the process even while it compiles; all that was recorded
        # is flushed, or replaced as a whole.
        signal.signal(number, signal.SIG_DFL)
        self.signal = number
        tqdm.write(
            "Stopping after the rounds under way (again: at once).", file=sys.stderr
        )

    def release(self) -> None:
        """Gives both signals back: Ctrl-C interrupts again."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def asked(self) -> bool:
        """Whether to stop."""
        return bool(self.signal)


# Trains runs by name into their folders, until asked to stop.
Trainer = Callable[
    [Mapping[str, RunConfig], Mapping[str, pathlib.Path], Stopper], drive.Outcome
]


def console_hooks(stopper: Stopper) -> drive.Hooks:
    """Tells the user what is going on, and stops where the user asks for it."""
    write = tqdm.write
    return drive.Hooks(write, warn=write, clock=time.time, stop=stopper.asked)


def keep_compiled_programs(perf: PerfConfig) -> None:
    """Lets JAX keep compiled programs on disk, beside the epsilon curves."""
    if perf.cache_dir:
        folder = pathlib.Path(perf.cache_dir).expanduser() / "programs"
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def execute(
    points: Points,
    *,
    out: pathlib.Path,
    nested: bool,
    resume: bool,
    report: bool = True,
    notes: Sequence[str] = (),
    trainer: Trainer | None = None,
) -> int:
    """Trains and records runs, prints a table, writes a report; gives the exit code.

    `nested` runs have a folder each in `out`. A single run that cannot be is bad input;
    of several, the others still run, and those that failed are listed at the end.
    `notes` on the settings are said before training, and recorded. A `trainer` has the
    runs trained elsewhere; without one this process does it.
    """
    stopper = Stopper()
    folders = {name: out / name if nested else out for name in points.settings}
    failed = dict(points.problems)
    try:
        if trainer is not None:
            outcome = trainer(points.settings, folders, stopper)
        else:
            hooks = console_hooks(stopper)
            outcome = train(points.settings, folders, hooks, resume=resume, notes=notes)
        failed |= {name: describe_failure(why) for name, why in outcome.failed.items()}
        if len(failed) == len(points):
            refuse_common_reason(failed)
        if processes.current().first:
            _show(outcome, folders, failed, out if report else None)
    finally:
        for name, reason in failed.items():
            print(f"FAILED {name}: {reason}", file=sys.stderr)
    if outcome.stopped:
        how = "" if resume else " with --resume"
        print(
            f"Stopped: {', '.join(outcome.stopped)}; the same command{how} goes on.",
            file=sys.stderr,
        )
        # Another process may have been asked.
        return 128 + (stopper.signal or signal.SIGTERM)
    return _FAILED if failed else 0


def _show(
    outcome: drive.Outcome,
    folders: Mapping[str, pathlib.Path],
    failed: dict[str, str],
    report: pathlib.Path | None,
) -> None:
    """Prints the table of all that was recorded, and writes a report to a folder."""
    if outcome.skipped:
        print(f"Finished before: {', '.join(outcome.skipped)}.")
    recorded = _read(folders, failed)
    if recorded:
        print(table(recorded))
    if report and any(len(run.rounds) for run in recorded):
        from dpsparfl_jax.report import writing  # loads plotly

        print(f"Report: {writing.write_report(recorded, report)}")


def _read(
    folders: Mapping[str, pathlib.Path], failed: dict[str, str]
) -> list[records.RecordedRun]:
    """All runs that left something; those that cannot be read count as failed."""
    recorded = []
    for name, folder in folders.items():
        try:
            if (folder / records.MANIFEST).is_file():
                recorded.append(records.load_run(folder, name))
        except InputError as reason:
            failed.setdefault(name, str(reason))
    return recorded


def refuse_common_reason(failed: dict[str, str]) -> None:
    """All runs failed: what they fail for, if it is the same, is bad input."""
    if len(set(failed.values())) == 1:
        (reason,) = set(failed.values())
        failed.clear()
        raise InputError(reason)


def train(
    settings: Mapping[str, RunConfig],
    folders: Mapping[str, pathlib.Path],
    hooks: drive.Hooks,
    *,
    resume: bool,
    notes: Sequence[str] = (),
) -> drive.Outcome:
    """Trains and records runs; `hooks` say who listens, and stop."""
    if not settings:
        return drive.Outcome()
    keep_compiled_programs(next(iter(settings.values())).perf)
    together = processes.current()
    _require_same_settings(settings, together)
    if not together.first:
        hooks = hooks._replace(say=_stay_silent, warn=_stay_silent, progress=False)
    sinks: dict[str, Sink] = {}
    refused: dict[str, Exception] = {}
    if together.first:
        sinks, refused = open_folders(settings, folders, hooks, resume=resume)
    if isinstance(together, processes.JoinedProcesses):
        sinks, refused = share_sinks(settings, sinks, refused, together)
    if not sinks:
        raise next(iter(refused.values()))
    runs = [Run(name, settings[name], tuple(notes)) for name in sinks]
    try:
        outcome = drive.drive(runs, list(sinks.values()), hooks)
    except StorageError as reason:
        raise InputError(f"{reason} --resume continues from it.") from None
    outcome.failed.update(refused)
    return outcome


def open_folders(
    settings: Mapping[str, RunConfig],
    folders: Mapping[str, pathlib.Path],
    hooks: drive.Hooks,
    *,
    resume: bool,
) -> tuple[dict[str, Sink], dict[str, Exception]]:
    """A sink for every run whose folder is its own, and why the others have none."""
    sinks: dict[str, Sink] = {}
    refused: dict[str, Exception] = {}
    for name, each in settings.items():
        try:
            sinks[name] = FolderSink(
                folders[name],
                each,
                resume=resume,
                say=hooks.say,
                warn=hooks.warn,
                clock=time.time,
            )
        except UnfinishedRunError as reason:
            refused[name] = InputError(f"{reason} --resume goes on with it.")
        except InputError as reason:
            refused[name] = reason
    return sinks, refused


def _stay_silent(sentence: str) -> None:
    """The first of several processes says it."""


def _require_same_settings(
    settings: Mapping[str, RunConfig], together: processes.Processes
) -> None:
    """Refuses processes that were started with other settings or versions."""
    values = {name: config_values.as_dict(each) for name, each in settings.items()}
    for each in values.values():
        for section, name in _OWN_PATHS:
            del each[section][name]
    text = json.dumps([__version__, jax.__version__, values], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    together.require_same("settings or versions", digest)


def table(runs: Sequence[records.RecordedRun]) -> str:
    """The final table: one line a run."""
    headings = {**columns.summary_columns(), "fairness": ("fairness", "{:.3f}")}
    lines = [["run", *(headings[name][0] for name in _SHOWN), "s/round", "planning"]]
    for run in runs:
        if not run.done:
            rounds = f"{len(run.rounds)} (unfinished)"
            lines.append([run.name, rounds, *["-"] * (len(_SHOWN) + 1)])
            continue
        summary = rows.summarise(
            run.rounds.to_dict("records"), run.clients.to_dict("records")
        )
        cells = [_cell(name, summary[name], headings[name][1]) for name in _SHOWN]
        device_s, planning_s = run.rounds["device_s"], run.manifest["planning_s"]
        share = planning_s / (planning_s + device_s.sum())
        # The median leaves out compilation.
        lines.append([run.name, *cells, f"{device_s.median():.2f}", f"{share:.1%}"])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if number == 0 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def _cell(name: str, value: float | None, form: str) -> str:
    if value is None:
        return "infinite" if name.startswith("epsilon") else "-"
    return form.format(value)
