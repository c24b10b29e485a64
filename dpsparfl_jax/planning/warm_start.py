"""Where the delay queue settles: the price of a second at which the target is met.

A run that starts with an empty delay queue spends its first rounds far above the delay
target, until the queue has grown. The price it grows to is found beforehand in a few
pilot rounds, which have the statistics of the run's rounds and draws of their own. They
go as planned: what a channel that is not known exactly adds is left to the queue.
"""

import functools
import math
from collections.abc import Callable
from typing import Protocol

import numpy as np

from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.scheduling import queues, sifting
from dpsparfl_jax.scheduling.base import Observation
from dpsparfl_jax.scheduling.joint import solve_descent
from dpsparfl_jax.scheduling.search import Reach, reach_of
from dpsparfl_jax.units import shannon_rate

_UPLOADS = 60  # of all pilot rounds together, at least
_TURNS = 1.2  # of every client, so that fairness shows
_MOST_ROUNDS = 24
_MOST_PAIRS = 20_000_000  # of clients and channels, in all pilot rounds together
_LEAST_ROUNDS = 2  # however many there are
_ACCURACY = 0.02  # of the mean delay
_TRIALS = 40  # prices at most
_DEAREST = 1e4  # times the guess: no second is worth it any more
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
    uploads = max(_UPLOADS, _TURNS * len(planner.rates))
    rounds = math.ceil(uploads / planner.settings.wireless.num_channels)
    rounds = at_most(
        min(rounds, _MOST_ROUNDS),
        len(planner.rates),
        planner.settings.wireless.num_channels,
    )
    observed = [planner.observe(t, pilot=True)[0] for t in range(rounds)]
    if not any(observation.client.size for observation in observed):
        return 0.0

    reach = [  # of crowds, only a part is ever looked at
        None if sifting.is_worthwhile(one.problem) else reach_of(one.problem)
        for one in observed
    ]

    @functools.cache
    def mean_delay(price: float) -> float:
        return _mean_delay(planner, observed, reach, price)

    target, guess = schedule.delay_target_s, _guess(observed)
    if mean_delay(guess) <= target and mean_delay(0.0) <= target:
        return 0.0
    return _solve(mean_delay, target, guess, _DEAREST * guess)


def at_most(rounds: int, num_clients: int, num_channels: int) -> int:
    """So many rounds, or fewer, where rounds are large: time and memory are bounded.

    A large round has many uploads, so that fewer of them tell as much.
    """
    fitting = max(_MOST_PAIRS // (num_clients * num_channels), _LEAST_ROUNDS)
    return min(rounds, fitting)


def _guess(observed: list[Observation]) -> float:
    """A second is worth what it sends at full power on an average edge."""
    worth = []
    for observation in observed:
        problem = observation.problem
        snr = problem.max_power_w * problem.snr_per_w
        sent = shannon_rate(problem.bandwidth_hz, snr) / problem.bits_per_rate
        worth.append(np.mean(sent) * np.sum(np.sort(problem.reward)[-snr.shape[1] :]))
    return float(np.mean(worth))


def _mean_delay(
    planner: Pilot,
    observed: list[Observation],
    reach: list[Reach | None],
    price: float,
) -> float:
    """Mean delay of the pilot rounds at a fixed price; fairness moves as in a run."""
    schedule = planner.settings.schedule
    now, delays = planner.queues._replace(delay=0.0), []
    for observation, known in zip(observed, reach, strict=True):
        weight = queues.selection_weights(schedule, now)[observation.client]
        problem = observation.problem._replace(weight=weight, delay_price=price)
        allocation = solve_descent(problem, schedule.delay_target_s, known)
        delays.append(float(np.max(allocation.delay_s, initial=0.0)))
        selected = np.zeros(len(now.fairness), bool)
        selected[observation.client[allocation.client]] = True
        now = queues.update(
            schedule, now, selected=selected, delay_s=delays[-1], rates=planner.rates
        )
    return float(np.mean(delays))


def _solve(
    mean_delay: Callable[[float], float], target: float, guess: float, dearest: float
) -> float:
    """A price whose mean delay is within `_ACCURACY` of the target.

    The delay falls (almost) as the price rises, roughly by a power of it: false
    position on logarithms, from a guess outwards, as far as `dearest`.
    """
    low, high, price = 0.0, np.inf, guess  # too low a price; one that is high enough
    for _ in range(_TRIALS):
        delay = mean_delay(price)
        if abs(delay - target) <= _ACCURACY * target:
            return price
        low, high = (price, high) if delay > target else (low, price)
        if low == dearest:  # out of reach: aim at about the shortest rounds there are
            return _solve(mean_delay, _REACHABLE * delay, guess, dearest)
        if low == 0 or np.isinf(high):
            price = min(4 * price, dearest) if low else price / 4
            continue
        if high / low < 1 + _ACCURACY:
            break
        above = np.log(mean_delay(low) / target)
        below = np.log(target / mean_delay(high))
        share = np.clip(above / (above + below), 0.1, 0.9)  # so that both ends move
        price = float(low * (high / low) ** share)
    return high
