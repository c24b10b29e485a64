"""Small worlds that several test files share."""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np

from dpsparfl_jax.data import packing
from dpsparfl_jax.runner import tasks
from dpsparfl_jax.training import cohort, keys, local, models, server
from dpsparfl_jax.types import ClientTables, ImageSet, RunConstants

SHAPE = (8, 8, 1)


class World(NamedTuple):
    model: str
    net: Any
    data: ImageSet
    tables: ClientTables
    params: Any  # leaves [R, ...]
    roots: np.ndarray


@functools.cache
def cached_init(model: str, shape: tuple[int, ...], seed: int = 0) -> Any:
    """Initial parameters; compiling an initializer takes seconds."""
    net = models.make_model(model)
    return jax.device_get(models.init_params(net, keys.init_key(seed), shape))


@functools.cache
def make_world(model="small_cnn", clients=6, examples=30, seeds=(0,)) -> World:
    """Runs with their own partitions, seeds and initial parameters."""
    rng = np.random.default_rng(7)
    total = clients * examples
    data = ImageSet(
        rng.integers(0, 256, (total, *SHAPE), np.uint8),
        rng.integers(0, 10, total).astype(np.int32),
    )
    deals = [
        np.random.default_rng(seed).permutation(total).reshape(clients, examples)
        for seed in seeds
    ]
    # Clients own different numbers of examples, so that weights and padding matter.
    lists = [[deal[i][: examples - 2 * i] for i in range(clients)] for deal in deals]
    net = models.make_model(model)
    inits = [cached_init(model, SHAPE, seed) for seed in seeds]
    params = jax.tree.map(lambda *leaves: np.stack(leaves), *inits)
    return World(
        model,
        net,
        data,
        packing.pack_clients(lists, total),
        params,
        keys.root_key_words(seeds),
    )


def first_params(world: World, run: int = 0) -> Any:
    return jax.tree.map(lambda leaf: leaf[run], world.params)


def make_spec(world: World, **changes) -> local.LocalSpec:
    lengths = packing.table_lengths(world.tables.sizes)
    settings = {
        "steps": 3,
        "padded_sizes": (6, 12),
        "table_lengths": lengths,
        **changes,
    }
    return local.make_spec(world.net, first_params(world), SHAPE, **settings)


def make_tasks(world: World, **changes):
    settings = {
        "run": 0,
        "client": np.arange(4),
        "round_index": 0,
        "keep_rate": np.array([0.3, 0.5, 0.8, 1.0]),
        "clip_norm": 1.0,
        "noise_multiplier": 0.5,
        "learning_rate": 0.1,
        "batch_size": 4,
        "capacity": 12,
        "overflow_probability": 1e-2,
        **changes,
    }
    return tasks.make_tasks(world.tables, **settings)


@functools.cache
def cohort_step(model: str, execution: str, devices: int):
    mesh = cohort.task_mesh(jax.devices()[:devices])
    spec = make_spec(make_world(model))
    step = cohort.make_cohort_step(spec, mesh=mesh, execution=execution, chunk_size=3)
    return mesh, step


def run_round(world: World, rows, execution="map", devices=1):
    """One cohort round; returns new parameters and diagnostics as NumPy."""
    mesh, step = cohort_step(world.model, execution, devices)
    inputs = cohort.replicate(round_inputs(world, rows), mesh)
    state, diagnostics = jax.device_get(step(*inputs))
    return state.params, diagnostics


def round_inputs(world: World, rows):
    """All that a cohort step takes; the plain server has no state of its own."""
    state = server.make_server().init(world.params)
    constants = RunConstants(world.roots, server.plain_rates(len(world.roots)))
    return state, records(world), constants, rows


def records(world: World) -> local.Records:
    """All images, and who owns which."""
    return local.Records(world.data, world.tables.rows)
