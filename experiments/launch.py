"""What `run` and `sweep` share: training points, and stopping kindly."""

import contextlib
import functools
import hashlib
import json
import pathlib
import signal
import time
from collections.abc import Callable, Mapping, Sequence

import jax
from tqdm import tqdm

from dpsparfl_jax import __version__, config_values, own_code, records
from dpsparfl_jax.config import PerfConfig, RunConfig
from dpsparfl_jax.errors import (
    InputError,
    OwnCodeError,
    StorageError,
    UnfinishedRunError,
)
from dpsparfl_jax.runner import drive, processes
from dpsparfl_jax.runner.drive import describe_failure
from dpsparfl_jax.runner.folder_sink import FolderSink
from dpsparfl_jax.runner.run import Run
from dpsparfl_jax.runner.shared_sinks import share_sinks
from dpsparfl_jax.runner.sinks import FinishedSink, Sink

from . import ending, live_writer, tracking
from .grid import Points
from .stopping import Stopper

_OWN_PATHS = (("data", "dir"), ("perf", "cache_dir"))  # each process may have its own


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
    stopper: Stopper,
    *,
    out: pathlib.Path,
    nested: bool,
    resume: bool,
    report: bool = True,
    notes: Sequence[str] = (),
    trainer: Trainer | None = None,
    live_s: int = 0,
    log: Sequence[str] = (),
) -> int:
    """Trains and records runs, prints a table, writes a report; gives the exit code.

    `nested` runs have a folder each in `out`. A single run that cannot be is bad input;
    of several, the others still run, and those that failed are listed at the end.
    `notes` on the settings are said before training, and recorded. A `trainer` has the
    runs trained elsewhere; without one this process does it. The report's page is
    written every `live_s` seconds meanwhile, never if 0; rounds go to the services of
    `log` too.
    """
    folders = {name: out / name if nested else out for name in points.settings}
    failed = dict(points.problems)
    try:
        watched_s = live_s if processes.current().first else 0
        with live_writer.LivePage(folders, out, watched_s):
            if trainer is not None:
                outcome = trainer(points.settings, folders, stopper)
            else:
                outcome = train(
                    points.settings,
                    folders,
                    console_hooks(stopper),
                    resume=resume,
                    notes=notes,
                    sweep=out if nested else None,
                    log=log,
                )
        failed |= {name: describe_failure(why) for name, why in outcome.failed.items()}
        if len(failed) == len(points):
            refuse_common_reason(failed, outcome)
        if processes.current().first:
            ending.show(outcome.skipped, folders, failed, out if report else None)
    finally:
        ending.tell_failed(failed)
    if outcome.stopped:
        ending.tell_stopped(outcome.stopped, resume=resume)
        # Another process may have been asked.
        return 128 + (stopper.signal or signal.SIGTERM)
    return ending.FAILED if failed else 0


def refuse_common_reason(failed: dict[str, str], outcome: drive.Outcome) -> None:
    """All runs failed: what they fail for, if it is the same, is bad input."""
    if len(set(failed.values())) == 1:
        (reason,) = set(failed.values())
        failed.clear()
        own = any(isinstance(why, OwnCodeError) for why in outcome.failed.values())
        raise OwnCodeError(reason) if own else InputError(reason)


def train(
    settings: Mapping[str, RunConfig],
    folders: Mapping[str, pathlib.Path],
    hooks: drive.Hooks,
    *,
    resume: bool,
    notes: Sequence[str] = (),
    sweep: pathlib.Path | None = None,
    log: Sequence[str] = (),
) -> drive.Outcome:
    """Trains and records runs; `hooks` say who listens, and stop.

    Runs that are folders of a `sweep` are looked up in its index, and added to it.
    Services of `log` get their rounds too.
    """
    if not settings:
        return drive.Outcome()
    keep_compiled_programs(next(iter(settings.values())).perf)
    together = processes.current()
    _require_same_settings(settings, together)
    if not together.first:
        hooks = hooks._replace(say=_stay_silent, warn=_stay_silent, progress=False)
    index = ending.open_index(sweep) if together.first else None
    mine = settings if together.first else {}
    sinks, refused = open_sinks(mine, folders, index, hooks, resume=resume)
    group = sweep.absolute().name if sweep else ""
    with tracking.Tracking(log if together.first else (), group, hooks.warn) as tracked:
        sinks = {
            name: tracked.around(sink, name, settings[name], folders[name])
            for name, sink in sinks.items()
        }
        if isinstance(together, processes.JoinedProcesses):
            sinks, refused = share_sinks(settings, sinks, refused, together)
        if not sinks:
            raise next(iter(refused.values()))
        runs = [Run(name, settings[name], tuple(notes)) for name in sinks]
        if index is not None:
            hooks = hooks._replace(finished=functools.partial(_add_to_index, index))
        try:
            outcome = drive.drive(runs, list(sinks.values()), hooks)
        except StorageError as reason:
            raise InputError(f"{reason} --resume continues from it.") from None
    outcome.failed.update(refused)
    return outcome


def open_sinks(
    settings: Mapping[str, RunConfig],
    folders: Mapping[str, pathlib.Path],
    index: records.Index | None,
    hooks: drive.Hooks,
    *,
    resume: bool,
) -> tuple[dict[str, Sink], dict[str, Exception]]:
    """Where the rounds of every run go, and why some runs are refused."""
    sinks: dict[str, Sink] = {}
    refused: dict[str, Exception] = {}
    for name, each in settings.items():
        if index is not None and index.has_finished(name, each):
            sinks[name] = FinishedSink()
            continue
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


def _add_to_index(index: records.Index, names: Sequence[str]) -> None:
    """Notes finished runs; one that cannot be read is told of at the end."""
    for name in names:
        with contextlib.suppress(InputError, OSError):
            index.read(name)


def _stay_silent(sentence: str) -> None:
    """The first of several processes says it."""


def _require_same_settings(
    settings: Mapping[str, RunConfig], together: processes.Processes
) -> None:
    """Refuses processes that were started with other settings, plugins or versions."""
    if together.count == 1:
        return
    values = {name: config_values.as_dict(each) for name, each in settings.items()}
    for each in values.values():
        for section, name in _OWN_PATHS:
            del each[section][name]
    code = {name: own_code.of(each) for name, each in settings.items()}
    text = json.dumps([__version__, jax.__version__, values, code], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    together.require_same("settings, plugins or versions", digest)
