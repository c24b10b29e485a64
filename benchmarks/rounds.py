"""A round of the engine of any size, compiled ahead of time and ready to be repeated.

Images are random, and every client has the same number of them: what a round costs does
not depend on what is in the pictures.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np

from benchmarks import timing
from benchmarks.plain import CLIP, NOISE, RATE
from dpsparfl_jax.data import packing
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy import poisson
from dpsparfl_jax.runner import tasks
from dpsparfl_jax.training import cohort, keys, local, models, server
from dpsparfl_jax.types import ClientTables, ImageSet, Params, RunConstants

EXAMPLES = 1000  # of a client
KEEP_RATE, OVERFLOW = 0.3, 1e-10


class Size(NamedTuple):
    """How large a round is."""

    batch: int = 16  # expected examples of a local step
    steps: int = 20  # tau
    clients: int = 2  # of each run
    runs: int = 1  # in one program
    devices: int = 1
    padded_sizes: int = 8  # batches are padded to one of so many sizes


class Round(NamedTuple):
    """A compiled round."""

    compiled: Any  # jax.stages.Compiled
    work: timing.Contender  # runs the next round and waits for it
    params: Params  # where every run started


def image_shape(model: str) -> tuple[int, int, int]:
    """Shape of the images that a registered model is made for."""
    return (32, 32, 3) if model.startswith("cifar") else (28, 28, 1)


def random_images(shape: tuple[int, ...], count: int) -> ImageSet:
    """Images of random pixels with random labels."""
    rng = np.random.default_rng(0)
    return ImageSet(
        rng.integers(0, 256, (count, *shape), np.uint8),
        rng.integers(0, 10, count).astype(np.int32),
    )


def use_devices(count: int) -> None:
    """Makes a CPU look like this many devices; call it before JAX has any."""
    if count > 1:
        jax.config.update("jax_num_cpu_devices", count)
    if len(jax.devices()) < count:
        raise InputError(f"there are {len(jax.devices())} devices, not {count}.")


def make_round(net: nn.Module, shape: tuple[int, ...], size: Size) -> Round:
    """The round of this size, by the engine as a user runs it."""
    mesh = cohort.task_mesh(jax.devices()[: size.devices])
    total = size.clients * EXAMPLES
    owned = list(np.arange(total).reshape(size.clients, -1))
    tables = packing.pack_clients([owned] * size.runs, total)
    rate = size.batch / EXAMPLES
    capacity = poisson.batch_capacity(tables.sizes, rate, OVERFLOW)
    first = models.init_params(net, keys.init_key(0), shape)
    spec = local.make_spec(
        net,
        first,
        shape,
        steps=size.steps,
        padded_sizes=poisson.padded_sizes(EXAMPLES, rate, capacity, size.padded_sizes),
        table_lengths=(EXAMPLES,),
    )
    step: Any = cohort.make_cohort_step(spec, mesh=mesh)
    params = jax.tree.map(lambda leaf: np.stack([leaf] * size.runs), first)
    roots = keys.root_key_words(np.arange(size.runs))
    constants = RunConstants(roots, server.plain_rates(size.runs))
    images = random_images(shape, total)
    state, records, constants, rows = cohort.replicate(
        (
            server.make_server().init(params),
            local.Records(images, tables.rows),
            constants,
            _tasks(tables, size, capacity),
        ),
        mesh,
    )
    compiled = step.lower(state, records, constants, rows).compile()
    turn = 0

    def work() -> int:
        nonlocal state, turn
        turn += 1
        now = np.full(rows.run.shape, turn, np.int32)
        todo = rows._replace(round=cohort.replicate(now, mesh))
        state, diagnostics = compiled(state, records, constants, todo)
        return int(diagnostics.examples.sum())

    return Round(compiled, work, first)


def _tasks(tables: ClientTables, size: Size, capacity: int) -> Any:
    """Every client of every run trains."""
    run, client = np.indices((size.runs, size.clients)).reshape(2, -1)
    return tasks.make_tasks(
        tables,
        run=run,
        client=client,
        round_index=0,
        keep_rate=KEEP_RATE,
        clip_norm=CLIP,
        noise_multiplier=NOISE,
        learning_rate=RATE,
        batch_size=size.batch,
        capacity=capacity,
        overflow_probability=OVERFLOW,
    )


def seconds(work: Callable[[], Any], repeats: int) -> list[float]:
    """How long each of these calls takes, after one that does not count."""
    work()
    elapsed = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        elapsed.append(time.perf_counter() - start)
    return elapsed


def planned_bytes(compiled: Any) -> int:
    """Memory that XLA plans on one device: arguments, results and what is between.

    A result that is written over a donated argument is counted once.
    """
    plan = compiled.memory_analysis()
    return (
        plan.argument_size_in_bytes
        + plan.output_size_in_bytes
        + plan.temp_size_in_bytes
        - plan.alias_size_in_bytes
    )
