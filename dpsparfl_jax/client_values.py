"""Settings that may differ from client to client: one number, a list, a range, a file.

    1e7                 the same for every client
    1e7,2e7,5e6         one for each client
    1e6..1e8            drawn for each client, uniformly, from a stream of the seed
    cycles.npy          read from a file (.npy, or numbers as text): one for each client

A setting that belongs to a client and a channel may also be drawn, or read, for every
pair. Files are read when settings are made, which then hold their numbers.
"""

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax import rng
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.options import RANGE, Section

Array = NDArray[np.float64]


def client_values(
    section: Section, name: str, seed: int, num_clients: int, num_channels: int = 0
) -> Array:
    """A setting's number for every client [U], or for every pair [U, N].

    Args:
        section: where the setting is.
        name: its name there.
        seed: of the run; ranges are drawn from it.
        num_clients: U.
        num_channels: N for a setting that belongs to pairs; 0 for one of clients.

    Returns:
        Numbers that keep to the setting's rule, as settings made sure; refuses a list
        or table of another length.
    """
    value = getattr(section, name)
    shape = (num_clients, num_channels) if num_channels else (num_clients,)
    if isinstance(value, str):
        numbers = _draw(value, name, seed, shape)
    else:
        numbers = np.asarray(value, np.float64)
    if numbers.shape == (num_clients,) and num_channels:
        numbers = numbers[:, None]
    fitting = [(), shape, (num_clients, 1)] if num_channels else [(), shape]
    if numbers.shape not in fitting:
        wanted = f"{num_clients} clients"
        if num_channels:
            wanted += f" (or {num_clients} x {num_channels} pairs)"
        got = " x ".join(map(str, numbers.shape))
        raise InputError(f"{name} has {got} numbers for {wanted}: give one for each.")
    return np.broadcast_to(numbers, shape).astype(np.float64)


def _draw(text: str, name: str, seed: int, shape: tuple[int, ...]) -> Array:
    """Uniform numbers of a range, for each client or pair."""
    bounds = RANGE.fullmatch(text)
    assert bounds is not None  # settings refuse other texts
    low, high = map(float, bounds.groups())
    return rng.host_stream(seed, f"values of {name}").uniform(low, high, shape)
