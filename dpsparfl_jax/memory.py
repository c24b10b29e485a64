"""What is too large for this machine, said before it is tried; and freed memory.

Estimates are of the arrays that grow with the settings, and on the low side: what they
refuse cannot work, what they let pass may still be too much.
"""

import contextlib
import ctypes
import os
import pathlib

from dpsparfl_jax.errors import InputError

# Limits of a container; files that are not there, or hold no number, set none.
_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)
_CLIENT = 1000  # bytes: a client's mechanism, budget and lists
_PAIR = 8 * 10  # bytes: arrays of client and channel that a round is planned with


def total_bytes() -> float:
    """Memory of this machine, or as much of it as this process may have."""
    limits = []
    if hasattr(os, "sysconf"):  # not on every system
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for name in _LIMITS:
        try:
            limits.append(int(pathlib.Path(name).read_text()))
        except (OSError, ValueError):
            continue
    return min((limit for limit in limits if limit > 0), default=float("inf"))


def require(needed: float, what: str, advice: str) -> None:
    """Refuses `what` if it needs more bytes than there are."""
    total = total_bytes()
    if needed > total:
        raise InputError(
            f"{what} takes about {_gigabytes(needed)} of memory, but there are "
            f"{_gigabytes(total)}: {advice}."
        )


def require_cell(num_clients: int, num_channels: int) -> None:
    """Refuses more clients and channels than can be planned."""
    require(
        num_clients * _CLIENT + num_clients * num_channels * _PAIR,
        f"planning {num_clients:,} clients on {num_channels:,} channels",
        "lower data.num_clients or wireless.num_channels",
    )


def give_back() -> None:
    """Gives freed memory back to the system, where the C library can.

    Compiling a program of 20 million parameters leaves 270 MB that nobody uses.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:,.0f} GB" if count >= 1e10 else f"{count / 1e9:,.1f} GB"
