"""The server's round: mean of the updates within each run, then an optimizer's step.

The state of the server (parameters, optimizer and average) is batched over runs: every
leaf of a `ServerState` has a leading axis [R]. All of it is post-processing of private
updates, or known from the plan: it costs no privacy.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpsparfl_jax.training.optimizers import get_optimizer
from dpsparfl_jax.types import Params, ServerRates, ServerState

_ONE = np.float32(1)


class RunSums(NamedTuple):
    """Running sums over the tasks of each run."""

    updates: Params  # leaves [R, ...]: sum of weight * update
    weights: jax.Array  # [R]: sum of weights


class Server(NamedTuple):
    """What the server does with a round: how it begins, and its step."""

    init: Callable[[Params], ServerState]  # leaves [R, ...] -> state before round one
    step: Callable[[ServerState, RunSums, ServerRates], ServerState]


def plain_rates(runs: int, learning_rate: float = 1.0) -> ServerRates:
    """Rates of a server that divides by what arrived and averages no models."""
    one = np.ones(runs, np.float32)
    return ServerRates(one * np.float32(learning_rate), 0 * one, one, 0 * one)


def zero_sums(params: Params) -> RunSums:
    """Sums before any task; `params` has leaves [R, ...]."""
    runs = jax.tree.leaves(params)[0].shape[0]
    return RunSums(
        jax.tree.map(jnp.zeros_like, params), jnp.zeros((runs,), jnp.float32)
    )


def add_updates(
    sums: RunSums,
    updates: Any,
    weights: jax.Array,
    scales: jax.Array,
    runs: jax.Array,
) -> RunSums:
    """Adds a chunk of tasks: updates [c, ...]; weights, scales and runs [c]."""
    factors = weights * scales

    def add(total: jax.Array, update: jax.Array) -> jax.Array:
        scaled = update * factors.reshape(-1, *[1] * (update.ndim - 1))
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
    p_i the client's share of the data that arrived (paper: section II, aggregation), or
    of a total that is fixed beforehand. A run with no update keeps its whole state, to
    the bit. The first state of an optimizer must not depend on its rate, which is data.
    """
    factory = get_optimizer(optimizer)

    def init(params: Params) -> ServerState:
        first = jax.vmap(lambda one: factory(_ONE, _ONE).init(one))(params)
        # Not the same buffers twice: a cohort step uses up what it is given.
        return ServerState(params, first, jax.tree.map(jnp.copy, params))

    def one_run(state: ServerState, sums: RunSums, rates: ServerRates) -> ServerState:
        arrived = sums.weights > 0
        total = jnp.where(rates.total_weight > 0, rates.total_weight, sums.weights)
        safe = jnp.where(arrived, total, _ONE)
        # XLA divides by multiplying with the inverse, on several devices not always:
        # said outright, all is rounded alike.
        inverse = _ONE / safe
        gradient = jax.tree.map(lambda total: -(total * inverse), sums.updates)
        updates, inner = factory(rates.learning_rate, rates.momentum).update(
            gradient, state.optimizer, state.params
        )
        params = optax.apply_updates(state.params, updates)

        def average(old: jax.Array, new: jax.Array) -> jax.Array:
            closer = old + rates.averaging * (new - old)
            return jnp.where(rates.averaging < _ONE, closer, new)

        moved = ServerState(params, inner, jax.tree.map(average, state.average, params))
        return jax.tree.map(lambda new, old: jnp.where(arrived, new, old), moved, state)

    def step(state: ServerState, sums: RunSums, rates: ServerRates) -> ServerState:
        own = state._replace(clients=None)  # theirs is not the server's to change
        return jax.vmap(one_run)(own, sums, rates)._replace(clients=state.clients)

    return Server(init, step)
