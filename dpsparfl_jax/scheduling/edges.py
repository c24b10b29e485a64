"""One client on one channel: power, airtime, and the keep rate a deadline allows.

With airtime t and energy E, constant power min(P_max, E / t) sends most, so
    bits(t) = B t log2(1 + snr min(P_max, E / t)),
linear up to t = E / P_max and strictly concave after it, at most B snr E / ln 2.
Hence the keep rate at a deadline has a closed form, is concave and increases up to its
cap; only the airtime of a given payload needs a root.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.scheduling import matching
from dpsparfl_jax.scheduling.problem import RoundProblem
from dpsparfl_jax.units import shannon_rate

Array = NDArray[np.float64]
LN2 = np.log(2.0)
_SQRT2 = np.sqrt(2.0)
_BARRY = (0.3361, -0.0042, -0.0201)  # of the approximation of Lambert's W


class Edges(NamedTuple):
    """Per edge [U, N], what does not depend on the deadline."""

    energy_j: Array  # [U, 1] left for sending, at least 0
    snr_per_w: Array
    full_rate: Array  # bit/s at the largest power
    knee_s: Array  # [U, 1] airtime from which energy limits the power
    first_s: Array  # e: earliest deadline at which keep_min is sent; inf if never
    last_s: Array | None  # f: deadline from which keep_max is sent; None: ask for it


def make_edges(problem: RoundProblem) -> Edges:
    """Rates and deadlines of every edge."""
    energy = np.maximum(problem.energy_j, 0.0)[:, None]
    full = shannon_rate(problem.bandwidth_hz, problem.max_power_w * problem.snr_per_w)
    low = problem.bits_fixed + problem.bits_per_rate * problem.keep_min
    base, last = problem.base_delay_s[:, None], None
    first = base + _fastest(problem, low, energy, problem.snr_per_w, full)[1]
    if (
        full.size < matching.SMALL
    ):  # all at once is quicker than some of them, again and again
        high = problem.bits_fixed + problem.bits_per_rate * problem.keep_max[:, None]
        last = base + _fastest(problem, high, energy, problem.snr_per_w, full)[1]
    return Edges(
        energy,
        problem.snr_per_w,
        full,
        energy / problem.max_power_w,
        np.where(first <= problem.latest_s, first, np.inf),
        last,
    )


def take(edges: Edges, rows: NDArray[np.intp]) -> Edges:
    """The edges of some clients."""
    return Edges(
        edges.energy_j[rows],
        edges.snr_per_w[rows],
        edges.full_rate[rows],
        edges.knee_s[rows],
        edges.first_s[rows],
        None if edges.last_s is None else edges.last_s[rows],
    )


def possible_edges(problem: RoundProblem) -> NDArray[np.bool_]:
    """[U, N] whether an edge can send the least payload by the latest deadline."""
    low = problem.bits_fixed + problem.bits_per_rate * problem.keep_min
    energy, snr = problem.energy_j[:, None], problem.snr_per_w
    if np.isinf(problem.latest_s):  # what energy carries, however slowly
        return problem.bandwidth_hz * snr * energy / LN2 > low
    time = problem.latest_s - problem.base_delay_s[:, None]
    slow = np.where(time > 0, time, 1.0)
    power = np.minimum(problem.max_power_w, np.maximum(energy, 0.0) / slow)
    return (time > 0) & (slow * shannon_rate(problem.bandwidth_hz, power * snr) > low)


def fastest(problem: RoundProblem, bits: Array | float) -> tuple[Array, Array]:
    """Largest feasible power of every edge [U, N] for its payload, and its airtime.

    `bits` is one number or [U, 1]; 0 W and infinite seconds where it cannot be sent.
    """
    energy = np.maximum(problem.energy_j, 0.0)[:, None]
    full = shannon_rate(problem.bandwidth_hz, problem.max_power_w * problem.snr_per_w)
    return _fastest(problem, bits, energy, problem.snr_per_w, full)


def last_deadline(
    problem: RoundProblem,
    edges: Edges,
    client: NDArray[np.intp],
    channel: NDArray[np.intp],
) -> Array:
    """Deadlines f [K] from which these edges send keep_max; inf if never."""
    if edges.last_s is not None:
        return edges.last_s[client, channel]
    bits = problem.bits_fixed + problem.bits_per_rate * problem.keep_max[client]
    energy, snr = edges.energy_j[client, 0], edges.snr_per_w[client, channel]
    _, airtime = _fastest(problem, bits, energy, snr, edges.full_rate[client, channel])
    return problem.base_delay_s[client] + airtime


def _fastest(
    problem: RoundProblem,
    bits: Array | float,
    energy_j: Array,
    snr_per_w: Array,
    full_rate: Array,
) -> tuple[Array, Array]:
    power = largest_power(
        bits,
        energy_j,
        snr_per_w,
        bandwidth_hz=problem.bandwidth_hz,
        max_power_w=problem.max_power_w,
        full_rate=full_rate,
    )
    rate = shannon_rate(problem.bandwidth_hz, power * snr_per_w)
    with np.errstate(divide="ignore"):
        return power, np.where(power > 0, bits / rate, np.inf)


def largest_power(
    bits: Array | float,
    energy_j: Array,
    snr_per_w: Array,
    *,
    bandwidth_hz: float,
    max_power_w: float,
    full_rate: Array | None = None,
) -> Array:
    """min(P_max, P_th): P_th spends exactly the energy; 0 if no power can send.

    P bits / (B log2(1 + snr P)) = E has a positive root iff c = bits ln2 / (B snr E) is
    below 1:  P_th = x / snr  with  ln(1 + x) = c x. `full_rate` is the rate at P_max,
    where it is known already.
    Paper: the power step, C6.  Departs: BUILD_NOTES "power" (min, not max).
    """
    if full_rate is None:
        full_rate = shannon_rate(bandwidth_hz, max_power_w * snr_per_w)
    with np.errstate(divide="ignore", invalid="ignore"):
        c = bits * LN2 / (bandwidth_hz * snr_per_w * energy_j)
        # Enough energy for the largest power: no root is needed.
        full = max_power_w * bits <= energy_j * full_rate
        root = _growth(c) / snr_per_w
    possible = (c < 1) & (energy_j > 0) & (snr_per_w > 0)
    return np.where(possible, np.where(full, max_power_w, root), 0.0)


def _growth(c: Array) -> Array:
    """The x > 0 with ln(1 + x) = c x, for 0 < c < 1; nan elsewhere.

    1 + x = -W_{-1}(-c e^{-c}) / c. Lambert's W is approximated to 3e-4 (Barry, Li, Jeng
    2004, in t = c - ln c - 1), near c = 1 by the series at its branch point; Newton's
    steps on the equation itself do the rest.
    """
    inside = np.where((c > 0) & (c < 1), c, 0.5)
    t = inside - np.log(inside) - 1
    root = np.sqrt(t)
    bend = _BARRY[0] * root / _SQRT2 / (1 + _BARRY[1] * t * np.exp(_BARRY[2] * root))
    x = (1 + t + 2 / _BARRY[0] * (1 - 1 / (1 + bend))) / inside - 1
    u = 1 - inside
    x = np.where(u < 1e-3, 2 * u + 8 / 3 * u**2, x)
    for _ in range(3):
        slope = 1 / (1 + x) - inside
        x = x - (np.log1p(x) - inside * x) / slope
    return np.where((c > 0) & (c < 1), x, np.nan)


def energy_limited(
    problem: RoundProblem, snr_per_w: Array, energy_j: Array, time: Array
) -> tuple[Array, Array]:
    """Rate at the power that spends the energy in `time`, and d (time * rate) / d time.

    Any shapes that fit each other.
    """
    snr = snr_per_w * (energy_j / time)
    rate = shannon_rate(problem.bandwidth_hz, snr)
    return rate, rate - problem.bandwidth_hz / LN2 * (snr / (1 + snr))


def keep_rate_at(problem: RoundProblem, edges: Edges, deadline_s: float) -> Array:
    """Keep rate of every edge [U, N] at a deadline, capped at keep_max.

    Below the deadline `first_s` the formula goes on (below keep_min, also negative),
    still concave: a bound, not an allocation.
    """
    return keep_rate_and_slope(problem, edges, deadline_s)[0]


def keep_rate_and_slope(
    problem: RoundProblem, edges: Edges, deadline_s: float
) -> tuple[Array, Array]:
    """Keep rates [U, N] at a deadline and how fast they grow with it, per second."""
    time = deadline_s - problem.base_delay_s[:, None]
    limited = time > edges.knee_s  # [U, 1]: energy limits the power
    slow = np.where(limited, time, 1.0)
    rate, slope = energy_limited(problem, edges.snr_per_w, edges.energy_j, slow)
    bits = np.where(limited, slow * rate, edges.full_rate * time)
    keep = (bits - problem.bits_fixed) / problem.bits_per_rate
    growing = keep < problem.keep_max[:, None]
    slope = np.where(limited, slope, edges.full_rate) * growing
    keep = np.minimum(keep, problem.keep_max[:, None])
    return keep, slope / problem.bits_per_rate
