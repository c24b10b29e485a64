"""Virtual queues: what a round owes to fairness and to the delay target.

A decision uses the queues before it; they are updated with what it did.
Paper: section IV.  Departs: BUILD_NOTES "fairness queue", "delay queue".
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.config import ScheduleConfig

Array = NDArray[np.float64]


class Queues(NamedTuple):
    """The state of a run's scheduler."""

    fairness: Array  # [U] participations too many (or too few, for "c7")
    delay: float  # delay too much, in its unit


def delay_unit_s(settings: ScheduleConfig) -> float:
    """Seconds in one unit of the delay queue."""
    return settings.delay_target_s if settings.delay_unit == "target" else 1.0


def first_queues(num_clients: int) -> Queues:
    """Empty queues."""
    return Queues(np.zeros(num_clients), 0.0)


def selection_weights(settings: ScheduleConfig, queues: Queues) -> Array:
    """Cost w [U] of selecting each client."""
    return -queues.fairness if settings.fairness == "c7" else queues.fairness


def delay_price(settings: ScheduleConfig, queues: Queues) -> float:
    """Cost of a second of round delay."""
    return queues.delay / delay_unit_s(settings)


def update(
    settings: ScheduleConfig,
    queues: Queues,
    *,
    selected: NDArray[np.bool_],
    delay_s: float,
    rates: Array,
) -> Queues:
    """Queues after a round in which `selected` [U] took part in `delay_s` seconds.

    `rates` are the participation rates beta [U].
    """
    fairness = next_fairness(settings.fairness, queues.fairness, selected, rates)
    late = (delay_s - settings.delay_target_s) / delay_unit_s(settings)
    return Queues(fairness, max(queues.delay + late, 0.0))


def next_fairness(
    rule: str, fairness: Array, selected: NDArray[np.bool_], rates: Array
) -> Array:
    """Fairness queues [U] after a round; `rule` is `schedule.fairness`."""
    surplus = selected - rates
    if rule == "signed":
        return fairness + surplus
    if rule == "paper":
        return np.maximum(fairness + surplus, 0.0)
    return np.maximum(fairness - surplus, 0.0)
