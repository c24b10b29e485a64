"""Poisson batches on the host: rates, words, padded sizes, and what overflow costs."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsparfl_jax.errors import InputError

_LEAST_RATE = 2.0**-32  # batches are drawn by words of 32 bits


def sampling_rate(batch_size: ArrayLike, sizes: ArrayLike) -> NDArray[np.float64]:
    """Q = b / |D| of every client; refuses q > 1 (paper: section II, sample rate)."""
    sizes = np.asarray(sizes)
    rate = np.asarray(batch_size, np.float64) / sizes
    if not np.all(rate > 0):
        raise InputError("the batch size must be positive.")
    if np.any(rate > 1):
        raise InputError(
            f"the batch size {np.max(batch_size):g} exceeds the smallest client's "
            f"{int(np.min(sizes))} examples (sampling rate above 1): lower the batch "
            "size."
        )
    if np.any(rate < _LEAST_RATE):
        raise InputError(
            f"the batch size {np.min(batch_size):g} is too small for a client's "
            f"{int(np.max(sizes))} examples (sampling rate below 2^-32): raise the "
            "batch size."
        )
    return rate


def probability_word(probability: ArrayLike) -> NDArray[np.uint32]:
    """Largest uniform 32-bit word that counts as a success.

    Rounded down: an example is never more likely to be drawn than the accountant
    assumes, and by less than 2^-32 less likely. A probability of 1 always succeeds.
    """
    scaled = np.floor(np.asarray(probability, np.float64) * 2.0**32)
    if np.any(scaled < 1) or np.any(scaled > 2.0**32):
        raise InputError("a probability must lie between 2^-32 and 1.")
    return (scaled - 1.0).astype(np.uint32)


def overflow_probability(
    size: ArrayLike, rate: ArrayLike, capacity: int
) -> NDArray[np.float64]:
    """P(Binomial(size, rate) > capacity): one step cuts its batch off.

    Over k steps the cut mechanism differs from the exact one with probability at most k
    times this, which is what an accountant adds to delta.
    """
    return np.asarray(_binomial().sf(capacity, size, rate), np.float64)


def batch_capacity(sizes: ArrayLike, rates: ArrayLike, probability: float) -> int:
    """Smallest padded batch that overflows in one step with at most `probability`.

    Taken over all clients given; never more than the largest client has.
    """
    sizes = np.asarray(sizes)
    if not 0 < probability < 1:
        raise InputError("the overflow probability must lie strictly between 0 and 1.")
    needed = int(np.max(_binomial().isf(probability, sizes, np.asarray(rates))))
    while np.max(overflow_probability(sizes, rates, needed)) > probability:
        needed += 1
    return max(1, min(needed, int(np.max(sizes))))


def padded_sizes(
    size: int, rate: float, capacity: int, choices: int
) -> tuple[int, ...]:
    """Ascending padded batch sizes that waste least, the last one being `capacity`.

    A batch of n examples runs in the smallest size >= n; the sizes minimise the
    expected padded size under Binomial(size, rate), by dynamic programming over all
    sizes, or over some 128 of them.
    """
    every = math.ceil(capacity / 128)
    grid = sorted({min(k + every - 1, capacity) for k in range(1, capacity + 1, every)})
    below = _binomial().cdf(grid, size, rate)  # P(n <= grid[j])
    # best[j]: least expected padded size of batches n <= grid[j], and the sizes used.
    best: list[tuple[float, tuple[int, ...]]] = [
        (g * below[j], (g,)) for j, g in enumerate(grid)
    ]
    for _ in range(min(choices, len(grid)) - 1):  # more would all be the same
        best = [
            min(
                [best[j]]
                + [
                    (best[i][0] + g * (below[j] - below[i]), (*best[i][1], g))
                    for i in range(j)
                ]
            )
            for j, g in enumerate(grid)
        ]
    return best[-1][1]


def _binomial() -> Any:
    from scipy import stats  # takes half a second to load: not before it is needed

    return stats.binom
