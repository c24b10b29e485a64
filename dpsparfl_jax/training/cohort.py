"""All tasks of a round, of all runs of a grid, in one compiled program.

How the task axis is executed is a performance choice that moves no result beyond
float rounding: `map` runs the tasks of a device one after another (best on CPU, with a
device for each core), `vmap` all at once (best on accelerators), `chunked` in vmapped
chunks; each over any number of devices. With `map` that number moves nothing at all.
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
    LocalSpec,
    LocalState,
    Records,
    advance,
    begin,
    check_images,
    finish,
    prepare,
    train_client,
)
from dpsparfl_jax.training.placement import (
    Placement,
    deal_chunks,
    place,
    tasks_at_once,
)
from dpsparfl_jax.types import (
    Array,
    LocalResult,
    Params,
    RunConstants,
    ServerState,
    Tasks,
)

EXECUTIONS = ("auto", "map", "vmap", "chunked")
AXIS = "tasks"  # of the mesh of devices

CohortStep = Callable[
    [ServerState, Records, RunConstants, Tasks],
    tuple[ServerState, Diagnostics],
]


class World(NamedTuple):
    """What every task of a round may look at.

    All of it is on every device, but for streamed records, of which a device has those
    of its own tasks (`Records.rows` is None then).
    """

    params: Params  # leaves [R, ...]
    records: Records
    root_keys: jax.Array  # [R, 2]
    clients: Any  # optimizers' states that clients keep: leaves [R, U, ...], or None


def task_mesh(devices: list[jax.Device] | None = None) -> Mesh:
    """A mesh over which tasks are spread: all devices unless given."""
    return Mesh(np.array(devices or jax.devices()), (AXIS,))


def replicate(tree: Any, mesh: Mesh | None = None) -> Any:
    """Puts arrays on every device of a mesh (one device unless given).

    Everything a cohort step takes goes through here, once: arrays that are where the
    compiled program wants them are neither moved nor do they cause a second compile.
    What is there already is not copied, and a cohort step uses up the state it is
    given. Several processes must give the same arrays: nothing compares them here.
    """
    mesh = mesh or task_mesh(jax.devices()[:1])
    return _put(tree, NamedSharding(mesh, PartitionSpec()))


def split(tree: Any, mesh: Mesh) -> Any:
    """Cuts arrays into equal parts along their first axis, one for each device."""
    return _put(tree, NamedSharding(mesh, PartitionSpec(AXIS)))


def _put(tree: Any, sharding: NamedSharding) -> Any:
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)

    def put(leaf: Any) -> jax.Array:
        # device_put would send all of it to the other processes, to compare.
        array = np.asarray(leaf)
        return jax.make_array_from_callback(array.shape, sharding, array.__getitem__)

    return jax.tree.map(put, tree)


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
    ordered_sums: bool = False,
    mesh: Mesh | None = None,
) -> CohortStep:
    """Compiled `(state, records, constants, tasks) -> new state, diagnostics`.

    Shapes: state leaves [R, ...], constants [R], tasks [K]; diagnostics [K]. K is
    padded inside to fill chunks and devices. The incoming state is donated. Chunks are
    added up on their devices first, unless `ordered_sums` asks for one by one. Streamed
    records are those of `placement.tasks_of_devices`.
    """
    server = server_lib.make_server(server_optimizer)
    mesh = mesh or task_mesh(jax.devices()[:1])
    execution = resolve_execution(execution, mesh.devices.flat[0].platform)
    if chunk_size < 1:
        raise InputError("the chunk size must be at least 1.")

    def step(
        state: ServerState,
        records: Records,
        constants: RunConstants,
        tasks: Tasks,
    ) -> tuple[ServerState, Diagnostics]:
        check_images(records.data, spec.image_shape)
        world = World(state.params, records, constants.root_key, state.clients)
        count = tasks.run.shape[0]
        chunk = tasks_at_once(execution, chunk_size, count, mesh.size)
        if chunk == 1:
            placement = place(count, mesh.size, spec.steps)
            train = functools.partial(_train_one_by_one, spec, placement)
        else:
            train = functools.partial(_train_chunks, spec, chunk, ordered_sums)
        (sums, clients), diagnostics = train(mesh, world, tasks)
        with jax.named_scope("aggregation"):
            new = server.step(state, sums, constants.server)
        return new._replace(clients=clients), diagnostics

    replicated = NamedSharding(mesh, PartitionSpec())
    return jax.jit(step, donate_argnums=0, out_shardings=replicated)


def _on_devices(
    function: Callable[..., Any], mesh: Mesh, world: World, tasks: Any
) -> Any:
    """`function(world, tasks)` on every device with its own tasks.

    Gives sums and clients' optimizers, the same on all devices, and the diagnostics of
    all tasks.
    """
    everywhere: Any = PartitionSpec()
    split: Any = PartitionSpec(AXIS)
    streamed = world.records.rows is None
    seen = World(everywhere, split if streamed else everywhere, everywhere, everywhere)
    spread = jax.shard_map(
        function,
        mesh=mesh,
        in_specs=(seen, split),
        out_specs=(everywhere, split),
        check_vma=False,
    )
    return spread(world, tasks)


def _kept(world: World, task: Tasks) -> Any:
    """The state that a task's optimizer goes on from, if clients keep theirs."""
    return jax.tree.map(lambda leaf: leaf[task.run, task.client], world.clients)


def _weight(result: LocalResult, task: Tasks, counts: Array) -> jax.Array:
    """What an update weighs in the mean; nothing if it does not count."""
    arrived = counts & ~result.diagnostics.diverged
    return jnp.where(arrived, task.weight, np.float32(0))


def _nothing(function: Callable[..., Any], *arguments: Any) -> Any:
    """Zeros in the shapes of what a function returns."""
    shapes = jax.eval_shape(function, *arguments)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def _train_chunks(
    spec: LocalSpec, chunk: int, ordered: bool, mesh: Mesh, world: World, tasks: Tasks
) -> tuple[tuple[server_lib.RunSums, Any], Diagnostics]:
    """Trains tasks in vmapped chunks, adding up updates so that none are kept.

    Sums of devices are added up at the end; or, `ordered`, devices meet after every
    chunk, and each of them adds all updates in the order of tasks.
    """
    count = tasks.run.shape[0]

    def one_task(world: World, task: Tasks) -> tuple[LocalResult, jax.Array]:
        server = jax.tree.map(lambda leaf: leaf[task.run], world.params)
        root = world.root_keys[task.run]
        result = train_client(
            *(spec, server, world.records, task, root, _kept(world, task)),
            choose_size=False,
        )
        return result, _weight(result, task, task.active)

    def on_device(world: World, tasks: Tasks) -> tuple[Any, Diagnostics]:
        def one_chunk(carry: tuple[Any, Any], tasks: Tasks) -> tuple[Any, Diagnostics]:
            sums, clients = carry
            result, weights = jax.vmap(one_task, (None, 0))(world, tasks)
            told = _silence_idle(result.diagnostics, tasks.active)
            if ordered:
                optimizer = None if clients is None else result.optimizer
                results = _SlotResult(
                    *(result.update, weights, tasks.scale, tasks.run, tasks.client),
                    *(optimizer, None),
                )
                order = jnp.arange(mesh.size * chunk)
                return _add_in_order(carry, results, order, mesh.size), told
            with jax.named_scope("aggregation"):
                sums = server_lib.add_updates(
                    sums, result.update, weights, tasks.scale, tasks.run
                )
                clients = _keep(clients, result.optimizer, weights, tasks)
            return (sums, clients), told

        chunks = jax.tree.map(lambda leaf: leaf.reshape(-1, chunk), tasks)
        before = _zeros(world.clients) if not ordered else world.clients
        nothing = (server_lib.zero_sums(world.params), before)
        ended, diagnostics = jax.lax.scan(one_chunk, nothing, chunks)
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1), diagnostics)
        if ordered:
            return ended, flat
        with jax.named_scope("aggregation"):
            return jax.lax.psum(ended, AXIS), flat

    dealt = deal_chunks(count, mesh.size, chunk, ordered).reshape(-1)
    padded = _pad_tasks(tasks, dealt.size)
    padded = jax.tree.map(lambda leaf: leaf[dealt], padded)
    (sums, clients), diagnostics = _on_devices(on_device, mesh, world, padded)
    places = np.argsort(dealt)[:count]
    diagnostics = jax.tree.map(lambda leaf: leaf[places], diagnostics)
    if not ordered:
        clients = _replace_trained(world, tasks, diagnostics, clients)
    return (sums, clients), diagnostics


def _zeros(tree: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, tree)


def _keep(clients: Any, new: Any, weights: jax.Array, tasks: Tasks) -> Any:
    """Optimizers' states with those of a chunk of tasks; not of updates that failed."""
    nobody = np.iinfo(np.int32).max  # an address that is out of range: not written
    rows = jnp.where(weights > 0, tasks.client, nobody)

    def write(leaf: jax.Array, values: jax.Array) -> jax.Array:
        return leaf.at[tasks.run, rows].set(values, mode="drop")

    return clients if clients is None else jax.tree.map(write, clients, new)


def _replace_trained(
    world: World, tasks: Tasks, diagnostics: Diagnostics, clients: Any
) -> Any:
    """The states of before, but for clients whose updates counted."""
    leaves = jax.tree.leaves(clients)
    if not leaves:  # nobody keeps anything
        return clients
    trained = jnp.zeros(leaves[0].shape[:2], bool)
    counts = tasks.active & ~diagnostics.diverged
    trained = trained.at[tasks.run, tasks.client].max(counts)

    def choose(new: jax.Array, old: jax.Array) -> jax.Array:
        wide = trained.reshape(*trained.shape, *[1] * (new.ndim - 2))
        return jnp.where(wide, new, old)

    return jax.tree.map(choose, clients, world.clients)


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
    client: jax.Array
    optimizer: Any  # its state, if clients keep theirs
    diagnostics: Diagnostics | None


def _train_one_by_one(
    spec: LocalSpec, placement: Placement, mesh: Mesh, world: World, tasks: Tasks
) -> tuple[tuple[server_lib.RunSums, Any], Diagnostics]:
    """Trains tasks as `placement` says; updates are added in the order of tasks."""

    def on_device(
        world: World, slots: tuple[_Slot, jax.Array]
    ) -> tuple[Any, Diagnostics]:
        own = jax.tree.map(lambda leaf: leaf[0], slots)
        run_slot = functools.partial(_run_slot, spec, world)
        some_slot = jax.tree.map(lambda leaf: leaf[0, 0], own[0])
        # Between tasks that change hands; without any, no state is ever kept.
        nothing = _nothing(functools.partial(_first_state, spec, world), some_slot)
        if not placement.handover:
            nothing = None

        def one_phase(
            carry: tuple[Any, LocalState | None], phase: tuple[_Slot, jax.Array]
        ) -> tuple[Any, Any]:
            ended, resumed = carry
            slots, order = phase

            def one_slot(states: Any, slot: _Slot) -> tuple[Any, _SlotResult]:
                opened, latest = states
                state, result = run_slot(slot, resumed, latest)
                opened = jax.lax.cond(slot.opens, lambda: state, lambda: opened)
                return (opened, state), result

            states, results = jax.lax.scan(one_slot, (nothing, nothing), slots)
            ended = _add_in_order(ended, results, order, mesh.size)
            if placement.handover:
                resumed = _hand_over(placement, *states)
            return (ended, resumed), results.diagnostics

        before = (server_lib.zero_sums(world.params), world.clients)
        (ended, _), diagnostics = jax.lax.scan(one_phase, (before, nothing), own)
        return ended, jax.tree.map(lambda leaf: leaf.reshape(-1), diagnostics)

    slots = _lay_out(placement, tasks)
    order = jnp.broadcast_to(placement.order, (mesh.size, *placement.order.shape))
    ended, diagnostics = _on_devices(on_device, mesh, world, (slots, order))
    return ended, jax.tree.map(lambda leaf: leaf[placement.ended], diagnostics)


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
    prepared = prepare(spec, server, task, root, choose_size=True)
    return begin(spec, server, prepared, task, _kept(world, task))


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
    root = world.root_keys[task.run]

    def work() -> tuple[LocalState | None, _SlotResult]:
        prepared = prepare(spec, server, task, root, choose_size=True)
        state = begin(spec, server, prepared, task, _kept(world, task))
        if resumed is not None:
            started = state
            state = jax.lax.cond(slot.first > 0, lambda: resumed, lambda: started)
        steps = (slot.first, slot.last)
        state = advance(
            spec, prepared, state, world.records, task, steps, choose_size=True
        )
        result = finish(server, prepared, state, task)
        weight = _weight(result, task, slot.last == spec.steps)
        told = _SlotResult(
            *(result.update, weight, task.scale, task.run, task.client),
            None if world.clients is None else result.optimizer,
            result.diagnostics,
        )
        return (None if idle is None else state), told

    def rest() -> tuple[LocalState | None, _SlotResult]:
        _, told = _nothing(work)
        return idle, told

    return jax.lax.cond(task.active, work, rest)


def _add_in_order(
    ended: tuple[server_lib.RunSums, Any],
    results: _SlotResult,
    order: jax.Array,
    devices: int,
) -> tuple[server_lib.RunSums, Any]:
    """Adds what ended in a phase on any device, in the order of tasks.

    Every device adds all updates: rounded in one order, sums do not depend on which
    device trained what, nor on how many there are. Optimizers' states of clients that
    keep them are written on the way.
    """
    with jax.named_scope("aggregation"):
        mine = results._replace(diagnostics=None)
        if devices > 1:
            mine = jax.lax.all_gather(mine, AXIS)
            mine = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), mine)

        def add(both: Any, place: jax.Array) -> tuple[Any, None]:
            sums, clients = both
            one = jax.tree.map(lambda leaf: leaf[place][None], mine)

            def added() -> tuple[server_lib.RunSums, Any]:
                total = server_lib.add_updates(
                    sums, one.update, one.weight, one.scale, one.run
                )
                start = (one.run[0], one.client[0])
                return total, jax.tree.map(
                    lambda leaf, new: leaf.at[start].set(new[0]),
                    clients,
                    one.optimizer,
                )

            return jax.lax.cond(one.weight[0] > 0, added, lambda: both), None

        return jax.lax.scan(add, ended, order)[0]


def _hand_over(
    placement: Placement, opened: LocalState, latest: LocalState
) -> LocalState:
    """What each device goes on with: a task handed over to it, or its own latest."""
    received = jax.lax.ppermute(opened, AXIS, placement.handover)
    takers = np.array([taker for _, taker in placement.handover], np.int32)
    takes = jnp.any(jax.lax.axis_index(AXIS) == takers)
    return jax.lax.cond(takes, lambda: received, lambda: latest)
