"""Random sparsification masks: one per client and round, fixed over its local steps."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.training import threefry

KINDS = ("bernoulli", "fixed_count")


def check_kind(kind: str) -> None:
    """Refuses an unknown kind of mask."""
    if kind not in KINDS:
        raise InputError(f"unknown mask {kind!r}: choose one of {', '.join(KINDS)}.")


def _coordinate_words(key: jax.Array, template: Any) -> Any:
    words = jax.random.key_data(key)

    def one_leaf(leaf: jax.Array, offset: int) -> jax.Array:
        x0, x1 = threefry.hash_counter(words, threefry.coordinates(leaf.shape, offset))
        return x0 ^ x1

    return jax.tree.map(one_leaf, template, threefry.leaf_offsets(template))


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


@functools.partial(jax.jit, static_argnums=0, inline=True)
def draw_mask(kind: str, key: jax.Array, template: Any, keep: jax.Array) -> Any:
    """Mask of the named kind; `keep` is the word of s (`packing.probability_word`)."""
    draw = {"bernoulli": bernoulli_mask, "fixed_count": fixed_count_mask}[kind]
    return draw(key, template, keep)
