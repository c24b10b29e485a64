"""What one client releases, as the accountants see it.

Neighbouring data sets differ in one record of one client replaced by a null record (the
number of records is public); for the Poisson-subsampled Gaussian mechanism that costs
the same as adding or removing a record.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy import noise_edge, poisson


@dataclasses.dataclass(frozen=True)
class Release:
    """`count` sums over Poisson samples, each with Gaussian noise."""

    sampling_rate: float  # q: probability that a record enters one sum
    noise_multiplier: float  # noise standard deviation / sensitivity
    count: int

    def __post_init__(self) -> None:
        """Refuses numbers for which there is no finite epsilon."""
        if not 0 < self.sampling_rate <= 1:
            raise InputError(
                "the sampling rate (batch size / examples) must lie in (0, 1], but is "
                f"{self.sampling_rate:g}."
            )
        if not 0 < self.noise_multiplier < math.inf:
            raise InputError(
                "the noise multiplier must be positive and finite (without noise, "
                f"epsilon is infinite), but is {self.noise_multiplier:g}."
            )
        if self.count < 1:
            raise InputError(
                f"a release has at least one step, but this one has {self.count}."
            )


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """All that one client does with its records, and the delta it is judged at."""

    participation: Release  # one participation: tau noisy steps
    delta: float
    overflow_probability: float = 0.0  # of cutting off a padded batch, per step
    setup: Release | None = None  # once, before the first participation
    coordinates: int = 0  # that share generated noise; 0: noise without an end

    def __post_init__(self) -> None:
        """Refuses a delta or a probability outside its range."""
        if not 0 < self.delta < 1:
            raise InputError(
                f"delta must lie strictly between 0 and 1, but is {self.delta:g}."
            )
        if not 0 <= self.overflow_probability < 1:
            raise InputError(
                "the overflow probability must lie in [0, 1), but is "
                f"{self.overflow_probability:g}."
            )
        if self.coordinates < 0:
            raise InputError(
                "a model has at least 0 coordinates (0 stands for exact noise), but "
                f"{self.coordinates} are given."
            )

    @property
    def failure_probability(self) -> float:
        """What one step adds to delta: cut-off batches, and the end of the noise."""
        release = self.participation
        edge = noise_edge.cost(
            release.sampling_rate,
            release.noise_multiplier,
            self.coordinates,
            self.delta,
        )
        return self.overflow_probability + edge

    def delta_left(self, participations: ArrayLike) -> np.ndarray:
        """Delta that remains once failures are paid for; may be negative.

        `noise_edge` says why the end of the noise adds to delta. So do batches that are
        cut off: given which other records were drawn, a step that is not cut off is
        the exact one (they leave room for the record) or the same for both neighbours
        (they fill the batch, so the record is absent). So the probability of a cut
        simply adds to delta, without the factor 1 + e^epsilon of a general event.
        """
        steps = np.asarray(participations, np.float64) * self.participation.count
        return self.delta - steps * self.failure_probability


class ClientGroups(NamedTuple):
    """Clients that share a mechanism share a curve."""

    mechanisms: tuple[Mechanism, ...]
    group: np.ndarray  # [U] int: which mechanism each client has
    rounded: str = ""  # how mechanisms were rounded up, in a sentence; empty: not

    def members(self) -> list[np.ndarray]:
        """Numbers of the clients that have each mechanism."""
        order = np.argsort(self.group, kind="stable")
        ends = np.cumsum(np.bincount(self.group, minlength=len(self.mechanisms)))
        return np.split(order, ends[:-1])


def client_groups(
    sizes: ArrayLike,
    *,
    batch_size: ArrayLike,
    noise_multiplier: ArrayLike,
    steps: int,
    delta: float,
    capacity: int | None = None,
    setup: Release | None = None,
    coordinates: int = 0,
) -> ClientGroups:
    """The distinct mechanisms of clients with `sizes` [U] records.

    Batch size and noise multiplier are one number or one per client. `capacity` is the
    padded batch; None means that no batch is ever cut off. `coordinates` is the number
    of the model's parameters; 0 means that noise has no end.
    """
    sizes = np.asarray(sizes)
    if sizes.ndim != 1 or sizes.size == 0 or np.min(sizes) < 1:
        raise InputError("give the number of records, at least 1, of every client.")
    rates = np.broadcast_to(poisson.sampling_rate(batch_size, sizes), sizes.shape)
    noise = np.broadcast_to(np.asarray(noise_multiplier, np.float64), sizes.shape)
    first, kind = kinds(sizes, rates, noise)
    rates, noise = rates[first], noise[first]
    overflow = np.zeros(rates.shape)
    if capacity is not None:
        overflow = poisson.overflow_probability(sizes[first], rates, capacity)
    wanted = [
        Mechanism(
            Release(float(q), float(z), int(steps)),
            delta,
            float(cut),
            setup,
            coordinates,
        )
        for q, z, cut in zip(rates, noise, overflow, strict=True)
    ]
    grouped = group_mechanisms(wanted)
    return ClientGroups(grouped.mechanisms, grouped.group[kind])


def kinds(*columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rows of columns [U] in order of appearance: where first, and which."""
    order = np.lexsort(columns)
    changes = np.zeros(len(order), bool)
    changes[0] = True
    for column in columns:
        changes[1:] |= np.diff(column[order]) != 0
    first = order[changes]  # the sort is stable: the first client of each kind
    number = np.empty(len(first), np.intp)
    number[np.argsort(first)] = np.arange(len(first))
    kind = np.empty(len(order), np.intp)
    kind[order] = number[np.cumsum(changes) - 1]
    return np.sort(first), kind


def group_mechanisms(wanted: Sequence[Mechanism]) -> ClientGroups:
    """Numbers the distinct mechanisms of a list, in order of appearance."""
    numbers: dict[Mechanism, int] = {}
    group = [numbers.setdefault(mechanism, len(numbers)) for mechanism in wanted]
    return ClientGroups(tuple(numbers), np.array(group, np.intp))
