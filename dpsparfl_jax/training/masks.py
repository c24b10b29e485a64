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
_LARGEST_WORD = np.uint32(0xFFFFFFFF)


def check_kind(kind: str) -> None:
    """Refuses an unknown kind of mask."""
    if kind not in KINDS:
        raise InputError(f"unknown mask {kind!r}: choose one of {', '.join(KINDS)}.")


def probability_threshold(probability: jax.Array) -> jax.Array:
    """Largest random word that counts as a success, so that P(word <= it) is as given.

    Rounded down to a multiple of 2^-32; a probability of 1 always succeeds.
    """
    scaled = probability * np.float32(2.0**32)
    word = jnp.minimum(scaled, np.float32(2.0**32 - 2.0**8)).astype(jnp.uint32)
    return jnp.where(
        probability >= 1, _LARGEST_WORD, jnp.maximum(word, np.uint32(1)) - np.uint32(1)
    )


def _coordinate_words(key: jax.Array, template: Any) -> Any:
    words = jax.random.key_data(key)

    def one_leaf(leaf: jax.Array, offset: int) -> jax.Array:
        x0, x1 = threefry.hash_counter(words, threefry.coordinates(leaf.shape, offset))
        return x0 ^ x1

    return jax.tree.map(one_leaf, template, threefry.leaf_offsets(template))


def bernoulli_mask(key: jax.Array, template: Any, keep_rate: jax.Array) -> Any:
    """Keeps each coordinate with probability `keep_rate`, independently.

    Paper: section II.  Returns 0/1 float32 leaves in the shapes of `template`.
    """
    threshold = probability_threshold(keep_rate)
    words = _coordinate_words(key, template)
    return jax.tree.map(lambda word: (word <= threshold).astype(jnp.float32), words)


def _smallest_with_count(
    count: Callable[[jax.Array], jax.Array], wanted: jax.Array
) -> jax.Array:
    """Smallest uint32 x with count(x) >= wanted, for a non-decreasing count."""

    def halve(step: jax.Array, low: jax.Array) -> jax.Array:
        bit = np.uint32(1) << (np.uint32(31) - step.astype(jnp.uint32))
        return jnp.where(count(low + (bit - np.uint32(1))) < wanted, low + bit, low)

    return jax.lax.fori_loop(0, 32, halve, jnp.uint32(0))


def fixed_count_mask(key: jax.Array, template: Any, keep_rate: jax.Array) -> Any:
    """Keeps exactly round(keep_rate * D) coordinates, every such set equally likely.

    The kept ones have the smallest random words; their cut-off is found by bisection on
    the word (a sort of millions of words costs ten times more), and equal words at the
    cut-off are told apart by a second bisection on the coordinate number.
    """
    words = _coordinate_words(key, template)
    numbers = jax.tree.map(
        lambda leaf, offset: threefry.coordinates(leaf.shape, offset),
        template,
        threefry.leaf_offsets(template),
    )
    size = sum(leaf.size for leaf in jax.tree.leaves(template))
    wanted = jnp.round(keep_rate * np.float32(size)).astype(jnp.int32)
    wanted = jnp.clip(wanted, 1, size)

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
def draw_mask(kind: str, key: jax.Array, template: Any, keep_rate: jax.Array) -> Any:
    """Mask of the named kind."""
    draw = {"bernoulli": bernoulli_mask, "fixed_count": fixed_count_mask}[kind]
    return draw(key, template, keep_rate)
