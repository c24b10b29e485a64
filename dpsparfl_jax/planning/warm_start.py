"""Where the delay queue settles: the price of a second at which the target is met.

A run that starts with an empty delay queue spends its first rounds far above the delay
target, until the queue has grown. The price it grows to is found beforehand in a few
pilot rounds, which have the statistics of the run's rounds and draws of their own.
"""

import functools
from collections.abc import Callable
from typing import Protocol

import numpy as np

from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.scheduling import queues
from dpsparfl_jax.scheduling.base import Observation
from dpsparfl_jax.scheduling.joint import solve_descent

_PILOTS = 12  # rounds
_ACCURACY = 0.02  # of the mean delay
_TRIALS = 40  # prices at most
_REACHABLE = 1.01  # times the least possible delay, where the target is below it


class Pilot(Protocol):
    """What pilot rounds need of a planner."""

    settings: RunConfig
    queues: queues.Queues
    rates: np.ndarray

    def observe(self, round_index: int, *, pilot: bool) -> tuple[Observation, object]:
        """A round as the policy sees it, and what it costs."""


def equilibrium_price(planner: Pilot) -> float:
    """Price of a second at which pilot rounds take the delay target on average.

    0 if they meet it without a price: then everything that energy allows is kept. If
    no price meets the target, the one at which rounds are about as short as possible.
    """
    schedule = planner.settings.schedule
    observed = [planner.observe(t, pilot=True)[0] for t in range(_PILOTS)]
    if not any(observation.client.size for observation in observed):
        return 0.0

    @functools.cache
    def mean_delay(price: float) -> float:
        return _mean_delay(planner, observed, price)

    if mean_delay(0.0) <= schedule.delay_target_s:
        return 0.0
    # So dear that even lambda, all there is to gain, is not worth a second.
    dearest = schedule.tradeoff
    target = max(schedule.delay_target_s, _REACHABLE * mean_delay(dearest))
    return _solve(mean_delay, target, 1e-6 * schedule.tradeoff, dearest)


def _mean_delay(planner: Pilot, observed: list[Observation], price: float) -> float:
    """Mean delay of the pilot rounds at a fixed price; fairness moves as in a run."""
    schedule = planner.settings.schedule
    now, delays = planner.queues._replace(delay=0.0), []
    for observation in observed:
        weight = queues.selection_weights(schedule, now)[observation.client]
        problem = observation.problem._replace(weight=weight, delay_price=price)
        allocation = solve_descent(problem)
        delays.append(float(np.max(allocation.delay_s, initial=0.0)))
        selected = np.zeros(len(now.fairness), bool)
        selected[observation.client[allocation.client]] = True
        now = queues.update(
            schedule, now, selected=selected, delay_s=delays[-1], rates=planner.rates
        )
    return float(np.mean(delays))


def _solve(
    mean_delay: Callable[[float], float], target: float, low: float, high: float
) -> float:
    """The price in [low, high] whose mean delay is near the target, by bisection.

    The delay falls (almost) as the price rises; prices are halved on a log scale.
    """
    for _ in range(_TRIALS):
        middle = float(np.sqrt(low * high))
        delay = mean_delay(middle)
        if abs(delay - target) <= _ACCURACY * target:
            return middle
        low, high = (middle, high) if delay > target else (low, middle)
        if high / low < 1 + _ACCURACY:
            break
    return high
