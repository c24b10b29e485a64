"""Runs of a sweep as tables: one row a run, a round, an evaluation, a client.

Delays, queues and participation come from schedules, accuracies from what was recorded
while training. Everything that is drawn or tested is computed from these tables.
"""

import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from tqdm import tqdm

from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.planning import schedule as schedule_lib
from dpsparfl_jax.planning import theory
from dpsparfl_jax.planning.schedule import Schedule

from . import plans as plans_lib
from . import run_measures
from . import trained as trained_lib
from .sweeps import SweepRun
from .trained import EVALUATED, Trained

_RUN = [
    *("sweep", "series", "value", "seed", "once", "run", "to_train"),
    *("clients", "rounds", "participations", "delay_target_s", "delay_s"),
    *("mean_delay_s", "first_delay_s", "last_delay_s", "keep_rate"),
    *("participation_gap", "epsilon_margin", "late", "epsilon_wasted"),
    *("energy_broken", "last_full_round", "queue_ratio"),
]
TRAINED = [  # left out of tables in which nothing was trained
    *("trained_rounds", "accuracy", "trained_delay_s", "round_wall_s", "train_wall_s"),
    *("best_accuracy", "accuracy_averaged", "epsilon_left", "settled_accuracy"),
    *("tuning_accuracy", "reach_s", "equal_time_accuracy"),
]
_MOST_ROWS = 60  # of a curve over rounds


class Tables(NamedTuple):
    """One sweep."""

    runs: pd.DataFrame
    rounds: pd.DataFrame
    evaluations: pd.DataFrame
    clients: pd.DataFrame


def build(
    runs: Iterable[SweepRun], trained: Mapping[str, Trained], plans: pathlib.Path
) -> Tables:
    """Tables of runs and of what was `trained`, by home; `plans` has schedules.

    Schedules that are not there are planned.
    """
    run_rows: list[dict[str, Any]] = []
    rounds, evaluations, clients = [], [], []
    for run in tqdm(list(runs), desc="schedules", disable=None, leave=False):
        schedule = plans_lib.plan_once(run.planned, plans)
        label = {"series": run.series.label, "value": run.series.value}
        label |= {"seed": run.seed, "once": run.series.once, "run": len(run_rows)}
        to_train = run.trained is not None
        recorded = trained.get(run.home) if to_train else None
        about = {"sweep": run.sweep, **label, "to_train": to_train}
        run_rows.append(about | _about(run.planned, schedule))
        rounds.append(_rounds(run.planned, schedule).assign(**label))
        clients.append(_clients(schedule).assign(**label))
        if recorded is not None:
            trained_lib.check_schedule(run, schedule, recorded)
            evaluations.append(recorded.evaluations.assign(**label))
            run_rows[-1] |= _trained(run, run_rows[-1], recorded)
    blank = pd.DataFrame(columns=["series", "seed", "run", "once", *EVALUATED])
    seen = pd.concat(evaluations, ignore_index=True) if evaluations else blank
    table = pd.DataFrame(run_rows, columns=[*_RUN, *TRAINED])
    every = pd.concat(rounds, ignore_index=True)
    table["common_delay_s"] = _common_delay(table, every)
    table["equal_time_accuracy"] = equal_time_accuracy(table, seen)
    return Tables(
        table.drop(columns=["run", "to_train"]),
        _thin(every),
        seen,
        pd.concat(clients, ignore_index=True),
    )


def _trained(
    run: SweepRun, planned: dict[str, Any], recorded: Trained
) -> dict[str, Any]:
    """What a finished run adds to its row."""
    evaluated, facts = recorded.evaluations, dict(recorded.facts)
    last, level = evaluated.iloc[-1], run_measures.level_of(run.planned)
    margin, left = planned["epsilon_margin"], facts.pop("least_epsilon_left")
    return {
        **facts,
        "accuracy": last["accuracy"],
        # The least epsilon left, by the plan and by the ledger of the trained run.
        "epsilon_margin": None if margin is None else min(margin, left or 0.0),
        "best_accuracy": evaluated["accuracy"].max(),
        "accuracy_averaged": last["accuracy_averaged"],
        "settled_accuracy": run_measures.settled_accuracy(
            evaluated, planned["last_full_round"]
        ),
        "tuning_accuracy": run_measures.tuning_accuracy(evaluated),
        "reach_s": run_measures.reach_s(evaluated, level),
    }


def _about(settings: RunConfig, schedule: Schedule) -> dict[str, Any]:
    """What a schedule says of its run; blank where there are no rounds."""
    able = int(np.sum(schedule.affordable > 0))
    facts: dict[str, Any] = {
        "clients": able,
        "rounds": schedule.num_rounds,
        "participations": int(np.sum(schedule.participations)),
        "delay_target_s": settings.schedule.delay_target_s,
        "last_full_round": run_measures.last_full_round(schedule),
    }
    if not schedule.sends.any():
        return facts
    tenth = max(schedule.num_rounds // 10, 1)
    delay = schedule.round_delay_s
    share = _half_way_shares(schedule)
    private = settings.privacy.noise  # else all epsilons are infinite
    return facts | {
        "delay_s": np.sum(delay),
        "mean_delay_s": np.mean(delay),
        "first_delay_s": np.mean(delay[:tenth]),
        "last_delay_s": np.mean(delay[-tenth:]),
        "keep_rate": np.mean(schedule.keep_rate[schedule.sends]),
        "participation_gap": np.max(schedule.rate - share),
        "epsilon_margin": np.min(schedule.budget - _epsilon_spent(schedule))
        if private
        else None,
        "late": np.mean(schedule.late[schedule.sends]),
        "epsilon_wasted": _wasted(schedule) if private else None,
        "energy_broken": _energy_broken(settings, schedule),
        "queue_ratio": run_measures.queue_ratio(settings, schedule),
    }


def _epsilon_spent(schedule: Schedule) -> Any:
    """Epsilon that clients [U] have spent after the last round."""
    return schedule.epsilon_after(schedule.participations)


def _wasted(schedule: Schedule) -> float:
    """Share of all epsilon spent that bought nothing: updates that never arrived."""
    lost = schedule.client[schedule.sends & ~schedule.arrived]
    counts = np.bincount(lost, minlength=len(schedule.budget))
    share = counts / np.maximum(schedule.participations, 1)
    spent = _epsilon_spent(schedule)
    return float(np.sum(spent * share) / np.sum(spent))


def _energy_broken(settings: RunConfig, schedule: Schedule) -> float:
    """Share of uploads that took more energy than a client may spend in a round."""
    taken = (schedule.upload_j + schedule.training_j)[schedule.sends]
    return float(np.mean(taken > settings.schedule.energy_j * (1 + 1e-6)))


def _rounds(settings: RunConfig, schedule: Schedule) -> pd.DataFrame:
    count = np.arange(1, schedule.num_rounds + 1)
    delay = np.cumsum(schedule.round_delay_s)
    sent = np.cumsum(schedule.sends.sum(axis=1))
    weight = settings.schedule.tradeoff
    norms: Any = {"queue_norm": np.nan, "queue_norm_bound": np.nan}
    if schedule.num_rounds > 1:
        bounds = theory.queue_bounds(settings, schedule)
        norms = {"queue_norm": bounds.norm, "queue_norm_bound": bounds.norm_bound}
    return pd.DataFrame(
        {
            "round": count,
            "cumulative_delay_s": delay,
            "running_delay_s": delay / count,
            "running_keep_rate": np.cumsum(schedule.keep_rate.sum(axis=1)) / sent,
            "running_objective": np.cumsum(schedule.value) / count / weight,
            "delay_queue": schedule.delay_queue / weight,
            "fairness_queue": np.max(np.abs(schedule.fairness_queue), axis=1),
            **norms,
        }
    )


def _half_way_shares(schedule: Schedule) -> Any:
    """Shares of rounds taken part in, halfway to the end of all budgets.

    At the end everybody has taken part as often as the budget affords, whatever the
    policy: only before that does fairness show.
    """
    channels = schedule.client.shape[1]
    half = max(int(np.sum(schedule.affordable)) // (2 * channels), 1)
    early = schedule.client[:half]
    counts = np.bincount(
        early[early != schedule_lib.IDLE], minlength=len(schedule.rate)
    )
    return counts / half


def _clients(schedule: Schedule) -> pd.DataFrame:
    share = _half_way_shares(schedule)
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
    compared = table[~table["once"] & (table["rounds"] > 0)]
    last = table["seed"].map(compared.groupby("seed")["rounds"].min())
    wanted = table[["run"]].assign(round=last)
    merged = wanted.merge(rounds[["run", "round", "cumulative_delay_s"]], how="left")
    return merged["cumulative_delay_s"]


def equal_time_accuracy(table: pd.DataFrame, seen: pd.DataFrame) -> list[float]:
    """Accuracies at the largest simulated time that all series of a seed reach.

    Only series that are to be trained count; blank for seeds in which some are not yet.
    """
    compared = table[~table["once"].astype(bool) & table["to_train"].astype(bool)]
    ends = compared.groupby("seed")["trained_delay_s"].min()
    whole = compared.groupby("seed")["trained_delay_s"].apply(lambda s: s.notna().all())
    curves = dict(iter(seen.groupby("run")))
    return [
        run_measures.accuracy_at(curves[row.run], ends[row.seed])
        if row.run in curves and not row.once and whole[row.seed]
        else np.nan
        for row in table.itertuples()
    ]


def _thin(rounds: pd.DataFrame) -> pd.DataFrame:
    """At most so many rounds, the same for all runs, and the last one of each."""
    longest = rounds["round"].max() if len(rounds) else 1
    step = max(int(np.ceil(longest / _MOST_ROWS)), 1)
    last = rounds["round"] == rounds.groupby("run")["round"].transform("max")
    return rounds[(rounds["round"] % step == 0) | (rounds["round"] == 1) | last]
