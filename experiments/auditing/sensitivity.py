"""Sensitivity check: how far does one record move what is released? No statistics.

Two runs have the same keys, hence the same mask, batch and noise; one has the canary,
the other a null record in its place. Noise cancels, and what is left of the difference
of their releases is all that the canary did to a step's sum. Its norm must not exceed
the clip bound, for any record whatever: one counterexample is a fault.

Tolerance. Each coordinate of a release is rounded some six times on its way (noise
added, divided by the batch, times the rate, added to the parameters, taken off them
again by client and server), each time by at most 2^-24 of a number below ten bounds.
Over two runs and at most 200 coordinates the errors have a norm below
2 * 6 * 10 * 2^-24 * sqrt(200) = 1.1e-4 bounds, and twice that is allowed.
"""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.training import keys
from dpsparfl_jax.types import ImageSet

from . import probes
from .program import Clients, Setting, equal_tables

TOLERANCE = 2.2e-4
_RATE = 1.0  # of a step: a release shows in the parameters with all of its digits
_OTHERS = 3  # ordinary records beside the canary


@dataclasses.dataclass(frozen=True)
class Finding:
    """The worst of many canaries of one kind."""

    setting: Setting
    family: str
    canaries: int
    worst: float  # largest difference over the bound; infinite beyond a few thousands

    @property
    def is_broken(self) -> bool:
        """Whether a record moved a sum by more than the bound and rounding."""
        return self.worst > 1 + TOLERANCE


def default_settings(models: Sequence[str], methods: Sequence[str]) -> list[Setting]:
    """Sums of all records, and Poisson batches that may hold the canary alone."""
    return [
        Setting(
            model=model,
            method=method,
            records=1 + _OTHERS,
            batch_size=batch_size,
            noise_multiplier=0.5,
            keep_rate=keep_rate,
        )
        for model in models
        for method in methods
        for batch_size, keep_rate in ((4.0, 0.3), (2.0, 0.7))
    ]


def _records(count: int, seed: int) -> tuple[ImageSet, list[str]]:
    """A null record, ordinary ones, then `count` canaries of every family."""
    stream = np.random.default_rng([seed, 1])
    image, label = probes.null_record()
    ordinary = probes.FAMILIES["ordinary"](stream, _OTHERS)
    drawn = [family(stream, count) for family in probes.FAMILIES.values()]
    images = np.concatenate([image[None], ordinary[0], *(part[0] for part in drawn)])
    labels = np.concatenate([[label], ordinary[1], *(part[1] for part in drawn)])
    return ImageSet(images, labels.astype(np.int32)), list(probes.FAMILIES)


def differences(setting: Setting, data: ImageSet, seed: int) -> NDArray[np.float64]:
    """Norm of what each canary of the set does to a release, over the bound."""
    first = 1 + _OTHERS
    count = len(data.labels) - first
    rows = np.broadcast_to(np.arange(first, dtype=np.int32), (2 * count, first))
    rows = rows.copy()[:, None]  # the null record comes first in both runs ...
    rows[:count, 0, 0] = first + np.arange(count)  # ... unless the canary is in
    seeds = np.tile(np.uint64(seed << 32) + np.arange(count, dtype=np.uint64), 2)
    start = jax.device_get(setting.program().init(keys.init_key(seed)))
    tables = equal_tables(rows)
    runs = Clients(setting, data, tables, seeds, params=start, learning_rate=_RATE)
    released = runs.release(0)
    with np.errstate(invalid="ignore"):
        moved = np.linalg.norm(released[:count] - released[count:], axis=1)
    # An update that is dropped for its size was moved by more than can be measured.
    known = np.isfinite(moved) & ~runs.dropped[:count] & ~runs.dropped[count:]
    return np.where(known, moved / setting.bound, np.inf)


def check(
    settings: Sequence[Setting],
    count: int,
    *,
    seed: int = 0,
    tick: Callable[[int], None] = lambda settings: None,
) -> list[Finding]:
    """The worst of `count` canaries of every family, in every setting."""
    data, families = _records(count, seed)
    findings = []
    for setting in settings:
        moved = differences(setting, data, seed).reshape(len(families), count)
        findings += [
            Finding(setting, family, count, float(row.max()))
            for family, row in zip(families, moved, strict=True)
        ]
        tick(1)
    return findings
