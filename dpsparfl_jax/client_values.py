"""Settings that may differ from client to client: one number, a list, a range, a file.

    1e7                 the same for every client
    1e7,2e7,5e6         one for each client
    1e6..1e8            drawn for each client, uniformly, from a stream of the seed
    cycles.npy          read from a file (.npy, or numbers as text): one for each client

A setting that belongs to a client and a channel may also be drawn, or read, for every
pair.
"""

import dataclasses
import pathlib
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax import rng
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.options import Section, breaks_rule, describe_rule

Array = NDArray[np.float64]
_RANGE = re.compile(r"(.+)\.\.(.+)")


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
        Numbers that keep to the setting's rule; refuses others, and a list or file of
        another length.
    """
    value = getattr(section, name)
    shape = (num_clients, num_channels) if num_channels else (num_clients,)
    numbers = _read(value, name, seed, shape)
    if numbers.shape == (num_clients,) and num_channels:
        numbers = numbers[:, None]
    if numbers.ndim and numbers.shape not in (shape, (num_clients, 1)):
        wanted = f"{num_clients} clients"
        if num_channels:
            wanted += f" (or {num_clients} x {num_channels} pairs)"
        got = " x ".join(map(str, numbers.shape))
        raise InputError(f"{name} has {got} numbers for {wanted}: give one for each.")
    field = next(f for f in dataclasses.fields(section) if f.name == name)
    for number in np.unique(numbers):
        if breaks_rule(field, float(number)):
            rule = describe_rule(field) or "finite"
            raise InputError(f"{name} must be {rule}, but {value!r} holds {number!r}.")
    return np.broadcast_to(numbers, shape).astype(np.float64)


def _read(value: Any, name: str, seed: int, shape: tuple[int, ...]) -> Array:
    if not isinstance(value, str):
        return np.asarray(value, np.float64)
    if bounds := _RANGE.fullmatch(value):
        try:
            low, high = map(float, bounds.groups())
        except ValueError:
            return _from_file(value, name)  # a path may have dots too
        if low > high:
            raise InputError(f"{name}: the range {value} ends below its start.")
        return rng.host_stream(seed, f"values of {name}").uniform(low, high, shape)
    return _from_file(value, name)


def _from_file(text: str, name: str) -> Array:
    path = pathlib.Path(text).expanduser()
    try:
        if path.suffix == ".npy":
            return np.asarray(np.load(path, allow_pickle=False), np.float64)
        lines = path.read_text(encoding="utf-8").replace(",", " ")
        rows = [line.split() for line in lines.splitlines() if line.strip()]
        return np.squeeze(np.array([[float(n) for n in row] for row in rows]))
    except (OSError, ValueError) as reason:
        raise InputError(
            f"{name} is a number, numbers with commas, a range as in 1..2, or a file "
            f"of numbers; {text!r} is none of these ({reason})."
        ) from None
