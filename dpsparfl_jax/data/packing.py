"""From index lists per client to fixed-shape tables, and sizes of Poisson batches."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.types import ClientTables


def pack_clients(runs: Sequence[Sequence[ArrayLike]], num_images: int) -> ClientTables:
    """Tables `[R, U, M]` of image numbers from `runs[r][i]`, the images of client i.

    All runs have the same number of clients; shorter lists are padded with their own
    first entry (never sampled, but a valid address).
    """
    lists = [[np.asarray(client) for client in run] for run in runs]
    if not lists or len({len(run) for run in lists}) != 1 or not lists[0]:
        raise InputError("every run needs the same number (at least one) of clients.")
    for r, run in enumerate(lists):
        for i, client in enumerate(run):
            _check_client(client, i, r, num_images)
        owned = np.concatenate(run)
        if np.unique(owned).size != owned.size:
            raise InputError(
                f"run {r} lists an image twice: budgets are per client, so each image "
                "belongs to one client, once."
            )
    longest = max(client.size for run in lists for client in run)
    indices = np.stack(
        [np.stack([_pad(client, longest) for client in run]) for run in lists]
    )
    sizes = np.array([[client.size for client in run] for run in lists], np.int32)
    return ClientTables(indices.astype(np.int32), sizes)


def _check_client(client: NDArray[Any], number: int, run: int, num_images: int) -> None:
    name = f"client {number} of run {run}"
    if client.ndim != 1 or client.size == 0:
        raise InputError(f"{name} has no data: give it at least one example.")
    if not np.issubdtype(client.dtype, np.integer):
        raise InputError(f"{name} lists {client.dtype} numbers: give whole ones.")
    if client.min() < 0 or client.max() >= num_images:
        raise InputError(
            f"{name} refers to images {client.min()} to {client.max()}, but the set "
            f"has 0 to {num_images - 1}."
        )


def _pad(client: NDArray[Any], length: int) -> NDArray[Any]:
    return np.concatenate([client, np.repeat(client[:1], length - client.size)])


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
    return np.asarray(stats.binom.sf(capacity, size, rate), np.float64)


def batch_capacity(sizes: ArrayLike, rates: ArrayLike, probability: float) -> int:
    """Smallest padded batch that overflows in one step with at most `probability`.

    Taken over all clients given; never more than the largest client has.
    """
    sizes = np.asarray(sizes)
    if not 0 < probability < 1:
        raise InputError("the overflow probability must lie strictly between 0 and 1.")
    needed = int(np.max(stats.binom.isf(probability, sizes, np.asarray(rates))))
    while np.max(overflow_probability(sizes, rates, needed)) > probability:
        needed += 1
    return max(1, min(needed, int(np.max(sizes))))


def padded_sizes(
    size: int, rate: float, capacity: int, choices: int
) -> tuple[int, ...]:
    """Ascending padded batch sizes that waste least, the last one being `capacity`.

    A batch of n examples runs in the smallest size >= n; the sizes minimise the
    expected padded size under Binomial(size, rate), by dynamic programming over even
    sizes.
    """
    grid = sorted({min(2 * k, capacity) for k in range(1, math.ceil(capacity / 2) + 1)})
    below = stats.binom.cdf(grid, size, rate)  # P(n <= grid[j])
    # best[j]: least expected padded size of batches n <= grid[j], and the sizes used.
    best: list[tuple[float, tuple[int, ...]]] = [
        (g * below[j], (g,)) for j, g in enumerate(grid)
    ]
    for _ in range(choices - 1):
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
