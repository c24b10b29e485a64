"""The server's step: data-weighted mean of the updates within each run."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpsparfl_jax.types import Params


class RunSums(NamedTuple):
    """Running sums over the tasks of each run."""

    updates: Params  # leaves [R, ...]: sum of weight * update
    weights: jax.Array  # [R]: sum of weights


def zero_sums(params: Params) -> RunSums:
    """Sums before any task; `params` has leaves [R, ...]."""
    runs = jax.tree.leaves(params)[0].shape[0]
    return RunSums(
        jax.tree.map(jnp.zeros_like, params), jnp.zeros((runs,), jnp.float32)
    )


def add_updates(
    sums: RunSums, updates: Any, weights: jax.Array, runs: jax.Array
) -> RunSums:
    """Adds a chunk of tasks: updates [c, ...], weights [c], runs [c]."""

    def add(total: jax.Array, update: jax.Array) -> jax.Array:
        scaled = update * weights.reshape(-1, *[1] * (update.ndim - 1))
        if runs.shape[0] == 1:  # stays in place on CPU, where a scatter would copy
            row = jax.lax.dynamic_slice_in_dim(total, runs[0], 1)
            return jax.lax.dynamic_update_slice_in_dim(total, row + scaled, runs[0], 0)
        return total.at[runs].add(scaled)

    return RunSums(
        jax.tree.map(add, sums.updates, updates), sums.weights.at[runs].add(weights)
    )


def server_step(params: Params, sums: RunSums) -> Params:
    """W + sum_i p_i update_i, p_i the client's share of the data that arrived.

    Paper: section II, aggregation.  A run with no update keeps its parameters.
    """
    arrived = sums.weights > 0
    safe = jnp.where(arrived, sums.weights, np.float32(1))

    def one_leaf(leaf: jax.Array, total: jax.Array) -> jax.Array:
        shape = (-1, *[1] * (total.ndim - 1))
        moved = leaf + total / safe.reshape(shape)
        return jnp.where(arrived.reshape(shape), moved, leaf)  # to the bit

    return jax.tree.map(one_leaf, params, sums.updates)
