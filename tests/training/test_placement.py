"""Is every step of every task trained once, in order, and is nobody kept waiting?"""

import numpy as np
import pytest

from dpsparfl_jax.training.placement import place

CASES = [
    (tasks, devices, steps)
    for tasks in (1, 2, 3, 5, 6, 9, 10, 11, 20)
    for devices in (1, 2, 3, 4, 8)
    for steps in (1, 2, 3, 60)
]


def trained(placement):
    """(task, phase, slot, device, first, last) of every slot that is used."""
    for device, phase, slot in np.argwhere(placement.task >= 0):
        cell = device, phase, slot
        task, first, last = (column[cell] for column in placement[:3])
        yield int(task), int(phase), int(slot), int(device), int(first), int(last)


@pytest.mark.parametrize(("tasks", "devices", "steps"), CASES)
def test_every_step_is_trained_once_and_in_order(tasks, devices, steps):
    placement = place(tasks, devices, steps)
    for task in range(tasks):
        parts = sorted(part[1:] for part in trained(placement) if part[0] == task)
        assert parts[0][3] == 0
        assert parts[-1][4] == steps
        if len(parts) == 1:
            continue
        before, after = parts  # two halves, in phases one and two
        assert before[4] == after[3]
        assert (before[0], after[0]) == (0, 1)
        if before[2] == after[2]:  # the same device: it was the last of its phase
            latest = [p for p in trained(placement) if p[1] == 0 and p[3] == before[2]]
            assert before[1] == max(p[2] for p in latest)
        else:  # handed over: what a giver opens its phase with
            assert before[1] == 0
            assert (before[2], after[2]) in placement.handover


@pytest.mark.parametrize(("tasks", "devices", "steps"), CASES)
def test_tasks_end_where_it_says_and_are_added_in_their_order(tasks, devices, steps):
    placement = place(tasks, devices, steps)
    ends = {part[0]: part for part in trained(placement) if part[5] == steps}
    flat = placement.task.reshape(-1)[placement.ended]
    np.testing.assert_array_equal(flat, np.arange(tasks))
    added = []
    for phase, order in enumerate(placement.order):
        slots = placement.task[:, phase].reshape(-1)[order]
        lasts = placement.last[:, phase].reshape(-1)[order]
        added += slots[(slots >= 0) & (lasts == steps)].tolist()
    assert added == sorted(ends) == list(range(tasks))


@pytest.mark.parametrize(("tasks", "most"), [(5, 150), (4, 120), (3, 90), (9, 270)])
def test_two_devices_share_the_work_evenly(tasks, most):
    placement = place(tasks, 2, 60)
    assert (placement.last - placement.first).sum(axis=(1, 2)).max() == most


def test_few_or_many_tasks_are_not_cut():
    for tasks, devices in ((1, 2), (3, 8), (11, 2), (12, 4)):
        assert place(tasks, devices, 60).handover == ()
