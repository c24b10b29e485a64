"""From index lists per client to one list for each run, and its lengths."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.types import ClientTables

_SHORTER = 4  # times: tables of nearly the same length would save little
_MOST_LENGTHS = 5  # each is compiled
_SHORT = 256  # drawing for fewer places would save nothing


def pack_clients(runs: Sequence[Sequence[ArrayLike]], num_images: int) -> ClientTables:
    """Tables of image numbers from `runs[r][i]`, the images of client i of run r.

    All runs have the same number of clients. They may own differently many images.
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
    sizes = np.array([[client.size for client in run] for run in lists], np.int32)
    ends = np.cumsum(sizes, axis=1, dtype=np.int64)
    rows = np.zeros((len(lists), int(ends[:, -1].max())), np.int32)
    for own, run in zip(rows, lists, strict=True):
        joined = np.concatenate(run)
        own[: joined.size] = joined
    return ClientTables(rows, (ends - sizes).astype(np.int32), sizes)


def table_lengths(sizes: ArrayLike) -> tuple[int, ...]:
    """Lengths of tables in which clients draw their batches, ascending.

    The longest holds every client. Where some own much less, shorter ones spare them
    drawing for places that they do not have.
    """
    ordered = np.sort(np.ravel(sizes))
    lengths = [int(ordered[-1])]
    while len(lengths) < _MOST_LENGTHS and lengths[-1] > _SHORT:
        smaller = ordered[ordered <= lengths[-1] // _SHORTER]
        if not smaller.size:
            break
        lengths.append(int(smaller[-1]))
    return tuple(reversed(lengths))


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
