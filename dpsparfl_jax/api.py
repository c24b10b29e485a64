"""Runs from Python: plan one, train one, train a grid, or watch it round by round."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from tqdm import tqdm

from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.data import sources
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.records import rows
from dpsparfl_jax.schedule import Schedule
from dpsparfl_jax.simulation import grouping, inputs
from dpsparfl_jax.simulation.batch import Batch, client_table
from dpsparfl_jax.simulation.inputs import RunInputs
from dpsparfl_jax.types import Params, RoundOutput


class RunResult(NamedTuple):
    """A finished run."""

    settings: RunConfig
    schedule: Schedule
    rounds: pd.DataFrame  # one row a round
    clients: pd.DataFrame  # one row a client
    params: Params  # the server's last model
    summary: rows.Row


def plan(settings: RunConfig) -> Schedule:
    """The whole schedule of a run, without training it."""
    return inputs.plan_run(settings).schedule


def iterate(settings: RunConfig) -> Iterator[rows.Row]:
    """Trains a run and gives its rounds as they come, a dict each."""
    run = inputs.prepare(settings)
    table = rows.RoundRows(run.plan.schedule)
    for outputs in Batch([run]).train():
        yield table.row(outputs[0])


def simulate(settings: RunConfig, *, progress: bool = True) -> RunResult:
    """Trains one run to its end."""
    return simulate_grid([settings], progress=progress)[0]


def simulate_grid(
    runs: Sequence[RunConfig], *, progress: bool = True
) -> list[RunResult]:
    """Trains many runs; those that share shapes share one compiled program.

    `progress` shows a bar where there is a terminal.
    """
    if not runs:
        raise InputError("give at least one configuration.")
    described: inputs.Described = {}
    outlines = [inputs.outline(settings, described) for settings in runs]
    done: dict[int, RunResult] = {}
    loaded: dict[tuple[object, ...], sources.Loaded] = {}
    for numbers in grouping.group_runs(runs, outlines):
        data = runs[numbers[0]].data
        key = data.image_set
        if key not in loaded:
            loaded = {key: sources.load(data)}  # the set before it is let go
        batch = Batch(
            [inputs.prepare(runs[n], loaded[key], outlines[n]) for n in numbers]
        )
        for number, result in zip(numbers, _train(batch, progress), strict=True):
            done[number] = result
    return [done[number] for number in range(len(runs))]


def _train(batch: Batch, progress: bool) -> list[RunResult]:
    tables = [rows.RoundRows(run.plan.schedule) for run in batch.runs]
    rounds: list[list[rows.Row]] = [[] for _ in batch.runs]
    last: dict[int, RoundOutput] = {}
    bar = tqdm(
        total=int(np.sum(batch.lengths)),
        desc=f"{len(batch.runs)} run(s)",
        unit="round",
        disable=None if progress else True,
    )
    with bar:
        for outputs in batch.train():
            for output in outputs:
                rounds[output.run].append(tables[output.run].row(output))
                last[output.run] = output
            bar.update(len(outputs))
    return [
        finish(run, rounds[number], last[number])
        for number, run in enumerate(batch.runs)
    ]


def finish(run: RunInputs, rounds: Sequence[rows.Row], last: RoundOutput) -> RunResult:
    """The result of a run whose last round has come back."""
    assert last.right is not None
    clients = client_table(run, last.right)
    return RunResult(
        run.settings,
        run.plan.schedule,
        pd.DataFrame(rounds),
        pd.DataFrame(clients),
        last.params,
        rows.summarise(rounds, clients),
    )
