"""The server's round: mean of the updates within each run, then an optimizer's step.

The state of the server (parameters and optimizer) is batched over runs: every leaf of a
`ServerState` has a leading axis [R].
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpsparfl_jax.registry import OPTIMIZERS
from dpsparfl_jax.types import Params, ServerState


class RunSums(NamedTuple):
    """Running sums over the tasks of each run."""

    updates: Params  # leaves [R, ...]: sum of weight * update
    weights: jax.Array  # [R]: sum of weights


class Server(NamedTuple):
    """What the server does with a round: how it begins, and its step."""

    init: Callable[[Params], ServerState]  # leaves [R, ...] -> state before round one
    step: Callable[[ServerState, RunSums, jax.Array], ServerState]  # rates are [R]


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


def make_server(optimizer: str = "plain") -> Server:
    """The server with a registered optimizer; `plain` adds the mean update.

    The optimizer is given the negative mean update as its gradient: sum_i p_i update_i,
    p_i the client's share of the data that arrived (paper: section II, aggregation). A
    run with no update keeps its whole state, to the bit. The first state of an
    optimizer must not depend on its rate, which is data.
    """
    factory: Callable[[Any], optax.GradientTransformation] = OPTIMIZERS.get(optimizer)

    def init(params: Params) -> ServerState:
        first = jax.vmap(lambda one: factory(np.float32(1)).init(one))(params)
        return ServerState(params, first)

    def one_run(
        state: ServerState, sums: RunSums, learning_rate: jax.Array
    ) -> ServerState:
        arrived = sums.weights > 0
        safe = jnp.where(arrived, sums.weights, np.float32(1))
        gradient = jax.tree.map(lambda total: -(total / safe), sums.updates)
        updates, inner = factory(learning_rate).update(
            gradient, state.optimizer, state.params
        )
        moved = ServerState(optax.apply_updates(state.params, updates), inner)
        return jax.tree.map(lambda new, old: jnp.where(arrived, new, old), moved, state)

    return Server(init, jax.vmap(one_run))
