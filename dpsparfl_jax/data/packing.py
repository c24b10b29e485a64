"""From index lists per client to fixed-shape tables."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
