"""Compiled programs, shared by all runs that differ in data only."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.simulation.inputs import Outline
from dpsparfl_jax.training import cohort, evaluate, keys, local, models, norms
from dpsparfl_jax.types import Array, Params


class ProgramKey(NamedTuple):
    """All that a program is compiled around."""

    factory: models.ModelFactory
    num_classes: int
    image_shape: tuple[int, ...]
    steps: int
    padded_sizes: tuple[int, ...]
    method: str
    optimizer: str
    mask: str
    generator: str
    execution: str
    chunk_size: int
    eval_batch_size: int
    devices: tuple[Any, ...]


class Program(NamedTuple):
    """What is compiled for a batch of runs."""

    mesh: Mesh
    init: Callable[[jax.Array], Params]  # key -> parameters of one run
    step: cohort.CohortStep
    evaluate: evaluate.Evaluate
    norms: norms.GradientNorms
    take: Callable[[Params, Array], Params]  # a copy of one run's parameters


def chosen_devices(count: int) -> tuple[jax.Device, ...]:
    """The first `count` devices; 0 means all."""
    devices = tuple(jax.devices())
    if count > len(devices):
        raise InputError(
            f"perf.devices asks for {count} devices, but there are {len(devices)}."
        )
    return devices[:count] if count else devices


def program_key(settings: RunConfig, known: Outline) -> ProgramKey:
    """What the program of these settings is compiled around."""
    training, perf = settings.training, settings.perf
    return ProgramKey(
        models.get_factory(settings.model.name),
        known.num_classes,
        tuple(known.image_shape),
        training.local_steps,
        known.padded_sizes,
        perf.clipping_method,
        training.optimizer,
        training.mask,
        settings.privacy.generator,
        perf.execution,
        perf.chunk_size,
        perf.eval_batch_size,
        chosen_devices(perf.devices),
    )


@functools.lru_cache(maxsize=8)
def get_program(key: ProgramKey) -> Program:
    """The program for this key, made once a process."""
    mesh = cohort.task_mesh(list(key.devices))
    model, shape = key.factory(key.num_classes), key.image_shape
    init = jax.jit(lambda seeded: models.init_params(model, seeded, shape))
    shapes = jax.eval_shape(init, jax.random.key(0))
    spec = local.make_spec(
        model,
        shapes,
        shape,
        steps=key.steps,
        padded_sizes=key.padded_sizes,
        method=key.method,
        optimizer=key.optimizer,
        mask_kind=key.mask,
        generator=key.generator,
    )
    return Program(
        mesh,
        init,
        cohort.make_cohort_step(
            spec, execution=key.execution, chunk_size=key.chunk_size, mesh=mesh
        ),
        evaluate.make_evaluate(
            model,
            shape,
            batch_size=key.eval_batch_size,
            execution=key.execution,
        ),
        norms.make_gradient_norms(model, shapes, key.image_shape, method=key.method),
        jax.jit(_take),
    )


def _take(params: Params, run: jax.Array) -> Params:
    return jax.tree.map(lambda leaf: leaf[run], params)


def initial_params(program: Program, seed: int) -> Params:
    """The parameters that a run with this seed starts from, on the host."""
    return jax.device_get(program.init(keys.init_key(seed)))
