"""How much of a norm float32 arithmetic may lose: clipping must hold for any data.

A record is clipped by the norm of its gradient. If the computed norm is smaller than
the true one, the record weighs more than the bound, and epsilon is not what it is said
to be. Two things make a computed norm smaller, and both have a bound:

- Rounding. A sum of terms that are not negative, in whatever order they are added,
  loses at most a share of gamma(k) = k u / (1 - k u), where u = 2^-24 and k is the
  largest number of roundings that any one term goes through.
- Underflow. A product below the smallest normal number may become 0; each such product
  loses at most that number.

Squared norms are therefore raised by both before a record is scaled.
"""

import math
from typing import Any

import jax
import numpy as np

from dpsparfl_jax.errors import InputError

TINY = float(np.finfo(np.float32).tiny)
_UNIT = 2.0**-24
# Roundings besides additions: scaling of rows, squares, products, the root, the clip
# factor and its product with the gradient, each of them counted twice.
_OTHERS = 32


def sum_of_squares(squares: jax.Array) -> jax.Array:
    """Sums over all axes but the first: [B, ..., F] -> [B], with few roundings a term.

    Columns first, then across them: one long sum would go through as many roundings as
    there are terms. The barrier keeps the compiler from joining the two again.
    """
    if squares.ndim == 1:  # of a parameter that is a single number
        return squares
    columns = squares.reshape(squares.shape[0], -1, squares.shape[-1]).sum(axis=1)
    return jax.lax.optimization_barrier(columns).sum(axis=1)


def lost_share(params: Any) -> float:
    """Share of a squared norm that rounding may lose, for parameters of these shapes.

    Raises InputError if float32 norms of such a model cannot be bounded.
    """
    leaves = jax.tree.leaves(params)
    roundings = max(_chain(leaf.shape) for leaf in leaves) + len(leaves) + _OTHERS
    if roundings * _UNIT > 0.25:
        raise InputError(
            "a layer of this model has so many inputs that the norms of its gradients "
            "cannot be bounded in float32: split the layer."
        )
    return roundings * _UNIT / (1 - roundings * _UNIT)


def lost_squares(params: Any) -> float:
    """What underflow of single squares may lose of a squared norm of any size."""
    return 4 * TINY * sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))


def _chain(shape: tuple[int, ...]) -> int:
    last = shape[-1] if shape else 1
    return last + math.prod(shape) // last if last else 0
