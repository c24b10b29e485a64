"""From wanted participations to the noise multiplier or batch size they need."""

import dataclasses
from collections.abc import Callable

import numpy as np

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy.accountants import Accountant
from dpsparfl_jax.privacy.mechanism import Mechanism

_PRECISION = 1e-3  # relative, of a calibrated noise multiplier
_SMALLEST_NOISE, _LARGEST_NOISE = 0.1, 1e5


def noise_multiplier_for(
    accountant: Accountant, mechanism: Mechanism, *, epsilon: float, participations: int
) -> float:
    """Smallest noise multiplier (to 0.1%, rounded up) that affords the participations.

    All else is the mechanism's; its own noise multiplier is where the search starts.
    Looks between 0.1, below which epsilon is in the thousands, and 100,000.
    """
    _check_wish(epsilon, participations)

    def enough(noise: float) -> bool:
        step = dataclasses.replace(mechanism.participation, noise_multiplier=noise)
        changed = dataclasses.replace(mechanism, participation=step)
        return _epsilon(accountant, changed, participations) <= epsilon

    low = high = mechanism.participation.noise_multiplier
    if enough(high):
        while enough(low) and low > _SMALLEST_NOISE:
            low, high = low / 2, low
    while not enough(high):
        if high > _LARGEST_NOISE:
            raise InputError(
                f"no noise multiplier up to {_LARGEST_NOISE:g} affords "
                f"{participations} participations at epsilon {epsilon:g} and delta "
                f"{mechanism.delta:g}: allow more, or pad batches more, or calibrate "
                "the clip norm at less cost."
            )
        low, high = high, 2 * high
    while high > (1 + _PRECISION) * low:
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def batch_size_for(
    accountant: Accountant,
    mechanism: Mechanism,
    *,
    examples: int,
    epsilon: float,
    participations: int,
) -> int:
    """Largest whole batch size that affords the participations, 0 if none does.

    The mechanism's overflow probability is kept: pad larger batches accordingly.
    """
    _check_wish(epsilon, participations)

    def enough(batch: int) -> bool:
        rate = batch / examples
        step = dataclasses.replace(mechanism.participation, sampling_rate=rate)
        changed = dataclasses.replace(mechanism, participation=step)
        return _epsilon(accountant, changed, participations) <= epsilon

    return _largest(enough, examples)


def _largest(holds: Callable[[int], bool], top: int) -> int:
    """Largest number in 1..top for which `holds`, which fails from some number on.

    Doubles first: small batches are cheap to account for, large ones are not.
    """
    good, bad = 0, 1
    while bad <= top and holds(bad):
        good, bad = bad, 2 * bad
    bad = min(bad, top + 1)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good


def _epsilon(
    accountant: Accountant, mechanism: Mechanism, participations: int
) -> float:
    return float(accountant.epsilon(mechanism, np.array([participations]))[0])


def _check_wish(epsilon: float, participations: int) -> None:
    if not 0 < epsilon < np.inf or participations < 1:
        raise InputError(
            "calibration needs a positive epsilon and at least one participation, not "
            f"{epsilon:g} and {participations}."
        )
