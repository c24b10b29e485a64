"""What tables need of trained runs, from their records or kept from earlier ones.

Records are large and stay where runs were trained. What figures are made of is little:
when a run was evaluated and with which result, and some facts of its end. That is kept
beside the tables, one line a run in `trained/SWEEP.jsonl`, with digests of the run's
settings and schedule, and so are gradients that were measured for Theorem 1. Whoever
has these files, on whatever machine, goes on with what is missing, and makes the tables
again without the records.
"""

import hashlib
import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dpsparfl_jax import config_values, records
from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning.schedule import Schedule
from dpsparfl_jax.runner.own_folder import refuse_other_run
from dpsparfl_jax.storage import write_whole

from .sweeps import SweepRun

EVALUATED = ["round", "accuracy", "accuracy_averaged", "cumulative_delay_s"]
FACTS = (
    *("trained_rounds", "trained_delay_s", "round_wall_s", "train_wall_s"),
    *("epsilon_left", "least_epsilon_left"),
)


class Trained(NamedTuple):
    """A run that was trained to its end."""

    settings: str  # digest of what moves its results
    schedule: str  # digest of who sent in its rounds
    facts: Mapping[str, float | None]
    evaluations: pd.DataFrame  # columns EVALUATED, a row each


def find(runs: Iterable[SweepRun], folder: pathlib.Path) -> dict[str, Trained]:
    """Finished runs by their homes: those with records, and those that were kept.

    Args:
        runs: Runs of one or several sweeps.
        folder: Where tables are, with `runs/` and `trained/` in it.

    Raises:
        InputError: If a file is damaged, or has a run with other settings.
    """
    wanted = [run for run in runs if run.trained is not None]
    kept = {
        sweep: read(path_of(folder, sweep))
        for sweep in dict.fromkeys(_sweep_of(run) for run in wanted)
    }
    found = {}
    for run in wanted:
        one = _recorded(run, folder / "runs") or kept[_sweep_of(run)].get(run.home)
        if one is not None and one.settings == _digest(run):
            found[run.home] = one
    return found


def keep(found: Mapping[str, Trained], folder: pathlib.Path) -> None:
    """Writes finished runs beside the tables; lines of other runs stay."""
    by_sweep: dict[str, dict[str, Trained]] = {}
    for home, one in found.items():
        by_sweep.setdefault(home.split("/")[0], {})[home] = one
    for sweep, some in by_sweep.items():
        path = path_of(folder, sweep)
        everything = {**read(path), **some}
        lines = [_line(home, everything[home]) for home in sorted(everything)]
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, "".join(f"{line}\n" for line in lines))


def gradients_path(folder: pathlib.Path, run: SweepRun) -> pathlib.Path:
    """Where gradients that were measured for Theorem 1 are kept."""
    return folder / "trained" / run.sweep / f"{run.name}.json"


def path_of(folder: pathlib.Path, sweep: str) -> pathlib.Path:
    """The file of a sweep's finished runs."""
    return folder / "trained" / f"{sweep}.jsonl"


def read(path: pathlib.Path) -> dict[str, Trained]:
    """Runs that are kept in a sweep's file, by their homes; none if there is no file.

    Raises:
        InputError: If the file is damaged.
    """
    if not path.is_file():
        return {}
    try:
        lines = map(json.loads, path.read_text().splitlines())
        return {line["home"]: _of_line(line) for line in lines}
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            f"{path} is damaged: restore it, or delete it to train its runs again."
        ) from None


def digest_schedule(schedule: Schedule, rounds: int) -> str:
    """Who sends in so many rounds, in a few letters."""
    clients = np.ascontiguousarray(schedule.client[:rounds], dtype="<i8")
    return hashlib.sha256(clients.tobytes()).hexdigest()[:16]


def check_schedule(run: SweepRun, plan: Schedule, one: Trained) -> None:
    """Refuses a run that does not follow the schedule that is drawn beside it."""
    rounds = int(one.facts["trained_rounds"] or 0)
    if one.schedule != digest_schedule(plan, rounds):
        raise InputError(
            f"{run.home} was trained by another schedule than is planned for "
            f"{run.sweep} now: choose another --out, or delete the folder of plans."
        )


def _sweep_of(run: SweepRun) -> str:
    return run.home.split("/")[0]


def _digest(run: SweepRun) -> str:
    settings: Any = run.trained
    return config_values.digest(settings)


def _recorded(run: SweepRun, folder: pathlib.Path) -> Trained | None:
    path, settings = folder / run.home, run.trained
    if settings is None or not (path / records.DONE).is_file():
        return None
    refuse_other_run(path, settings)
    return _of_records(settings, records.load_run(path))


def _of_records(settings: RunConfig, recorded: records.RecordedRun) -> Trained:
    rounds, clients = recorded.rounds, recorded.clients
    left = clients["epsilon_asked"] - clients["epsilon_spent"]
    seen = rounds.dropna(subset=["accuracy"])
    numbers = (
        *(len(rounds), rounds["cumulative_delay_s"].iloc[-1]),
        *(rounds["device_s"].median(), rounds["device_s"].sum()),
        *(left.mean(), left.min()),
    )
    return Trained(
        config_values.digest(settings),
        digest_schedule(recorded.schedule, recorded.schedule.num_rounds),
        {name: _number(n) for name, n in zip(FACTS, numbers, strict=True)},
        seen.reindex(columns=EVALUATED).astype(float).reset_index(drop=True),
    )


def _number(value: Any) -> float | None:
    """A number that JSON has."""
    return float(value) if np.isfinite(value) else None


def _line(home: str, one: Trained) -> str:
    rows = [[_short(value) for value in row] for row in one.evaluations.to_numpy()]
    facts = {name: _short(one.facts[name]) for name in FACTS}
    about = {"home": home, "settings": one.settings, "schedule": one.schedule}
    return json.dumps({**about, **facts, "evaluations": rows})


def _short(value: float | None) -> float | int | None:
    """Ten digits, as many as anybody looks at; a whole number without a point."""
    if value is None or not np.isfinite(value):
        return None
    rounded = float(f"{value:.10g}")
    return int(rounded) if rounded.is_integer() else rounded


def _of_line(line: Mapping[str, Any]) -> Trained:
    rows = pd.DataFrame(line["evaluations"], columns=EVALUATED, dtype=float)
    facts = {name: None if line[name] is None else float(line[name]) for name in FACTS}
    return Trained(line["settings"], line["schedule"], facts, rows)
