"""All tasks of a round, of all runs of a grid, in one compiled program.

How the task axis is executed is a performance choice that moves no result beyond
float rounding: `map` runs tasks one after another (best on CPU, where one task already
fills the cores), `vmap` all at once (best on accelerators), `chunked` in vmapped
chunks; each over any number of devices.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.training import server as server_lib
from dpsparfl_jax.training.diagnostics import Diagnostics
from dpsparfl_jax.training.local import (
    ClientRecords,
    LocalSpec,
    check_images,
    train_client,
)
from dpsparfl_jax.types import (
    ClientTables,
    ImageSet,
    LocalResult,
    Params,
    RunConstants,
    ServerState,
    Tasks,
)

EXECUTIONS = ("auto", "map", "vmap", "chunked")
_AXIS = "tasks"

CohortStep = Callable[
    [ServerState, ImageSet, ClientTables, RunConstants, Tasks],
    tuple[ServerState, Diagnostics],
]


def task_mesh(devices: list[jax.Device] | None = None) -> Mesh:
    """A mesh over which tasks are spread: all devices unless given."""
    return Mesh(np.array(devices or jax.devices()), (_AXIS,))


def replicate(tree: Any, mesh: Mesh | None = None) -> Any:
    """Puts arrays on every device of a mesh (one device unless given).

    Everything a cohort step takes goes through here, once: arrays that are where the
    compiled program wants them are neither moved nor do they cause a second compile.
    What is there already is not copied, and a cohort step uses up the state it is
    given.
    """
    mesh = mesh or task_mesh(jax.devices()[:1])
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))


def resolve_execution(execution: str, backend: str) -> str:
    """The execution that `auto` means on this backend."""
    if execution not in EXECUTIONS:
        raise InputError(
            f"unknown execution {execution!r}: choose one of {', '.join(EXECUTIONS)}."
        )
    if execution != "auto":
        return execution
    return "map" if backend == "cpu" else "chunked"


def make_cohort_step(
    spec: LocalSpec,
    *,
    server_optimizer: str = "plain",
    execution: str = "auto",
    chunk_size: int = 32,
    mesh: Mesh | None = None,
) -> CohortStep:
    """Compiled `(state, data, tables, constants, tasks) -> new state, diagnostics`.

    Shapes: state leaves [R, ...], constants [R], tasks [K]; diagnostics [K]. K is
    padded inside to fill chunks and devices. The incoming state is donated.
    """
    server = server_lib.make_server(server_optimizer)
    mesh = mesh or task_mesh(jax.devices()[:1])
    execution = resolve_execution(execution, mesh.devices.flat[0].platform)
    if chunk_size < 1:
        raise InputError("the chunk size must be at least 1.")

    def step(
        state: ServerState,
        data: ImageSet,
        tables: ClientTables,
        constants: RunConstants,
        tasks: Tasks,
    ) -> tuple[ServerState, Diagnostics]:
        check_images(data, spec.image_shape)
        count = tasks.run.shape[0]
        each = -(-count // mesh.size)  # tasks of one device
        chunk = {"map": 1, "vmap": each, "chunked": min(chunk_size, each)}[execution]
        padded = _pad_tasks(tasks, mesh.size * chunk * -(-each // chunk))

        def on_device(
            params: Params,
            data: ImageSet,
            tables: ClientTables,
            root_keys: jax.Array,
            device_tasks: Tasks,
        ) -> tuple[server_lib.RunSums, Diagnostics]:
            sums, diagnostics = _train_tasks(
                spec, chunk, params, data, tables, root_keys, device_tasks
            )
            return jax.lax.psum(sums, _AXIS), diagnostics

        everywhere, split = PartitionSpec(), PartitionSpec(_AXIS)
        sums, diagnostics = jax.shard_map(
            on_device,
            mesh=mesh,
            in_specs=(everywhere, everywhere, everywhere, everywhere, split),
            out_specs=(everywhere, split),
            check_vma=False,
        )(state.params, data, tables, constants.root_key, padded)
        new = server.step(state, sums, constants.server_learning_rate)
        return new, jax.tree.map(lambda leaf: leaf[:count], diagnostics)

    replicated = NamedSharding(mesh, PartitionSpec())
    return jax.jit(step, donate_argnums=0, out_shardings=replicated)


def _pad_tasks(tasks: Tasks, length: int) -> Tasks:
    """Appends idle slots: copies of the first row that are not active."""
    extra = length - tasks.run.shape[0]

    def one_leaf(leaf: jax.Array) -> jax.Array:
        return jnp.concatenate([leaf, jnp.repeat(leaf[:1], extra)])

    padded = jax.tree.map(one_leaf, tasks)
    idle = jnp.concatenate([tasks.active, jnp.zeros((extra,), bool)])
    return padded._replace(active=idle)


def _train_tasks(
    spec: LocalSpec,
    chunk: int,
    params: Params,
    data: ImageSet,
    tables: ClientTables,
    root_keys: jax.Array,
    tasks: Tasks,
) -> tuple[server_lib.RunSums, Diagnostics]:
    """Trains the tasks chunk by chunk, adding up updates so that none are kept."""

    def one_task(task: Tasks) -> tuple[LocalResult, jax.Array]:
        server = jax.tree.map(lambda leaf: leaf[task.run], params)
        size = tables.sizes[task.run, task.client]
        records = ClientRecords(tables.indices[task.run, task.client], size)
        root = root_keys[task.run]
        result = train_client(
            spec, server, data, records, task, root, choose_size=chunk == 1
        )
        arrived = task.active & ~result.diagnostics.diverged
        weight = jnp.where(arrived, size.astype(jnp.float32), np.float32(0))
        return result, weight

    def one_at_a_time(task: Tasks) -> tuple[LocalResult, jax.Array]:
        shapes = jax.eval_shape(one_task, task)
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return jax.lax.cond(task.active, one_task, lambda _: nothing, task)

    def one_chunk(
        sums: server_lib.RunSums, tasks: Tasks
    ) -> tuple[server_lib.RunSums, Diagnostics]:
        if chunk == 1:
            single = one_at_a_time(jax.tree.map(lambda leaf: leaf[0], tasks))
            result, weights = jax.tree.map(lambda leaf: leaf[None], single)
        else:
            result, weights = jax.vmap(one_task)(tasks)
        sums = server_lib.add_updates(sums, result.update, weights, tasks.run)
        return sums, _silence_idle(result.diagnostics, tasks.active)

    chunks = jax.tree.map(lambda leaf: leaf.reshape(-1, chunk), tasks)
    sums, diagnostics = jax.lax.scan(one_chunk, server_lib.zero_sums(params), chunks)
    return sums, jax.tree.map(lambda leaf: leaf.reshape(-1), diagnostics)


def _silence_idle(diagnostics: Diagnostics, active: jax.Array) -> Diagnostics:
    return jax.tree.map(
        lambda leaf: jnp.where(active, leaf, jnp.zeros_like(leaf)), diagnostics
    )
