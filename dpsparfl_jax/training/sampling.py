"""Poisson subsampling into fixed shapes: the event that the accountant composes."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpsparfl_jax.training import threefry

_LARGEST_WORD = np.uint32(0xFFFFFFFF)


class Batches(NamedTuple):
    """The batches of all local steps of one client."""

    positions: jax.Array  # [steps, B] places in the client's own table, included first
    counts: jax.Array  # [steps] how many of them are real
    overflow: jax.Array  # [steps] how many included examples did not fit in B


def poisson_batches(
    key: jax.Array,
    inclusion: jax.Array,
    size: jax.Array,
    *,
    steps: int,
    table_lengths: tuple[int, ...],
    capacity: int,
) -> Batches:
    """Includes each of the client's examples with probability q, anew at every step.

    `inclusion` is the largest random word that includes (`poisson.probability_word`).
    Included examples come first, in the order of their random words, so that what a
    full batch cuts off is a uniformly random part that no record influences; how likely
    a cut is, `poisson.overflow_probability` tells. An empty batch is legal.

    A word is drawn for each place of a table. Of ascending lengths of tables, a client
    takes the first that holds its examples: the draws are the same in all of them.
    Shapes: inclusion, size scalars; longest table M -> [steps, min(capacity, M)].
    """
    width = min(capacity, table_lengths[-1])

    def with_length(length: int) -> Batches:
        return _draw(key, inclusion, size, steps, length, width)

    if len(table_lengths) == 1:
        return with_length(table_lengths[0])
    first = jnp.sum(np.asarray(table_lengths, np.int32) < size, dtype=jnp.int32)
    branches = [lambda length=length: with_length(length) for length in table_lengths]
    return jax.lax.switch(first, branches)


def _draw(
    key: jax.Array,
    inclusion: jax.Array,
    size: jax.Array,
    steps: int,
    table_length: int,
    width: int,
) -> Batches:
    """The batches from tables of one length; padded to `width` where that is longer."""

    def words_of_step(step: jax.Array) -> jax.Array:
        # A key per step and a counter per record: the draw of a record does not depend
        # on how long the table is, so neither on which clients are packed with it.
        step_key = jax.random.key_data(jax.random.fold_in(key, step))
        x0, x1 = threefry.hash_counter(
            step_key, threefry.coordinates((table_length,), 0)
        )
        return x0 ^ x1

    words = jax.vmap(words_of_step)(jnp.arange(steps, dtype=jnp.uint32))
    place = jax.lax.broadcasted_iota(jnp.int32, words.shape, 1)
    included = (words <= inclusion) & (place < size)
    # Excluded examples go last with the largest word. Only if everybody is included can
    # an included one have it too: then the others are no examples, and their places are
    # behind, where a stable sort leaves them.
    ranks = jnp.where(included, words, _LARGEST_WORD)
    _, order = jax.lax.sort((ranks, place), dimension=1, num_keys=1, is_stable=True)
    drawn = jnp.sum(included, axis=1, dtype=jnp.int32)
    counts = jnp.minimum(drawn, width)
    positions = order[:, :width]
    missing = width - positions.shape[1]
    return Batches(jnp.pad(positions, ((0, 0), (0, missing))), counts, drawn - counts)
