"""All tasks of a round, of all runs of a grid, in one compiled program.

How the task axis is executed is a performance choice that moves no result beyond
float rounding: `map` runs the tasks of a device one after another (best on CPU, with a
device for each core), `vmap` all at once (best on accelerators), `chunked` in vmapped
chunks; each over any number of devices.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

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
    LocalState,
    advance,
    begin,
    check_images,
    finish,
    prepare,
    train_client,
)
from dpsparfl_jax.training.placement import Placement, place
from dpsparfl_jax.types import (
    Array,
    ClientTables,
    ImageSet,
    LocalResult,
    Params,
    RunConstants,
    ServerState,
    Tasks,
)

EXECUTIONS = ("auto", "map", "vmap", "chunked")
AXIS = "tasks"  # of the mesh of devices

CohortStep = Callable[
    [ServerState, ImageSet, ClientTables, RunConstants, Tasks],
    tuple[ServerState, Diagnostics],
]


class World(NamedTuple):
    """What every task of a round may look at, on every device."""

    params: Params  # leaves [R, ...]
    data: ImageSet
    tables: ClientTables
    root_keys: jax.Array  # [R, 2]


def task_mesh(devices: list[jax.Device] | None = None) -> Mesh:
    """A mesh over which tasks are spread: all devices unless given."""
    return Mesh(np.array(devices or jax.devices()), (AXIS,))


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
        world = World(state.params, data, tables, constants.root_key)
        count = tasks.run.shape[0]
        each = -(-count // mesh.size)  # tasks of one device
        chunk = {"map": 1, "vmap": each, "chunked": min(chunk_size, each)}[execution]
        if chunk == 1:
            placement = place(count, mesh.size, spec.steps)
            sums, diagnostics = _train_one_by_one(spec, placement, mesh, world, tasks)
        else:
            sums, diagnostics = _train_chunks(spec, chunk, mesh, world, tasks)
        with jax.named_scope("aggregation"):
            new = server.step(state, sums, constants.server)
        return new, diagnostics

    replicated = NamedSharding(mesh, PartitionSpec())
    return jax.jit(step, donate_argnums=0, out_shardings=replicated)


def _on_devices(function: Callable[..., Any], mesh: Mesh) -> Callable[..., Any]:
    """`function(world, tasks)` on every device with its own tasks.

    Gives sums, the same on all devices, and the diagnostics of all tasks.
    """
    everywhere, split = PartitionSpec(), PartitionSpec(AXIS)
    return jax.shard_map(
        function,
        mesh=mesh,
        in_specs=(everywhere, split),
        out_specs=(everywhere, split),
        check_vma=False,
    )


def _records(world: World, task: Tasks) -> ClientRecords:
    """The records of a task's client."""
    tables = world.tables
    size = tables.sizes[task.run, task.client]
    return ClientRecords(tables.indices[task.run, task.client], size)


def _weight(result: LocalResult, task: Tasks, counts: Array) -> jax.Array:
    """What an update weighs in the mean; nothing if it does not count."""
    arrived = counts & ~result.diagnostics.diverged
    return jnp.where(arrived, task.weight, np.float32(0))


def _nothing(function: Callable[..., Any], *arguments: Any) -> Any:
    """Zeros in the shapes of what a function returns."""
    shapes = jax.eval_shape(function, *arguments)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def _train_chunks(
    spec: LocalSpec, chunk: int, mesh: Mesh, world: World, tasks: Tasks
) -> tuple[server_lib.RunSums, Diagnostics]:
    """Trains tasks in vmapped chunks, adding up updates so that none are kept."""
    count = tasks.run.shape[0]

    def one_task(world: World, task: Tasks) -> tuple[LocalResult, jax.Array]:
        server = jax.tree.map(lambda leaf: leaf[task.run], world.params)
        records = _records(world, task)
        root = world.root_keys[task.run]
        result = train_client(
            spec, server, world.data, records, task, root, choose_size=False
        )
        return result, _weight(result, task, task.active)

    def on_device(world: World, tasks: Tasks) -> tuple[server_lib.RunSums, Diagnostics]:
        def one_chunk(
            sums: server_lib.RunSums, tasks: Tasks
        ) -> tuple[server_lib.RunSums, Diagnostics]:
            result, weights = jax.vmap(one_task, (None, 0))(world, tasks)
            with jax.named_scope("aggregation"):
                sums = server_lib.add_updates(
                    sums, result.update, weights, tasks.scale, tasks.run
                )
            return sums, _silence_idle(result.diagnostics, tasks.active)

        chunks = jax.tree.map(lambda leaf: leaf.reshape(-1, chunk), tasks)
        zero = server_lib.zero_sums(world.params)
        sums, diagnostics = jax.lax.scan(one_chunk, zero, chunks)
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1), diagnostics)
        with jax.named_scope("aggregation"):
            return jax.lax.psum(sums, AXIS), flat

    chunks = -(-count // (mesh.size * chunk))  # of one device
    padded = _pad_tasks(tasks, mesh.size * chunk * chunks)
    sums, diagnostics = _on_devices(on_device, mesh)(world, padded)
    return sums, jax.tree.map(lambda leaf: leaf[:count], diagnostics)


def _pad_tasks(tasks: Tasks, length: int) -> Tasks:
    """Appends idle slots: copies of the first row that are not active."""
    extra = length - tasks.run.shape[0]

    def one_leaf(leaf: jax.Array) -> jax.Array:
        return jnp.concatenate([leaf, jnp.repeat(leaf[:1], extra)])

    padded = jax.tree.map(one_leaf, tasks)
    idle = jnp.concatenate([tasks.active, jnp.zeros((extra,), bool)])
    return padded._replace(active=idle)


def _silence_idle(diagnostics: Diagnostics, active: jax.Array) -> Diagnostics:
    return jax.tree.map(
        lambda leaf: jnp.where(active, leaf, jnp.zeros_like(leaf)), diagnostics
    )


class _Slot(NamedTuple):
    """Some steps of a task, on one device."""

    task: Tasks  # not active: nothing to do
    first: jax.Array
    last: jax.Array
    opens: jax.Array  # whether it is the first slot of its phase


class _SlotResult(NamedTuple):
    """What a slot leaves: zeros until its task has ended."""

    update: Params
    weight: jax.Array
    scale: jax.Array
    run: jax.Array
    diagnostics: Diagnostics


def _train_one_by_one(
    spec: LocalSpec, placement: Placement, mesh: Mesh, world: World, tasks: Tasks
) -> tuple[server_lib.RunSums, Diagnostics]:
    """Trains tasks as `placement` says; updates are added in the order of tasks."""

    def on_device(
        world: World, slots: tuple[_Slot, jax.Array]
    ) -> tuple[server_lib.RunSums, Diagnostics]:
        own = jax.tree.map(lambda leaf: leaf[0], slots)
        run_slot = functools.partial(_run_slot, spec, world)
        some_slot = jax.tree.map(lambda leaf: leaf[0, 0], own[0])
        # Between tasks that change hands; without any, no state is ever kept.
        nothing = _nothing(functools.partial(_first_state, spec, world), some_slot)
        if not placement.handover:
            nothing = None

        def one_phase(
            carry: tuple[server_lib.RunSums, LocalState | None],
            phase: tuple[_Slot, jax.Array],
        ) -> tuple[Any, Diagnostics]:
            sums, resumed = carry
            slots, order = phase

            def one_slot(states: Any, slot: _Slot) -> tuple[Any, _SlotResult]:
                opened, latest = states
                state, result = run_slot(slot, resumed, latest)
                opened = jax.lax.cond(slot.opens, lambda: state, lambda: opened)
                return (opened, state), result

            states, results = jax.lax.scan(one_slot, (nothing, nothing), slots)
            sums = _add_in_order(sums, results, order, mesh.size)
            if placement.handover:
                resumed = _hand_over(placement, *states)
            return (sums, resumed), results.diagnostics

        zero = server_lib.zero_sums(world.params)
        (sums, _), diagnostics = jax.lax.scan(one_phase, (zero, nothing), own)
        return sums, jax.tree.map(lambda leaf: leaf.reshape(-1), diagnostics)

    slots = _lay_out(placement, tasks)
    order = jnp.broadcast_to(placement.order, (mesh.size, *placement.order.shape))
    sums, diagnostics = _on_devices(on_device, mesh)(world, (slots, order))
    return sums, jax.tree.map(lambda leaf: leaf[placement.ended], diagnostics)


def _lay_out(placement: Placement, tasks: Tasks) -> _Slot:
    """The rows of all slots: leaves [devices, phases, slots]."""
    used = placement.task >= 0
    rows = jax.tree.map(lambda leaf: leaf[np.maximum(placement.task, 0)], tasks)
    rows = rows._replace(active=rows.active & used)
    opens = np.zeros(placement.task.shape, bool)
    opens[..., 0] = True
    first, last = jnp.asarray(placement.first), jnp.asarray(placement.last)
    return _Slot(rows, first, last, jnp.asarray(opens))


def _first_state(spec: LocalSpec, world: World, slot: _Slot) -> LocalState:
    """The state of a slot's task before its first step."""
    task = slot.task
    server = jax.tree.map(lambda leaf: leaf[task.run], world.params)
    root = world.root_keys[task.run]
    prepared = prepare(spec, server, _records(world, task), task, root)
    return begin(spec, server, prepared, task)


def _run_slot(
    spec: LocalSpec,
    world: World,
    slot: _Slot,
    resumed: LocalState | None,
    idle: LocalState | None,
) -> tuple[LocalState | None, _SlotResult]:
    """Trains the steps of a slot, from `resumed` if they are not a task's first ones.

    An idle slot costs nothing and gives back the state `idle`. Without these two every
    slot is a whole task, and no state is given back.
    """
    task = slot.task
    server = jax.tree.map(lambda leaf: leaf[task.run], world.params)
    records = _records(world, task)
    root = world.root_keys[task.run]

    def work() -> tuple[LocalState | None, _SlotResult]:
        prepared = prepare(spec, server, records, task, root)
        state = begin(spec, server, prepared, task)
        if resumed is not None:
            started = state
            state = jax.lax.cond(slot.first > 0, lambda: resumed, lambda: started)
        steps = (slot.first, slot.last)
        state = advance(
            spec, prepared, state, world.data, records, task, steps, choose_size=True
        )
        result = finish(server, prepared, state, task)
        weight = _weight(result, task, slot.last == spec.steps)
        told = _SlotResult(
            result.update, weight, task.scale, task.run, result.diagnostics
        )
        return (None if idle is None else state), told

    def rest() -> tuple[LocalState | None, _SlotResult]:
        _, told = _nothing(work)
        return idle, told

    return jax.lax.cond(task.active, work, rest)


def _add_in_order(
    sums: server_lib.RunSums, results: _SlotResult, order: jax.Array, devices: int
) -> server_lib.RunSums:
    """Adds what ended in a phase on any device, in the order of tasks.

    Every device adds all updates: rounded in one order, sums do not depend on which
    device trained what, nor on how many there are.
    """
    with jax.named_scope("aggregation"):
        mine = (results.update, results.weight, results.scale, results.run)
        if devices > 1:
            mine = jax.lax.all_gather(mine, AXIS)
            mine = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), mine)

        def add(
            sums: server_lib.RunSums, place: jax.Array
        ) -> tuple[server_lib.RunSums, None]:
            update, weight, scale, run = jax.tree.map(
                lambda leaf: leaf[place][None], mine
            )
            return jax.lax.cond(
                weight[0] > 0,
                lambda: server_lib.add_updates(sums, update, weight, scale, run),
                lambda: sums,
            ), None

        return jax.lax.scan(add, sums, order)[0]


def _hand_over(
    placement: Placement, opened: LocalState, latest: LocalState
) -> LocalState:
    """What each device goes on with: a task handed over to it, or its own latest."""
    received = jax.lax.ppermute(opened, AXIS, placement.handover)
    takers = np.array([taker for _, taker in placement.handover], np.int32)
    takes = jnp.any(jax.lax.axis_index(AXIS) == takers)
    return jax.lax.cond(takes, lambda: received, lambda: latest)
