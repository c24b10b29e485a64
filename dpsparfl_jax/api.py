"""Runs from Python: plan one, train one, train a grid, or watch it round by round."""

import inspect
import os
import pathlib
import time
import warnings as python_warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pandas as pd

from dpsparfl_jax import records
from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning.schedule import Schedule
from dpsparfl_jax.records import rows
from dpsparfl_jax.records.columns import Row
from dpsparfl_jax.runner import checkpoint, drive, processes
from dpsparfl_jax.runner.folder_sink import FolderSink
from dpsparfl_jax.runner.run import Run
from dpsparfl_jax.runner.sinks import MemorySink
from dpsparfl_jax.types import Params


class RunResult(NamedTuple):
    """A finished run."""

    settings: RunConfig
    schedule: Schedule
    rounds: pd.DataFrame  # one row a round
    clients: pd.DataFrame  # one row a client
    params: Params  # the server's last model
    average: Params  # of its models, if `server.averaging` asks for it; else the last
    summary: Row
    warnings: tuple[str, ...]  # what a user must not overlook
    folder: pathlib.Path | None  # where it is recorded


def plan(settings: RunConfig) -> Schedule:
    """Plans a whole run without training it.

    Args:
        settings: the run.

    Returns:
        Who sends on which channel, with what power and keep rate, in every round [T, N]
        until the run's end, with delays, energies, queues and every client's epsilon.

    Raises:
        InputError: if no client can take part even once, or a setting is impossible.

    Examples:
        >>> import dpsparfl_jax as fl
        >>> settings = fl.RunConfig(length=fl.LengthConfig(rounds=2))
        >>> fl.plan(settings).client.shape  # rounds, channels
        (2, 5)
    """
    run = Run("run", settings).outlined().planned()
    for warning in run.plan.warnings:
        _warn(warning)
    return run.schedule


def simulate(
    settings: RunConfig,
    out: str | os.PathLike[str] | None = None,
    *,
    progress: bool = True,
) -> RunResult:
    """Trains one run to its end.

    Args:
        settings: the run.
        out: folder to record it in, as the commands do; the same call again goes on
            with an unfinished run, and reads a finished one; a run of other settings,
            or of other code of your own, is refused. None keeps nothing.
        progress: whether to show a bar where there is a terminal.

    Returns:
        Rounds and clients as tables, the schedule, the model, and warnings, which are
        also given by `warnings.warn`.

    Examples:
        >>> import dpsparfl_jax as fl
        >>> settings = fl.RunConfig(
        ...     data=fl.DataConfig(num_clients=4, train_examples=100, test_examples=10),
        ...     model=fl.ModelConfig(name="logistic"),
        ...     training=fl.TrainingConfig(local_steps=2),
        ...     wireless=fl.WirelessConfig(num_channels=2, cycles_per_sample=1e6),
        ...     schedule=fl.ScheduleConfig(delay_target_s=1.0),
        ...     length=fl.LengthConfig(rounds=2),
        ... )
        >>> fl.simulate(settings).rounds["round"].tolist()
        [1, 2]
    """
    outs = None if out is None else [out]
    return simulate_grid([settings], outs, progress=progress)[0]


def simulate_grid(
    runs: Sequence[RunConfig],
    outs: Sequence[str | os.PathLike[str]] | None = None,
    *,
    progress: bool = True,
) -> list[RunResult]:
    """Trains many runs; those that share shapes share one compiled program.

    Args:
        runs: their settings. Numbers (learning rate, clip norm, noise, lambda, epsilon,
            seed) may differ within a program; shapes may not.
        outs: a folder for each run to record it in; None keeps nothing on disk.
        progress: whether to show a bar where there is a terminal.

    Returns:
        A result for each, in their order; each is what `simulate` would give, to the
        bit where tasks go one by one (on a CPU).

    Raises:
        InputError: if a run cannot be trained; where your own policy failed, its
            exception is the cause. Other exceptions, of your own model say, come as
            they are. The first failure is raised after all runs have been tried: record
            them (`outs`) where the finished ones matter.

    Examples:
        >>> import dataclasses
        >>> import dpsparfl_jax as fl
        >>> settings = fl.RunConfig(
        ...     data=fl.DataConfig(num_clients=4, train_examples=100, test_examples=10),
        ...     model=fl.ModelConfig(name="logistic"),
        ...     training=fl.TrainingConfig(local_steps=2),
        ...     wireless=fl.WirelessConfig(num_channels=2, cycles_per_sample=1e6),
        ...     schedule=fl.ScheduleConfig(delay_target_s=1.0),
        ...     length=fl.LengthConfig(rounds=2),
        ... )
        >>> seeds = [dataclasses.replace(settings, seed=seed) for seed in range(2)]
        >>> [result.summary["rounds"] for result in fl.simulate_grid(seeds)]
        [2, 2]
    """
    if not runs:
        raise InputError("give at least one configuration.")
    if isinstance(outs, str | os.PathLike) or (outs and len(outs) != len(runs)):
        raise InputError(f"give a folder for each of the {len(runs)} runs in outs.")
    if outs is not None and processes.current().count > 1:
        raise InputError(
            "runs of several processes are recorded by the commands run and sweep: "
            "leave the folders out here."
        )
    wanted = [Run(f"run {n}", settings) for n, settings in enumerate(runs)]
    if outs is None:
        kept = [MemorySink() for _ in runs]
        _drive(wanted, kept, _hooks(progress))
        return [_from_memory(sink) for sink in kept]
    folders = [pathlib.Path(out) for out in outs]
    sinks = [
        FolderSink(
            folder, settings, resume=True, say=_ignore, warn=_warn, clock=time.time
        )
        for folder, settings in zip(folders, runs, strict=True)
    ]
    read_back = [sink.is_done for sink in sinks]
    _drive(wanted, sinks, _hooks(progress)._replace(clock=time.time))
    results = [_from_folder(folder) for folder in folders]
    for result, was_done in zip(results, read_back, strict=True):
        for warning in result.warnings if was_done else ():
            _warn(warning)
    return results


def iterate(settings: RunConfig) -> Iterator[Row]:
    """Trains a run and gives its rounds as they come.

    Args:
        settings: the run.

    Yields:
        One dict a round, with every column of the table of rounds. Leaving the loop
        ends the run.

    Examples:
        >>> import dpsparfl_jax as fl
        >>> for row in fl.iterate(settings):  # doctest: +SKIP
        ...     if row["accuracy"] > 0.9:
        ...         break
    """
    outcome = drive.Outcome()
    run, sink = Run("run", settings), MemorySink()
    for _, row in drive.rounds([run], [sink], _hooks(progress=False), outcome):
        yield row
    _raise_first(outcome)


def _drive(
    runs: Sequence[Run], sinks: Sequence[MemorySink | FolderSink], hooks: drive.Hooks
) -> None:
    _raise_first(drive.drive(runs, sinks, hooks))


def _raise_first(outcome: drive.Outcome) -> None:
    for reason in outcome.failed.values():
        raise reason


def _hooks(progress: bool) -> drive.Hooks:
    return drive.Hooks(say=_ignore, warn=_warn, progress=progress)


def _ignore(sentence: str) -> None:
    """Python callers find what there is to say in the result."""


def _warn(sentence: str) -> None:
    """Warns at the caller's line: the first that is not of this package."""
    level, frame = 1, inspect.currentframe()
    while frame and frame.f_globals.get("__name__", "").startswith(__package__):
        frame, level = frame.f_back, level + 1
    python_warnings.warn(sentence, UserWarning, stacklevel=level)


def _from_memory(sink: MemorySink) -> RunResult:
    assert sink.run is not None
    assert sink.clip is not None
    assert sink.state is not None
    return RunResult(
        sink.run.settings,
        sink.run.schedule,
        pd.DataFrame(sink.rounds),
        pd.DataFrame(sink.clients),
        sink.state.params,
        sink.state.average,
        rows.summarise(sink.rounds, sink.clients),
        (*sink.run.plan.warnings, *sink.clip.warnings),
        None,
    )


def _from_folder(folder: pathlib.Path) -> RunResult:
    recorded = records.load_run(folder)
    return RunResult(
        recorded.settings,
        recorded.schedule,
        recorded.rounds,
        recorded.clients,
        checkpoint.load_params(folder),
        checkpoint.load_params(folder, averaged=True),
        rows.summarise(
            recorded.rounds.to_dict("records"), recorded.clients.to_dict("records")
        ),
        recorded.warnings,
        folder,
    )
