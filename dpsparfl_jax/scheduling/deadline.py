"""The best deadline of a given assignment: a convex function of one number.

For a deadline d every client keeps what it can send by then, so
    phi(d) = sum_i [ w_i - r_i g_i(s_i(d)) ] + q d,  d >= max_i e_i,
is convex: its slope is negative until the optimum. Kinks sit where energy begins to
limit a client's power and where its keep rate reaches the cap.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from dpsparfl_jax.scheduling.edges import LN2, Edges, energy_limited, last_deadline
from dpsparfl_jax.scheduling.problem import RoundProblem

Array = NDArray[np.float64]
_NEWTON_STEPS, _NEWTON_ROUNDING = 60, 1e-15


class Chosen(NamedTuple):
    """The edges of an assignment: all [K]."""

    base_s: Array
    energy_j: Array
    snr_per_w: Array
    full_rate: Array
    knee_s: Array  # deadline at which energy begins to limit the power
    first_s: Array
    last_s: Array
    weight: Array
    reward: Array
    curvature: Array
    keep_max: Array


def choose(
    problem: RoundProblem,
    edges: Edges,
    client: NDArray[np.intp],
    channel: NDArray[np.intp],
) -> Chosen:
    """The parts of a problem that an assignment uses."""
    base = problem.base_delay_s[client]
    return Chosen(
        base,
        edges.energy_j[client, 0],
        edges.snr_per_w[client, channel],
        edges.full_rate[client, channel],
        base + edges.knee_s[client, 0],
        edges.first_s[client, channel],
        last_deadline(problem, edges, client, channel),
        problem.weight[client],
        problem.reward[client],
        problem.curvature[client],
        problem.keep_max[client],
    )


def keep_rates(problem: RoundProblem, chosen: Chosen, deadline: Array | float) -> Array:
    """Keep rates [.., K] at deadlines [.., 1]."""
    time = deadline - chosen.base_s
    limited = deadline > chosen.knee_s
    slow = np.where(limited, time, 1.0)
    slow_rate, _ = energy_limited(problem, chosen.snr_per_w, chosen.energy_j, slow)
    bits = np.where(limited, slow * slow_rate, chosen.full_rate * time)
    rate = (bits - problem.bits_fixed) / problem.bits_per_rate
    return np.minimum(rate, chosen.keep_max)


def slope(
    problem: RoundProblem, chosen: Chosen, deadline: Array | float, *, right: bool
) -> Array:
    """One-sided derivative of phi at deadlines [.., 1]: [..]."""
    after = np.greater_equal if right else np.greater
    limited = after(deadline, chosen.knee_s)
    slow = np.where(limited, np.maximum(deadline - chosen.base_s, 1e-300), 1.0)
    _, curved = energy_limited(problem, chosen.snr_per_w, chosen.energy_j, slow)
    speed = np.where(limited, curved, chosen.full_rate) / problem.bits_per_rate
    speed = np.where(after(deadline, chosen.last_s), 0.0, speed)
    if chosen.curvature.any():
        speed *= 1 - chosen.curvature * keep_rates(problem, chosen, deadline)
    return problem.delay_price - speed @ chosen.reward


def best_deadline(problem: RoundProblem, chosen: Chosen) -> float:
    """The deadline that minimises phi, the smallest if there are several."""
    return min(_stationary(problem, chosen), problem.latest_s)  # phi is convex


def _stationary(problem: RoundProblem, chosen: Chosen) -> float:
    """Where phi stops falling."""
    start = float(np.max(chosen.first_s))
    if slope(problem, chosen, start, right=True) >= 0:
        return start
    kinks = np.concatenate([chosen.knee_s, chosen.last_s])
    kinks = np.unique(kinks[(kinks > start) & np.isfinite(kinks)])
    rising = slope(problem, chosen, kinks[:, None], right=True) >= 0
    place = int(np.argmax(rising)) if rising.any() else len(kinks)
    low = kinks[place - 1] if place else start
    if place < len(kinks):
        high = float(kinks[place])
        if slope(problem, chosen, high, right=False) <= 0:
            return high
    else:
        high = low
        step = max(low - float(np.min(chosen.base_s)), 1.0)
        while slope(problem, chosen, high, right=True) < 0:
            high, step = high + step, 2 * step
    if slope(problem, chosen, low, right=True) >= 0:
        return float(low)
    if not chosen.curvature.any():
        return _smooth_zero(problem, chosen, float(low), high)
    return float(
        optimize.brentq(
            lambda d: slope(problem, chosen, d, right=True), low, high, xtol=1e-12
        )
    )


def _smooth_zero(
    problem: RoundProblem, chosen: Chosen, low: float, high: float
) -> float:
    """Where the slope is zero between two kinks, from the left of it.

    What another second is worth falls convexly there, so Newton's steps from the left
    never go too far, but for rounding.
    """
    growing = chosen.last_s > low
    curved = growing & (chosen.knee_s <= low)
    worth = chosen.reward / problem.bits_per_rate
    steady = np.sum((worth * chosen.full_rate)[growing & ~curved])
    price = problem.delay_price - steady
    worth = worth[curved] * problem.bandwidth_hz / LN2
    energy = (chosen.snr_per_w * chosen.energy_j)[curved]  # snr times airtime
    base, deadline = chosen.base_s[curved], low
    for _ in range(_NEWTON_STEPS):
        time = deadline - base
        snr = energy / time
        share = snr / (1 + snr)
        excess = worth @ (np.log1p(snr) - share) - price
        step = excess / (worth @ (share * share / time))
        if not step > _NEWTON_ROUNDING * deadline:
            break
        deadline += step
    return float(min(deadline, high))


def value_at(problem: RoundProblem, chosen: Chosen, deadline: float) -> float:
    """The value phi(d) of an assignment at a deadline."""
    keep = keep_rates(problem, chosen, deadline)
    gained = chosen.reward * (keep - chosen.curvature * keep**2 / 2)
    return float(np.sum(chosen.weight - gained) + problem.delay_price * deadline)
