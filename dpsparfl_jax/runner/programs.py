"""Compiled programs, shared by all runs that differ in data only."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from numpy.typing import NDArray

from dpsparfl_jax import config_values
from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.registry import LAYER_RULES, MODELS, OPTIMIZERS, SPARSIFIERS
from dpsparfl_jax.runner import devices
from dpsparfl_jax.runner.run import Outline
from dpsparfl_jax.training import (
    cohort,
    evaluate,
    keys,
    local,
    models,
    norms,
    optimizers,
    placement,
    server,
)
from dpsparfl_jax.types import Array, Params, ServerState


class ProgramKey(NamedTuple):
    """All that a program is compiled around."""

    static: tuple[tuple[str, Any], ...]  # settings declared as static
    entries: tuple[Any, ...]  # what their names stand for
    num_classes: int
    image_shape: tuple[int, ...]
    padded_sizes: tuple[int, ...]
    table_lengths: tuple[int, ...]
    devices: tuple[jax.Device, ...]


class Program(NamedTuple):
    """What is compiled for a batch of runs."""

    mesh: Mesh
    init: Callable[[jax.Array], Params]  # key -> parameters of one run
    server_init: Callable[[Params], ServerState]  # leaves [R, ...]
    client_init: Callable[[Params, int], Any]  # of one run, how many clients
    step: cohort.CohortStep
    tasks_of_devices: Callable[[int], list[NDArray[np.intp]]]  # of so many tasks
    evaluate: evaluate.Evaluate
    norms: norms.GradientNorms
    take: Callable[[ServerState, Array], ServerState]  # a copy of one run's state


def program_key(settings: RunConfig, outline: Outline) -> ProgramKey:
    """What the program of these settings is compiled around."""
    named = (
        (MODELS, settings.model.name),
        (OPTIMIZERS, settings.training.optimizer),
        (OPTIMIZERS, settings.server.optimizer),
        (SPARSIFIERS, settings.training.sparsifier),
    )
    return ProgramKey(
        tuple(config_values.static(settings).items()),
        (*(registry.get(name) for registry, name in named), LAYER_RULES.registered()),
        outline.num_classes,
        tuple(outline.image_shape),
        outline.padded_sizes,
        outline.table_lengths,
        devices.chosen_devices(settings),
    )


@functools.lru_cache(maxsize=8)
def get_program(key: ProgramKey) -> Program:
    """The program for this key, made once a process."""
    mesh = cohort.task_mesh(list(key.devices))
    chosen, shape = dict(key.static), key.image_shape
    model = models.make_model(chosen["model.name"], key.num_classes)
    init = jax.jit(lambda seeded: models.init_params(model, seeded, shape))
    shapes = jax.eval_shape(init, jax.random.key(0))
    execution = chosen["perf.execution"]
    method, kernels = chosen["perf.clipping_method"], chosen["perf.kernels"]
    spec = local.make_spec(
        model,
        shapes,
        shape,
        steps=chosen["training.local_steps"],
        padded_sizes=key.padded_sizes,
        table_lengths=key.table_lengths,
        microbatch=chosen["perf.microbatch"],
        method=method,
        kernels=kernels,
        optimizer=chosen["training.optimizer"],
        sparsifier=chosen["training.sparsifier"],
        generator=chosen["privacy.generator"],
    )
    return Program(
        mesh,
        init,
        jax.jit(server.make_server(chosen["server.optimizer"]).init),
        _clients_init(chosen["training.optimizer"], chosen["training.optimizer_state"]),
        cohort.make_cohort_step(
            spec,
            server_optimizer=chosen["server.optimizer"],
            execution=execution,
            chunk_size=chosen["perf.chunk_size"],
            ordered_sums=chosen["perf.ordered_sums"],
            mesh=mesh,
        ),
        functools.partial(
            placement.tasks_of_devices,
            devices=mesh.size,
            steps=spec.steps,
            execution=cohort.resolve_execution(execution, key.devices[0].platform),
            chunk_size=chosen["perf.chunk_size"],
            ordered_sums=chosen["perf.ordered_sums"],
        ),
        evaluate.make_evaluate(
            model,
            shape,
            batch_size=chosen["perf.eval_batch_size"],
            execution=execution,
            kernels=kernels,
            mesh=mesh,
        ),
        _when_asked(
            lambda: norms.make_gradient_norms(
                model, shapes, shape, method=method, kernels=kernels
            )
        ),
        jax.jit(_take),
    )


def _when_asked(make: Callable[[], norms.GradientNorms]) -> norms.GradientNorms:
    """Few runs measure norms: the model is opened for it when one does."""
    made = functools.cache(make)
    return lambda params, images: made()(params, images)


def _take(state: ServerState, run: jax.Array) -> ServerState:
    return jax.tree.map(lambda leaf: leaf[run], state)


def _clients_init(optimizer: str, state: str) -> Callable[[Params, int], Any]:
    """First states of clients' optimizers, [U, ...], if clients keep theirs."""
    factory = optimizers.get_optimizer(optimizer)

    def init(params: Params, clients: int) -> Any:
        if state == "reset":
            return None
        first = jax.device_get(factory(np.float32(1), np.float32(0)).init(params))
        return jax.tree.map(lambda leaf: np.stack([leaf] * clients), first)

    return init


def initial_state(program: Program, seed: int, num_clients: int) -> ServerState:
    """The server's state that a run with this seed starts from, on the host."""
    params = jax.device_get(program.init(keys.init_key(seed)))
    batched = jax.tree.map(lambda leaf: leaf[None], params)
    first = jax.device_get(program.server_init(batched))
    one = jax.tree.map(lambda leaf: leaf[0], first)
    return one._replace(clients=program.client_init(params, num_clients))
