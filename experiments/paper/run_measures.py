"""What the protocol measures of a run: of its schedule, and of its evaluations.

Evaluations are a frame of rows in order, with the columns `round`, `accuracy` and
`cumulative_delay_s`.
"""

import math

import numpy as np
import pandas as pd

from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.planning import theory
from dpsparfl_jax.planning.schedule import Schedule

from . import protocol

_SETTLED = 5  # evaluations, of ten or more
_TUNED = 3  # evaluations by which clip norms are chosen


def last_full_round(schedule: Schedule) -> int:
    """The last round that begins with a live client for every channel; 0 if none."""
    channels = schedule.client.shape[1]
    full = [
        np.sum(state.before < schedule.affordable) >= channels
        for state in schedule.client_states()
    ]
    return int(np.flatnonzero(full)[-1]) + 1 if any(full) else 0


def settled_accuracy(evaluations: pd.DataFrame, last_round: int) -> float:
    """Mean accuracy of the last evaluations up to a round; blank if there are none.

    The last five of ten or more; of fewer, half of them, rounded up.
    """
    seen = evaluations.loc[evaluations["round"] <= last_round, "accuracy"]
    count = _SETTLED if len(seen) >= 2 * _SETTLED else math.ceil(len(seen) / 2)
    return float(seen.iloc[len(seen) - count :].mean())


def tuning_accuracy(evaluations: pd.DataFrame) -> float:
    """Mean accuracy of the last three evaluations, by which clip norms are chosen."""
    return float(evaluations["accuracy"].iloc[-_TUNED:].mean())


def reach_s(evaluations: pd.DataFrame, level: float) -> float:
    """Simulated time until the mean of two evaluations in a row first reaches a level.

    It is the time of the second of the two; blank if the level is never reached.
    """
    means = evaluations["accuracy"].rolling(2).mean().to_numpy()
    reached = np.flatnonzero(means >= level)
    if not reached.size:
        return math.nan
    return float(evaluations["cumulative_delay_s"].iloc[reached[0]])


def level_of(settings: RunConfig) -> float:
    """The accuracy until which simulated time is told, in a run's setting."""
    partition, images = settings.data.partition, settings.data.name
    return protocol.REACHED.get(partition, protocol.REACHED.get(images, math.nan))


def accuracy_at(evaluations: pd.DataFrame, time_s: float) -> float:
    """Accuracy at a simulated time, linear between evaluations; blank before them."""
    times, seen = evaluations["cumulative_delay_s"], evaluations["accuracy"]
    return float(np.interp(time_s, times, seen, left=np.nan, right=np.nan))


def queue_ratio(settings: RunConfig, schedule: Schedule) -> float | None:
    """The norm of all queues over Theorem 3's bound of it, at its largest.

    Of rounds before which queues can have grown, by policies that the theorem is about;
    None for others.
    """
    if settings.schedule.policy != "dp_sparfl" or schedule.num_rounds < 2:
        return None
    bounds = theory.queue_bounds(settings, schedule)
    return float(np.max(bounds.norm[1:] / bounds.norm_bound[1:]))
