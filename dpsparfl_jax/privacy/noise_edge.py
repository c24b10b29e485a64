"""What it costs that generated noise ends at a finite number of standard deviations.

A coordinate's noise is z = R sin(angle) with a radius R that ends at L (`rng`). So its
density is the Gaussian one times w(z), the probability that the other leg of the radius
leaves room for z, over the constant c = P(R <= L). A record that shifts the noise by d
(in standard deviations, |d| <= 1 / sigma over all coordinates) moves the end of the
tail with it: near that end, outputs tell more than those of the Gaussian mechanism.

Let eta be the largest probability, over all shifts, that noise inside its disc of
radius L is moved out of it. The mechanism can then be split into a part that is
dominated by the exact subsampled Gaussian mechanism times 1/c, and a part of
probability at most q eta (record present) or q / (1 - q) eta (record absent) a step.
Over T steps:
    delta <= delta_exact(epsilon) / c^T + T min(1, q / (1 - q)) eta.
"""

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.rng import LARGEST_NOISE

_OUTSIDE = math.exp(-(LARGEST_NOISE**2) / 2)  # 1 - c of one coordinate
_SMALLEST_SHIFT = 1e-3


def cost(
    sampling_rate: float, noise_multiplier: float, coordinates: int, delta: float
) -> float:
    """What one step adds to delta, for a model with this many coordinates."""
    if coordinates == 0:
        return 0.0
    q = sampling_rate
    weight = q / (1 - q) if q < 0.5 else 1.0
    escaped = escape_bound(1 / noise_multiplier, coordinates)
    return min(1.0, weight * escaped + coordinates * _OUTSIDE * delta)


@functools.lru_cache(maxsize=4096)
def escape_bound(shift: float, coordinates: int) -> float:
    """Bound on eta: a shift of this length, however it is spread over coordinates.

    Escape probabilities h(d) of single coordinates add up. Shifts of at most d0 have
    h(d) <= d times a constant and add up to at most sqrt(coordinates) times the whole
    length (Cauchy-Schwarz); larger ones have h(d) <= d^2 times a constant, and squares
    add up to the square of the whole length. Any d0 gives a bound: the least is taken.
    """
    if shift >= LARGEST_NOISE - 1:  # Hardly any noise: no better bound is needed.
        return 1.0
    inside = 1 - coordinates * _OUTSIDE
    if inside <= 0.5:
        return 1.0
    spread = math.sqrt(coordinates) * shift
    if shift <= _SMALLEST_SHIFT:
        return float(min(1.0, spread * _slope_bound(shift) / inside))
    grid = np.geomspace(_SMALLEST_SHIFT, shift, 400)
    # h grows with d: on each cell it is at most what it is at the upper end.
    per_square = escape_probability(grid[1:]) / grid[:-1] ** 2
    from_here_on = np.append(np.maximum.accumulate(per_square[::-1])[::-1], 0.0)
    bounds = spread * _slope_bound(grid) + shift**2 * from_here_on
    return float(min(1.0, np.min(bounds) / inside))


def escape_probability(shift: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(|Z| <= L < |Z + d|) of a Gaussian Z in the plane, for shifts 0 < d < L.

    In polar coordinates: along each direction, radii from where the shifted disc's edge
    is met up to L.
    """
    nodes, weights = np.polynomial.legendre.leggauss(200)
    d = np.asarray(shift, np.float64)[..., None]
    last = np.arccos(-d / (2 * LARGEST_NOISE))  # The two edges cross here.
    angle = (nodes + 1) / 2 * last
    edge = -d * np.cos(angle) + np.sqrt(LARGEST_NOISE**2 - (d * np.sin(angle)) ** 2)
    mass = np.exp(-(edge**2) / 2) - _OUTSIDE
    return np.asarray(np.sum(mass * weights, axis=-1) * last[..., 0] / (2 * np.pi))


def _slope_bound(shift: Any) -> Any:
    """h(d) / d for all d up to `shift`: area of the crescent times its density."""
    nearest = LARGEST_NOISE - np.asarray(shift)
    return LARGEST_NOISE / np.pi * np.exp(-(nearest**2) / 2)
