"""Many clients of different sizes, charged as if they had a few sampling rates.

A curve of epsilon takes a second or more, and every sampling rate has its own. Where
there are too many of them, rates are rounded up to some of them: whoever draws records
more often reveals more, so that a client is charged for at least what it does. So are
large numbers of participations.
"""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.privacy.accountants import Accountant
from dpsparfl_jax.privacy.mechanism import (
    ClientGroups,
    Mechanism,
    group_mechanisms,
    kinds,
)

Array = NDArray[np.float64]
_HALVINGS = 60  # of the search for the least factor
_STEPS = 32  # numbers of participations between one and its double


def fewer(groups: ClientGroups, most: int) -> ClientGroups:
    """The same clients with at most `most` mechanisms, which reveal no less.

    Sampling rates are rounded up, noise is rounded down, and the largest probability of
    a cut-off batch is taken; nothing is rounded if there are no more than `most`.
    """
    if len(groups.mechanisms) <= most:
        return groups
    releases = [one.participation for one in groups.mechanisms]
    rates = np.array([one.sampling_rate for one in releases])
    noise = np.array([one.noise_multiplier for one in releases])
    levels = min(len(np.unique(noise)), math.isqrt(most))
    _, level = kinds(round_up(1 / noise, levels))
    least = np.full(np.max(level) + 1, np.inf)
    np.minimum.at(least, level, noise)
    quieter, higher = least[level], round_up(rates, most // levels)
    _, kind = kinds(higher, quieter)
    cut = np.zeros(np.max(kind) + 1)
    np.maximum.at(cut, kind, [one.overflow_probability for one in groups.mechanisms])
    wanted = [
        dataclasses.replace(
            one,
            participation=dataclasses.replace(
                one.participation, sampling_rate=float(q), noise_multiplier=float(z)
            ),
            overflow_probability=float(p),
        )
        for one, q, z, p in zip(
            groups.mechanisms, higher, quieter, cut[kind], strict=True
        )
    ]
    found = group_mechanisms(wanted)
    said = (
        f"{len(rates):,} kinds of clients are accounted for as {len(cut)} "
        "(privacy.most_mechanisms): sampling rates are rounded up, by at most "
        f"{np.max(higher / rates) - 1:.1%}, "
    )
    if len(np.unique(noise)) > levels:
        said += f"noise down, by at most {np.max(1 - quieter / noise):.1%}, "
    said += f"and participations beyond {2 * _STEPS} up, by at most {1 / _STEPS:.1%}."
    return ClientGroups(found.mechanisms, found.group[groups.group], said)


def round_up(values: Array, most: int) -> Array:
    """Positive values [U], each replaced by one of `most` of them that is not smaller.

    The largest factor by which one is raised is as small as it can be. Values are left
    as they are if they have no more than `most` different ones.
    """
    distinct = np.unique(values)
    if len(distinct) <= most:
        return values
    low, high = 1.0, float(distinct[-1] / distinct[0]) * 2
    for _ in range(_HALVINGS):
        middle = float(np.sqrt(low * high))
        if len(_tops(distinct, middle, most)) <= most:
            high = middle
        else:
            low = middle
    tops = np.array(_tops(distinct, high, most)[::-1])
    return tops[np.searchsorted(tops, values)]


def _tops(distinct: Array, factor: float, most: int) -> list[float]:
    """Largest values of groups within a factor, downwards; ends if they are too many.

    Groups that reach as far down as they may are the fewest that there can be.
    """
    tops: list[float] = []
    rest = len(distinct)
    while rest and len(tops) <= most:
        tops.append(float(distinct[rest - 1]))
        rest = int(np.searchsorted(distinct, tops[-1] / factor))
    return tops


class InSteps:
    """An accountant that rounds numbers of participations up, by 1/32 at most.

    Numbers below 64 are exact. More participations never cost less.
    """

    def __init__(self, accountant: Accountant) -> None:
        """Asks `accountant`, and goes by its name."""
        self.accountant, self.name = accountant, accountant.name

    @property
    def version(self) -> str:
        """Curves are kept apart from exact ones."""
        return f"{self.accountant.version} in steps of 1/{_STEPS}"

    def epsilon(
        self, mechanism: Mechanism, participations: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Epsilon after each of these numbers of participations, or a few more."""
        octave = np.floor(np.log2(np.maximum(participations, _STEPS) / _STEPS))
        step = 2 ** octave.astype(np.int64)
        up = -(-participations // step) * step
        asked, place = np.unique(up, return_inverse=True)
        return self.accountant.epsilon(mechanism, asked)[place]
