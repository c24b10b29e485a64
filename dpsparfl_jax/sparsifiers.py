"""Which coordinates of an update are kept, what telling them costs, how it is clipped.

A sparsifier is one object with three answers, so that planning (bits), accounting (clip
bound) and training (mask) cannot disagree. Masks never look at records: they are drawn
from the run's seed, the round and the client, so they cost no privacy.

To add one, write a class with these three methods and register it:

    @dpsparfl_jax.register_sparsifier("mine")
    class Mine(Bernoulli): ...
"""

import dataclasses
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsparfl_jax.registry import SPARSIFIERS
from dpsparfl_jax.types import Array, ModelSize, Params


class Sparsifier(Protocol):
    """What planning, clipping and training ask a sparsifier.

    Registered as a class without arguments; one object serves all runs, so it keeps no
    state. The number of kept coordinates at keep rate s should be about s times D.

    Examples:
        >>> from dpsparfl_jax.sparsifiers import make_sparsifier
        >>> from dpsparfl_jax.types import ModelSize
        >>> model = ModelSize(parameters=7850, units=10)
        >>> make_sparsifier("bernoulli").mask_bits(model)
        7850
        >>> make_sparsifier("structured").mask_bits(model)
        10
        >>> float(make_sparsifier("bernoulli").clip_factor(0.25))
        0.5
    """

    def mask_bits(self, model: ModelSize) -> int:
        """Bits that tell the receiver which coordinates were kept."""

    def clip_factor(self, keep_rate: ArrayLike) -> NDArray[np.float64]:
        """The adjusted clip bound of a masked gradient over the clip norm C."""

    def draw(self, key: Array, template: Params, keep: Array) -> Params:
        """The mask of one client in one round, on the device (JAX).

        Args:
            key: the key of this client, round and use.
            template: parameters; only their shapes matter.
            keep: uint32 word of the keep rate: s = (keep + 1) / 2^32.

        Returns:
            Leaves of 0 and 1 (float32) in the shapes of `template`.
        """


@SPARSIFIERS.register("bernoulli")
@dataclasses.dataclass(frozen=True)
class Bernoulli:
    """Keeps each coordinate independently with probability s (paper: section II)."""

    def mask_bits(self, model: ModelSize) -> int:
        """One bit a coordinate."""
        return model.parameters

    def clip_factor(self, keep_rate: ArrayLike) -> NDArray[np.float64]:
        """sqrt(s): what masking leaves of a norm on average (paper: Lemma 1)."""
        return np.sqrt(np.asarray(keep_rate, np.float64))

    def draw(self, key: Array, template: Params, keep: Array) -> Params:
        """A coordinate is kept where its random word is at most `keep`."""
        from dpsparfl_jax.training import masks  # planning does without JAX

        return masks.bernoulli_mask(key, template, keep)


@SPARSIFIERS.register("fixed_count")
@dataclasses.dataclass(frozen=True)
class FixedCount(Bernoulli):
    """Keeps exactly round(s * D) coordinates, every such set equally likely."""

    def draw(self, key: Array, template: Params, keep: Array) -> Params:
        """The coordinates with the smallest random words."""
        from dpsparfl_jax.training import masks

        return masks.fixed_count_mask(key, template, keep)


@SPARSIFIERS.register("structured")
@dataclasses.dataclass(frozen=True)
class Structured(Bernoulli):
    """Keeps or drops whole output units of layers, each with probability s.

    A unit is an entry of the last axis of a layer's parameters: a neuron of a dense
    layer, a channel of a convolution, with its kernel column and its bias together. A
    mask of units is much shorter than one of coordinates.
    """

    def mask_bits(self, model: ModelSize) -> int:
        """One bit a unit."""
        return model.units

    def draw(self, key: Array, template: Params, keep: Array) -> Params:
        """A unit is kept where its random word is at most `keep`."""
        from dpsparfl_jax.training import masks

        return masks.unit_mask(key, template, keep)


def make_sparsifier(name: str) -> Sparsifier:
    """The sparsifier registered under that name."""
    factory: Any = SPARSIFIERS.get(name)
    return factory()
