"""Whether a decision can be carried out in the cell, said in plain sentences.

A policy of one's own may return anything. What no cell can do, or what would count a
client twice, is refused here rather than planned, charged and trained.
"""

import numpy as np

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.scheduling.problem import Allocation, RoundProblem
from dpsparfl_jax.units import shannon_rate

_ROUNDING = 1e-6  # relative: what differs by less is the same
_WHOLE = ("client", "channel")
_ARRAYS = (*_WHOLE, "keep_rate", "power_w", "delay_s")


def check_allocation(problem: RoundProblem, allocation: Allocation) -> None:
    """Refuses what cannot be carried out, in a sentence that goes on after "it".

    Args:
        problem: the round, as the policy saw it.
        allocation: what the policy returned.

    Raises:
        InputError: on the first thing that is wrong.
    """
    _check_arrays(allocation)
    if allocation.client.size == 0:
        return
    _check_places(problem, allocation)
    if not all(np.isfinite(getattr(allocation, name)).all() for name in _ARRAYS):
        bad = next(n for n in _ARRAYS if not np.isfinite(getattr(allocation, n)).all())
        raise InputError(f"its {bad} has entries that are nan or infinite.")
    _check_keep_rate(problem, allocation)
    _check_sending(problem, allocation)


def _check_arrays(allocation: Allocation) -> None:
    """One entry a used channel, whole numbers where rows and channels are meant."""
    for name in _ARRAYS:
        values = getattr(allocation, name)
        if not isinstance(values, np.ndarray) or values.ndim != 1:
            raise InputError(
                f"its {name} must be a NumPy array with one entry for every channel "
                f"that is used, not {_shown(values)}."
            )
        wanted = np.integer if name in _WHOLE else np.floating
        if not np.issubdtype(values.dtype, wanted):
            kind = "whole numbers" if name in _WHOLE else "floats"
            raise InputError(f"its {name} must hold {kind}, not {values.dtype}.")
    lengths = {name: len(getattr(allocation, name)) for name in _ARRAYS}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{length} in {name}" for name, length in lengths.items())
        raise InputError(f"its arrays must have one entry a used channel, not {told}.")
    for name in ("value", "lower_bound"):
        if not isinstance(getattr(allocation, name), float | int | np.floating):
            raise InputError(
                f"its {name} must be a number, nan or -inf if it is unknown."
            )


def _shown(values: object) -> str:
    if isinstance(values, np.ndarray):
        return f"one of shape {values.shape}"
    return f"a value of type {type(values).__name__}"


def _check_places(problem: RoundProblem, allocation: Allocation) -> None:
    """Rows and channels that are there, each of them once."""
    for name, count, what in (
        ("client", problem.num_clients, "rows of the problem, not client numbers"),
        ("channel", problem.num_channels, "channels of the cell"),
    ):
        places = getattr(allocation, name)
        if places.min() < 0 or places.max() >= count:
            wrong = places[(places < 0) | (places >= count)][0]
            raise InputError(
                f"its {name} has {wrong}, but entries are {what}: 0 to {count - 1}."
            )
        if len(set(places.tolist())) < len(places):
            twice = np.bincount(places).argmax()
            raise InputError(f"its {name} has {twice} twice: each sends once a round.")


def _check_keep_rate(problem: RoundProblem, allocation: Allocation) -> None:
    keep, rows = allocation.keep_rate, allocation.client
    most = np.maximum(problem.keep_max[rows], problem.full_keep)
    bad = (keep < problem.keep_min * (1 - _ROUNDING)) | (keep > most * (1 + _ROUNDING))
    if bad.any():
        entry = int(bad.argmax())
        raise InputError(
            f"its keep_rate of row {rows[entry]} is {keep[entry]:g}, which is not "
            f"between {problem.keep_min:g} and {most[entry]:g}."
        )


def _check_sending(problem: RoundProblem, allocation: Allocation) -> None:
    """Power, time and energy, as the cell computes them."""
    rows, power = allocation.client, allocation.power_w
    bad = (power <= 0) | (power > problem.max_power_w * (1 + _ROUNDING))
    if bad.any():
        entry = int(bad.argmax())
        raise InputError(
            f"its power_w of row {rows[entry]} is {power[entry]:g} W, which is not "
            f"above 0 and at most {problem.max_power_w:g} W."
        )
    snr = problem.snr_per_w[rows, allocation.channel]
    rate = shannon_rate(problem.bandwidth_hz, power * snr)
    bits = problem.bits_fixed + problem.bits_per_rate * allocation.keep_rate
    with np.errstate(divide="ignore"):
        upload_s = bits / rate
    delay = problem.base_delay_s[rows] + upload_s
    bad = ~(np.abs(allocation.delay_s - delay) <= _ROUNDING * delay)
    if bad.any():
        entry = int(bad.argmax())
        raise InputError(
            f"its delay_s of row {rows[entry]} is {allocation.delay_s[entry]:g} s, but "
            f"its base delay, power, channel and keep rate make {delay[entry]:g} s "
            "(base_delay_s + bits / rate)."
        )
    energy, left = power * upload_s, problem.energy_j[rows]
    bad = energy > left * (1 + _ROUNDING)
    if bad.any():
        entry = int(bad.argmax())
        raise InputError(
            f"row {rows[entry]} would spend {energy[entry]:g} J on its upload, and has "
            f"{left[entry]:g} J left (energy_j): lower its power or keep rate."
        )
    bad = delay > problem.latest_s * (1 + _ROUNDING)
    if bad.any():
        entry = int(bad.argmax())
        raise InputError(
            f"row {rows[entry]} would take {delay[entry]:g} s, longer than a round may "
            f"({problem.latest_s:g} s, latest_s)."
        )
