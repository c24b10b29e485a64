"""Poisson subsampling into fixed shapes: the event that the accountant composes."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpsparfl_jax.training import threefry


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
    table_length: int,
    capacity: int,
) -> Batches:
    """Includes each of the client's examples with probability q, anew at every step.

    `inclusion` is the largest random word that includes (`packing.probability_word`).
    Included examples come first, in the order of their random words, so that what a
    full batch cuts off is a uniformly random part that no record influences; how likely
    a cut is, `packing.overflow_probability` tells. An empty batch is legal.
    Shapes: inclusion, size scalars; table_length M -> [steps, min(capacity, M)].
    """

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
    excluded = jnp.logical_not(included).astype(jnp.uint32)
    _, _, order = jax.lax.sort((excluded, words, place), dimension=1, num_keys=2)
    width = min(capacity, table_length)
    drawn = jnp.sum(included, axis=1, dtype=jnp.int32)
    counts = jnp.minimum(drawn, width)
    return Batches(order[:, :width], counts, drawn - counts)
