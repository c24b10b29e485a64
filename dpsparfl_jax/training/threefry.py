"""Threefry-2x32 over coordinates, written so that XLA fuses it into its consumer.

Algorithm: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC 2011. `jax.random` computes the same function (tests compare bit for bit), but rolls
its rounds into a loop over whole arrays on CPU; unrolled here, a hash stays in vector
registers from the counter to the place where it is used, and no array of random bits
is ever written.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
_SMALL = 2**15  # coordinates of a leaf up to which it is hashed together with others


def _rotate_left(word: jax.Array, distance: int) -> jax.Array:
    return (word << np.uint32(distance)) | (word >> np.uint32(32 - distance))


@functools.partial(jax.jit, static_argnames="rounds", inline=True)
def hash_counter(
    key_words: jax.Array, counter: jax.Array, rounds: int = 20
) -> tuple[jax.Array, jax.Array]:
    """Two random words for each 32-bit counter under one key.

    Shapes: key_words [2], counter [...] -> [...], [...], all uint32.
    """
    schedule = (key_words[0], key_words[1], key_words[0] ^ key_words[1] ^ _PARITY)
    x0 = jnp.broadcast_to(schedule[0], counter.shape)
    x1 = counter + schedule[1]
    for i in range(rounds):
        x0 = x0 + x1
        x1 = x0 ^ _rotate_left(x1, _ROTATIONS[i // 4 % 2][i % 4])
        if i % 4 == 3:
            injection = i // 4 + 1
            x0 = x0 + schedule[injection % 3]
            x1 = x1 + (schedule[(injection + 1) % 3] + np.uint32(injection))
    return x0, x1


def coordinates(shape: tuple[int, ...], offset: int) -> jax.Array:
    """Row-major coordinate numbers `offset, offset + 1, ...` in `shape`, uint32."""
    if offset + math.prod(shape) > 2**32:
        raise ValueError("more than 2**32 coordinates under one key")
    number = jnp.full(shape, np.uint32(offset))
    stride = 1
    for axis in reversed(range(len(shape))):
        index = jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
        number = number + index * np.uint32(stride)
        stride *= shape[axis]
    return number


def leaf_offsets(tree: object) -> object:
    """Number of the first coordinate of every leaf, as a tree of Python ints."""
    leaves, structure = jax.tree.flatten(tree)
    sizes = [math.prod(leaf.shape) for leaf in leaves]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return jax.tree.unflatten(structure, starts)


def map_coordinates(function: Callable[[jax.Array], jax.Array], tree: Any) -> Any:
    """`function` of the coordinate numbers of every leaf, in the leaf's shape.

    `function` works number by number. A large leaf has a call of its own, which fuses
    with what uses it; all small ones share a call, because most of a program would be
    the hashes of biases otherwise.
    """
    leaves, structure = jax.tree.flatten(tree)
    offsets = jax.tree.leaves(leaf_offsets(tree))
    results: list[Any] = [None] * len(leaves)
    small = [i for i, leaf in enumerate(leaves) if leaf.size <= _SMALL]
    if small:
        numbers = [coordinates((leaves[i].size,), offsets[i]) for i in small]
        together = function(jnp.concatenate(numbers))
        starts = np.cumsum([leaves[i].size for i in small])[:-1]
        for i, part in zip(small, jnp.split(together, starts), strict=True):
            results[i] = part.reshape(leaves[i].shape)
    for i, leaf in enumerate(leaves):
        if leaf.size > _SMALL:
            results[i] = function(coordinates(leaf.shape, offsets[i]))
    return jax.tree.unflatten(structure, results)
