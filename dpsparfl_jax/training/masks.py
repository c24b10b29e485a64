"""How random masks are drawn: one per client and round, fixed over its local steps.

`sparsifiers` says which of these is used, what it sends and how it is clipped.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpsparfl_jax.training import threefry


def _coordinate_words(key: jax.Array, template: Any) -> Any:
    words = jax.random.key_data(key)

    def mixed(numbers: jax.Array) -> jax.Array:
        x0, x1 = threefry.hash_counter(words, numbers)
        return x0 ^ x1

    return threefry.map_coordinates(mixed, template)


def bernoulli_mask(key: jax.Array, template: Any, keep: jax.Array) -> Any:
    """Keeps each coordinate independently with probability s = (keep + 1) / 2^32.

    Paper: section II.  Returns 0/1 float32 leaves in the shapes of `template`.
    """
    words = _coordinate_words(key, template)
    return jax.tree.map(lambda word: (word <= keep).astype(jnp.float32), words)


def _smallest_with_count(
    count: Callable[[jax.Array], jax.Array], wanted: jax.Array
) -> jax.Array:
    """Smallest uint32 x with count(x) >= wanted, for a non-decreasing count."""

    def halve(step: jax.Array, low: jax.Array) -> jax.Array:
        bit = np.uint32(1) << (np.uint32(31) - step.astype(jnp.uint32))
        return jnp.where(count(low + (bit - np.uint32(1))) < wanted, low + bit, low)

    return jax.lax.fori_loop(0, 32, halve, jnp.uint32(0))


def _share(keep: jax.Array, size: int) -> jax.Array:
    """round((keep + 1) * size / 2^32) exactly (halves up), in 32-bit words.

    float32 would miss the count by one at a few percent of rates, and x64 stays off.
    """
    half = np.uint32(0xFFFF)
    keep_high, keep_low = keep >> np.uint32(16), keep & half
    size_high, size_low = np.uint32(size >> 16), np.uint32(size & 0xFFFF)
    cross, other = keep_low * size_high, keep_high * size_low
    middle = (keep_low * size_low >> np.uint32(16)) + (cross & half) + (other & half)
    low = (keep_low * size_low & half) | (middle << np.uint32(16))
    high = keep_high * size_high + (cross >> np.uint32(16)) + (other >> np.uint32(16))
    high = high + (middle >> np.uint32(16))
    for addend in (np.uint32(size), np.uint32(1 << 31)):  # keep + 1, and to the nearest
        high = high + (low + addend < low).astype(jnp.uint32)
        low = low + addend
    return high.astype(jnp.int32)


def fixed_count_mask(key: jax.Array, template: Any, keep: jax.Array) -> Any:
    """Keeps exactly round(s * D) coordinates, every such set equally likely.

    The kept ones have the smallest random words; their cut-off is found by bisection on
    the word, which needs no sort of millions of words, and equal words at the cut-off
    are told apart by a second bisection on the coordinate number.
    """
    words = _coordinate_words(key, template)
    numbers = jax.tree.map(
        lambda leaf, offset: threefry.coordinates(leaf.shape, offset),
        template,
        threefry.leaf_offsets(template),
    )
    size = sum(leaf.size for leaf in jax.tree.leaves(template))
    wanted = jnp.maximum(_share(keep, size), 1)

    def total(leaves: Any) -> jax.Array:
        counts = [jnp.sum(leaf, dtype=jnp.int32) for leaf in jax.tree.leaves(leaves)]
        return jnp.sum(jnp.stack(counts), dtype=jnp.int32)

    def count_words(cut: jax.Array) -> jax.Array:
        return total(jax.tree.map(lambda word: word <= cut, words))

    cut = _smallest_with_count(count_words, wanted)
    below = total(jax.tree.map(lambda word: word < cut, words))

    def count_ties(last: jax.Array) -> jax.Array:
        tied = jax.tree.map(lambda w, n: (w == cut) & (n <= last), words, numbers)
        return below + total(tied)

    last = _smallest_with_count(count_ties, wanted)
    return jax.tree.map(
        lambda w, n: ((w < cut) | ((w == cut) & (n <= last))).astype(jnp.float32),
        words,
        numbers,
    )


def unit_mask(key: jax.Array, template: Any, keep: jax.Array) -> Any:
    """Keeps whole output units with probability s = (keep + 1) / 2^32.

    A unit is an entry of the last axis; parameters that lie side by side in one layer
    (kernel and bias, say) and have last axes of one length share their units.
    """
    words = jax.random.key_data(key)
    first_unit = unit_offsets(template)

    def one_leaf(path: Any, leaf: jax.Array) -> jax.Array:
        units = leaf.shape[-1:]  # none for a scalar, which is one unit
        counter = threefry.coordinates(units, first_unit[_group(path, leaf)])
        x0, x1 = threefry.hash_counter(words, counter)
        kept = ((x0 ^ x1) <= keep).astype(jnp.float32)
        return jnp.broadcast_to(
            kept.reshape((1,) * (leaf.ndim - 1) + units), leaf.shape
        )

    return jax.tree_util.tree_map_with_path(one_leaf, template)


def unit_offsets(template: Any) -> dict[Any, int]:
    """Number of the first unit of every group of parameters that share units."""
    offsets: dict[Any, int] = {}
    total = 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(template):
        group = _group(path, leaf)
        if group not in offsets:
            offsets[group] = total
            total += group[1]
    return offsets


def count_units(template: Any) -> int:
    """All units of a model."""
    return sum(width for _, width in unit_offsets(template))


def _group(path: Any, leaf: jax.Array) -> tuple[str, int]:
    return jax.tree_util.keystr(path[:-1]), int(leaf.shape[-1]) if leaf.ndim else 1
