"""Runs of a sweep as tables: one row a run, a round, an evaluation, a client.

Delays, queues and participation come from schedules, accuracies from what was recorded
while training. Everything that is drawn or tested is computed from these tables.
"""

import hashlib
import json
import pathlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from tqdm import tqdm

import dpsparfl_jax as fl
from dpsparfl_jax import config, records
from dpsparfl_jax import schedule as schedule_lib
from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.schedule import Schedule
from experiments.paper.sweeps import SweepRun

_RUN = [
    *("sweep", "series", "value", "seed", "once", "run"),
    *("clients", "rounds", "participations", "delay_target_s", "delay_s"),
    *("mean_delay_s", "first_delay_s", "last_delay_s", "keep_rate"),
    *("worst_participation", "epsilon_margin"),
    *("trained_rounds", "accuracy", "trained_delay_s", "round_wall_s", "train_wall_s"),
]
_SEEN = ["round", "accuracy", "cumulative_delay_s"]
_MOST_ROWS = 60  # of a curve over rounds


class Tables(NamedTuple):
    """One sweep."""

    runs: pd.DataFrame
    rounds: pd.DataFrame
    evaluations: pd.DataFrame
    clients: pd.DataFrame


def build(
    runs: Iterable[SweepRun], folder: pathlib.Path, plans: pathlib.Path
) -> Tables:
    """Reads records in `folder`, and schedules in `plans`; makes those not there."""
    found: list[dict[str, Any]] = []
    rounds, evaluations, clients = [], [], []
    for run in tqdm(list(runs), desc="schedules", disable=None, leave=False):
        schedule = plan_once(run.planned, plans)
        label = {"series": run.series.label, "value": run.series.value}
        label |= {"seed": run.seed, "once": run.series.once, "run": len(found)}
        recorded = _recorded(run, folder)
        found.append({"sweep": run.sweep, **label} | _about(run.planned, schedule))
        rounds.append(_rounds(run.planned, schedule).assign(**label))
        clients.append(_clients(schedule).assign(**label))
        if recorded is not None:
            seen = recorded.rounds.dropna(subset=["accuracy"])
            evaluations.append(seen[_SEEN].assign(**label))
            last = seen.iloc[-1]
            found[-1] |= {
                "trained_rounds": len(recorded.rounds),
                "accuracy": last["accuracy"],
                "trained_delay_s": recorded.rounds["cumulative_delay_s"].iloc[-1],
                "round_wall_s": recorded.rounds["device_s"].median(),
                "train_wall_s": recorded.rounds["device_s"].sum(),
            }
    blank = pd.DataFrame(columns=["series", "seed", *_SEEN])
    told = pd.concat(evaluations) if evaluations else blank
    table = pd.DataFrame(found, columns=_RUN)
    every = pd.concat(rounds, ignore_index=True)
    table["common_delay_s"] = _common_delay(table, every)
    return Tables(
        table.drop(columns="run"),
        _thin(every),
        told.reset_index(drop=True),
        pd.concat(clients, ignore_index=True),
    )


def plan_once(settings: RunConfig, plans: pathlib.Path) -> Schedule:
    """The schedule of a run, from `plans` if it was made before."""
    known = config.as_dict(settings)
    known["data"] = {k: v for k, v in known["data"].items() if not k.endswith("dir")}
    known |= {"perf": {}, "version": fl.__version__}
    name = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:24]
    path = plans / f"{name}.npz"
    if path.is_file():
        try:
            return schedule_lib.load(path)
        except InputError:
            path.unlink()  # cut off while it was written: planned anew
    schedule = fl.plan(settings)
    plans.mkdir(parents=True, exist_ok=True)
    schedule_lib.save(schedule, path)
    return schedule


def _recorded(run: SweepRun, folder: pathlib.Path) -> records.RecordedRun | None:
    """What was trained of a run: at least one evaluation."""
    path = folder / run.name
    if run.trained is None or not (path / records.MANIFEST).is_file():
        return None
    recorded = records.load_run(path)
    if "accuracy" not in recorded.rounds or recorded.rounds["accuracy"].isna().all():
        return None
    return recorded


def _about(settings: RunConfig, schedule: Schedule) -> dict[str, Any]:
    """What a schedule says of its run; blank where there are no rounds."""
    able = int(np.sum(schedule.affordable > 0))
    told: dict[str, Any] = {
        "clients": able,
        "rounds": schedule.num_rounds,
        "participations": int(np.sum(schedule.participations)),
        "delay_target_s": settings.schedule.delay_target_s,
    }
    if not schedule.num_rounds:
        return told
    tenth = max(schedule.num_rounds // 10, 1)
    delay = schedule.round_delay_s
    served = schedule.rate > 0
    share = schedule.participations[served] / schedule.num_rounds
    margin = np.min(schedule.budget - schedule.epsilon_spent)
    return told | {
        "delay_s": np.sum(delay),
        "mean_delay_s": np.mean(delay),
        "first_delay_s": np.mean(delay[:tenth]),
        "last_delay_s": np.mean(delay[-tenth:]),
        "keep_rate": np.mean(schedule.keep_rate[schedule.sends]),
        "worst_participation": np.min(share / schedule.rate[served]),
        "epsilon_margin": margin if settings.privacy.noise else None,
    }


def _rounds(settings: RunConfig, schedule: Schedule) -> pd.DataFrame:
    count = np.arange(1, schedule.num_rounds + 1)
    delay = np.cumsum(schedule.round_delay_s)
    sent = np.cumsum(schedule.sends.sum(axis=1))
    weight = settings.schedule.tradeoff
    return pd.DataFrame(
        {
            "round": count,
            "cumulative_delay_s": delay,
            "running_delay_s": delay / count,
            "running_keep_rate": np.cumsum(schedule.keep_rate.sum(axis=1)) / sent,
            "running_objective": np.cumsum(schedule.value) / count / weight,
            "delay_queue": schedule.delay_queue / weight,
            "fairness_queue": np.max(np.abs(schedule.fairness_queue), axis=1),
        }
    )


def _clients(schedule: Schedule) -> pd.DataFrame:
    share = schedule.participations / max(schedule.num_rounds, 1)
    return pd.DataFrame(
        {
            "epsilon": schedule.budget,
            "afforded": schedule.affordable,
            "rate": schedule.rate,
            "share": share,
        }
    )


def _common_delay(table: pd.DataFrame, rounds: pd.DataFrame) -> pd.Series:
    """Delay until the last round that all series of a seed reach."""
    compared = table[~table["once"]]
    last = table["seed"].map(compared.groupby("seed")["rounds"].min())
    wanted = table[["run"]].assign(round=last)
    found = wanted.merge(rounds[["run", "round", "cumulative_delay_s"]], how="left")
    return found["cumulative_delay_s"]


def _thin(rounds: pd.DataFrame) -> pd.DataFrame:
    """At most so many rounds, the same for all runs."""
    step = max(int(np.ceil(rounds["round"].max() / _MOST_ROWS)), 1)
    return rounds[(rounds["round"] % step == 0) | (rounds["round"] == 1)]
