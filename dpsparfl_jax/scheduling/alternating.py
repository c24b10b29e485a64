"""The paper's successive procedure: keep rates, powers and channels in turn.

Kept as a faithful baseline, corrected where it is wrong (BUILD_NOTES "successive
procedure"). With powers fixed the best keep rates solve the paper's N subproblems at
once (`keep_rate_step`); powers are then the largest feasible ones; channels come from a
matching over edges no slower than the present round. The loop need not descend, so the
best allocation it visited is returned.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.registry import SOLVERS
from dpsparfl_jax.scheduling import matching
from dpsparfl_jax.scheduling.edges import fastest
from dpsparfl_jax.scheduling.problem import (
    Allocation,
    RoundProblem,
    check_problem,
    empty_allocation,
    reward_of,
    value_of,
)
from dpsparfl_jax.units import shannon_rate

Array = NDArray[np.float64]
_TOLERANCE, _ITERATIONS = 1e-6, 30  # relative to lambda; turns at most


def keep_rate_step(
    problem: RoundProblem, client: NDArray[np.intp], rate: Array, cap: Array
) -> Array:
    """Best keep rates [K] at fixed rates [K] bit/s, each within [keep_min, cap].

    For a deadline d client i keeps s_i(d) = min(cap, (R_i (d - c_i) - n0) / n1); the
    value is convex in d, with knots where a client reaches its cap, and its slope
        q - sum over clients below their cap of r_i (1 - k_i s_i(d)) R_i / n1
    is linear between knots: the best d is the earliest possible one, a knot, or the
    zero of such a line (never, for k = 0). The paper's N subproblems (one a client that
    is slowest) have the same solution.
    Paper: Theorem 2.  Departs: BUILD_NOTES "successive procedure".
    """
    base, curvature = problem.base_delay_s[client], problem.curvature[client]
    n0, n1 = problem.bits_fixed, problem.bits_per_rate
    gain = problem.reward[client] * rate / n1

    def keep_at(deadline: float) -> Array:
        return (rate * (deadline - base) - n0) / n1

    deadline = np.max(base + (n0 + n1 * problem.keep_min) / rate)
    full = base + (n0 + n1 * cap) / rate
    for knot in np.sort(full):
        below = full > deadline
        worth = gain * (1 - curvature * keep_at(deadline)) * below
        slope = problem.delay_price - np.sum(worth)
        if slope >= 0:
            break
        if knot > deadline:
            bend = np.sum(gain * curvature * rate / n1 * below)
            reach = -slope / bend if bend > 0 else np.inf
            deadline = min(knot, deadline + reach)
    return np.clip(keep_at(min(deadline, problem.latest_s)), problem.keep_min, cap)


class _State(NamedTuple):
    keep: Array  # [U]
    power: Array  # [U, N]
    delay: Array  # [U, N]; inf where the payload cannot be sent


def _power_step(problem: RoundProblem, keep: Array) -> _State:
    """Largest feasible power of every edge at every client's keep rate."""
    bits = (problem.bits_fixed + problem.bits_per_rate * keep)[:, None]
    power, airtime = fastest(problem, bits)
    delay = problem.base_delay_s[:, None] + airtime
    return _State(keep, power, np.where(delay <= problem.latest_s, delay, np.inf))


def _costs(problem: RoundProblem, keep: Array) -> Array:
    everybody = np.arange(problem.num_clients)
    each = problem.weight - reward_of(problem, keep, everybody)
    return np.repeat(each[:, None], problem.num_channels, axis=1)


def _value(problem: RoundProblem, state: _State, match: matching.Matching) -> float:
    """V of a matching with the state's keep rates; inf if somebody cannot send."""
    delay = state.delay[match.client, match.channel]
    if not np.all(np.isfinite(delay)):
        return np.inf
    return value_of(problem, match.client, state.keep[match.client], delay)


def _channel_step(
    problem: RoundProblem,
    state: _State,
    match: matching.Matching,
    size: int,
    strict: bool,
) -> matching.Matching:
    """Matching over edges within the present delay, until the value stops falling.

    Not strict, this is the paper's, which stalls after one step; strictly faster edges
    only, it goes on to ever faster matchings and keeps the best: exact at fixed powers.
    """
    cost = _costs(problem, state.keep)
    if problem.delay_price == 0:
        return matching.cheapest(cost, np.isfinite(state.delay))
    best, least = match, _value(problem, state, match)
    limit = _slowest(state, match)
    while True:
        allowed = state.delay < limit if strict else state.delay <= limit
        candidate = matching.cheapest(cost, allowed)
        if len(candidate.client) < size:
            return best
        value = _value(problem, state, candidate)
        if value < least:
            best, least = candidate, value
        elif not strict:
            return best
        limit = _slowest(state, candidate)


def _slowest(state: _State, match: matching.Matching) -> float:
    return float(np.max(state.delay[match.client, match.channel]))


@SOLVERS.register("paper")
def solve_paper(
    problem: RoundProblem, *, strict: bool = False, start_full: bool = True
) -> Allocation:
    """The successive procedure, from keep rate 1 (or the least one) for everybody.

    If fewer clients can send in full than at the least keep rate, it starts from the
    least one, so that as many take part as in the other solvers.
    """
    check_problem(problem)
    least = np.full(problem.num_clients, problem.keep_min)
    low_state = _power_step(problem, least)
    size = matching.largest_size(np.isfinite(low_state.delay))
    if size == 0:
        return empty_allocation()
    state = _power_step(problem, problem.keep_max) if start_full else low_state
    if matching.largest_size(np.isfinite(state.delay)) < size:
        state = low_state
    match = matching.cheapest(_costs(problem, state.keep), np.isfinite(state.delay))
    best, best_state, least_value = match, state, _value(problem, state, match)
    previous, rounds = least_value, 0
    enough = _TOLERANCE * float(np.max(problem.reward)) * size
    while rounds < _ITERATIONS:
        rounds += 1
        state = _rates_and_powers(problem, state, match)
        if _value(problem, state, match) < least_value:
            best, best_state = match, state
            least_value = _value(problem, state, match)
        if matching.largest_size(np.isfinite(state.delay)) < size:
            break
        if np.isfinite(_slowest(state, match)):
            match = _channel_step(problem, state, match, size, strict)
        else:  # C6 was left out of the keep rates: somebody cannot send any more
            match = matching.cheapest(
                _costs(problem, state.keep), np.isfinite(state.delay)
            )
        value = _value(problem, state, match)
        if value < least_value:
            best, best_state, least_value = match, state, value
        if previous - value < enough:
            break
        previous = value
    return _allocation(problem, best_state, best, least_value, rounds)


def _rates_and_powers(
    problem: RoundProblem, state: _State, match: matching.Matching
) -> _State:
    """Theorem 2's keep rates for the selected at their powers, then new powers."""
    power = state.power[match.client, match.channel]
    snr = problem.snr_per_w[match.client, match.channel]
    rate = shannon_rate(problem.bandwidth_hz, power * snr)
    keep = state.keep.copy()
    keep[match.client] = keep_rate_step(
        problem, match.client, rate, problem.keep_max[match.client]
    )
    return _power_step(problem, keep)


def _allocation(
    problem: RoundProblem,
    state: _State,
    match: matching.Matching,
    value: float,
    nodes: int,
) -> Allocation:
    order = np.argsort(match.channel)
    client, channel = match.client[order], match.channel[order]
    return Allocation(
        client,
        channel,
        state.keep[client],
        state.power[client, channel],
        state.delay[client, channel],
        value,
        -np.inf,
        nodes,
    )


@SOLVERS.register("paper_strict")
def solve_paper_strict(problem: RoundProblem) -> Allocation:
    """The paper's procedure with strict pruning of channels."""
    return solve_paper(problem, strict=True)


@SOLVERS.register("paper_low")
def solve_paper_low(problem: RoundProblem) -> Allocation:
    """The paper's procedure started from the least keep rates."""
    return solve_paper(problem, start_full=False)
