"""Which device trains which steps of which task.

Where tasks go one by one, they are dealt out like cards. If that leaves some over, a
task more on a few devices would keep all others waiting: so each task left over is
shared by two devices, one that takes its first half before everything else and one that
takes its second half at the end. Between the two halves all devices meet once, the
state of the half-trained tasks changes hands, and the first of the two devices
interrupts the task it is at.

    two devices, five tasks:   device 0:  E first half, A, D first half | D second half
                               device 1:  B, C                          | E second half

Tasks end in the order of their numbers, phase by phase, so that their updates can be
added up in that order whatever the number of devices: sums are rounded alike.
"""

import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Tasks of a device in a phase: their updates are kept until all devices meet. With more
# than these, a task left over is too small a part of the work to be shared.
_LARGEST_SHARE = 4


class Placement(NamedTuple):
    """Phases that end with all devices meeting; in each, a device has some slots."""

    task: NDArray[np.int32]  # [devices, phases, slots] number of the task; -1: nothing
    first: NDArray[np.int32]  # [devices, phases, slots] its first step here
    last: NDArray[
        np.int32
    ]  # [devices, phases, slots] and the step before which it ends
    order: NDArray[np.int32]  # [phases, devices * slots] slots in the order of tasks
    ended: NDArray[np.int32]  # [tasks] flat index of the slot in which each one ends
    handover: tuple[tuple[int, int], ...]  # from device, to device, after phase one


@functools.cache
def place(tasks: int, devices: int, steps: int) -> Placement:
    """Deals out tasks of `steps` steps each."""
    each, left = divmod(tasks, devices)
    shared = 0 < 2 * left <= devices and 1 <= each <= _LARGEST_SHARE and steps > 1
    cells = _shared(each, left, devices, steps) if shared else _dealt(tasks, devices)
    shape = (devices, len(cells[0]), max(len(slots) for slots in cells[0]))
    task = np.full(shape, -1, np.int32)
    first, last = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    for device, phases in enumerate(cells):
        for phase, slots in enumerate(phases):
            for slot, (number, begin, end) in enumerate(slots):
                cell = device, phase, slot
                task[cell], first[cell] = number, begin
                last[cell] = steps if end is None else end
    done = (task >= 0) & (last == steps)
    ended = np.zeros(tasks, np.int32)
    ended[task[done]] = np.flatnonzero(done)
    by_phase = np.where(done, task, tasks).transpose(1, 0, 2).reshape(shape[1], -1)
    order = np.argsort(by_phase, axis=1, kind="stable").astype(np.int32)
    handover = tuple((j, left + j) for j in range(left)) if shared else ()
    return Placement(task, first, last, order, ended, handover)


# Of each device and phase: (task, first step, step to stop before; None: its end).
_Slots = list[tuple[int, int, int | None]]
_Cells = list[list[_Slots]]


def _dealt(tasks: int, devices: int) -> _Cells:
    """In turn, some tasks a phase: meeting after each would make devices wait.

    One device waits for nobody, and need not keep updates.
    """
    phase = devices * (_LARGEST_SHARE if devices > 1 else 1)
    ranges = [(first, min(first + phase, tasks)) for first in range(0, tasks, phase)]
    return [
        [
            [(number, 0, None) for number in range(first + device, end, devices)]
            for first, end in ranges
        ]
        for device in range(devices)
    ]


def _shared(each: int, left: int, devices: int, steps: int) -> _Cells:
    """Two phases; the last `left` tasks are shared by two devices each.

    Givers 0 .. left - 1 begin with the first half of a shared task and are interrupted
    in the last of their own; takers left .. 2 left - 1 end with the second half.
    """
    half = steps // 2
    total = each * devices + left
    whole = iter(range(total - 2 * left))  # end in phase one
    cells: _Cells = []
    for device in range(devices):
        giver = device < left
        own: _Slots = [(next(whole), 0, None) for _ in range(each - giver)]
        number = total - 2 * left + device  # interrupted, or taken from a giver
        if giver:
            rest = steps - half
            one: _Slots = [(number + left, 0, half), *own, (number, 0, rest)]
            cells.append([one, [(number, rest, None)]])
        elif device < 2 * left:
            cells.append([own, [(number, half, None)]])
        else:
            cells.append([own, []])
    return cells


def tasks_at_once(execution: str, chunk_size: int, count: int, devices: int) -> int:
    """How many tasks a device trains at once."""
    each = -(-count // devices)
    return {"map": 1, "vmap": each, "chunked": min(chunk_size, each)}[execution]


def tasks_of_devices(
    count: int,
    *,
    devices: int,
    steps: int,
    execution: str,
    chunk_size: int,
    ordered_sums: bool = False,
) -> list[NDArray[np.intp]]:
    """Numbers of the tasks of a round that each device has to do with.

    Two devices may share a task: both need its records.
    """
    chunk = tasks_at_once(execution, chunk_size, count, devices)
    dealt: NDArray[Any] = deal_chunks(count, devices, chunk, ordered_sums)
    if chunk == 1:
        dealt = place(count, devices, steps).task.reshape(devices, -1)
    return [np.unique(own[(own >= 0) & (own < count)]) for own in dealt]


def deal_chunks(
    count: int, devices: int, chunk: int, ordered: bool
) -> NDArray[np.intp]:
    """Numbers of the tasks of each device, chunk after chunk; from `count` on: idle.

    If sums are `ordered`, chunks are dealt in turn: devices meet with the next tasks.
    """
    chunks = -(-count // (devices * chunk))  # of one device
    numbers: NDArray[Any] = np.arange(devices * chunk * chunks)
    if ordered:
        numbers = numbers.reshape(chunks, devices, chunk).transpose(1, 0, 2)
    return numbers.reshape(devices, -1)
