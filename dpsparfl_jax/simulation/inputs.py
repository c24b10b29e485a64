"""Everything a run needs before its first gradient: data, clients, ledger, schedule.

`outline` is what is known from the configuration alone (no image is read), `prepare`
adds the images, who owns them, what everybody may spend, and the whole schedule.
"""

import hashlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax import planning
from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.data import packing, partition, sources
from dpsparfl_jax.data.partition import Partition
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy import start
from dpsparfl_jax.privacy.ledger import Ledger
from dpsparfl_jax.schedule import Schedule
from dpsparfl_jax.training import models


class Outline(NamedTuple):
    """Shapes of a run."""

    sizes: NDArray[np.int64]  # [U] training images of each client
    image_shape: tuple[int, ...]
    num_classes: int
    num_parameters: int
    capacity: int  # padded Poisson batch
    padded_sizes: tuple[int, ...]  # of batches, the last one is `capacity`


class Plan(NamedTuple):
    """What a run will do, and what to tell the user about it."""

    outline: Outline
    ledger: Ledger  # before the first round
    schedule: Schedule
    affordability: str  # what the budgets allow
    warning: str  # empty if all is well


class RunInputs(NamedTuple):
    """A run, ready to be trained."""

    settings: RunConfig
    plan: Plan
    loaded: sources.Loaded
    clients: Partition


Described = dict[tuple[object, ...], tuple[tuple[int, int, int], int]]


def outline(settings: RunConfig, described: Described | None = None) -> Outline:
    """Shapes, from the configuration alone where the image set is a known one.

    Others are read; `described` remembers them for the next run of a grid.
    """
    sizes = partition.client_sizes(settings.data)
    seen = {} if described is None else described
    if settings.data.image_set not in seen:
        seen[settings.data.image_set] = sources.describe(settings.data)
    shape, classes = seen[settings.data.image_set]
    rates = packing.sampling_rate(settings.training.batch_size, sizes)
    capacity = packing.batch_capacity(
        sizes, rates, settings.privacy.overflow_probability
    )
    middle = int(np.argsort(sizes)[len(sizes) // 2])
    return Outline(
        sizes,
        shape,
        classes,
        models.count_parameters(settings.model.name, classes, shape),
        capacity,
        packing.padded_sizes(
            int(sizes[middle]),
            float(rates[middle]),
            capacity,
            settings.perf.padded_sizes,
        ),
    )


def open_ledger(settings: RunConfig, known: Outline) -> start.Start:
    """What every client may spend, and a statement of it."""
    return start.start_ledger(settings, known.sizes, known.capacity)


def plan_run(
    settings: RunConfig,
    known: Outline | None = None,
    schedule: Schedule | None = None,
) -> Plan:
    """The whole run but its training; a `schedule` that is known is not made again.

    It must be one that this run's clients can afford.
    """
    known = known or outline(settings)
    ledger, message = open_ledger(settings, known)
    planner = planning.Planner(settings, known.sizes, known.num_parameters, ledger)
    warning = planning.delay_warning(planner)
    if schedule is None:
        schedule = planning.plan(settings, known.sizes, known.num_parameters, ledger)
    else:
        _check_schedule(schedule, settings, ledger)
    return Plan(known, ledger, schedule, message, warning)


def _check_schedule(schedule: Schedule, settings: RunConfig, ledger: Ledger) -> None:
    """Refuses a schedule of another world, or one that would overspend in this one."""
    slots = schedule.client.shape[1:] == (settings.wireless.num_channels,)
    same = np.array_equal(schedule.budget, ledger.budget) and np.array_equal(
        schedule.affordable, ledger.affordable
    )
    if not slots or not same or np.any(schedule.participations > ledger.affordable):
        raise InputError(
            "the saved schedule belongs to other clients or budgets: choose another "
            "--out to start anew."
        )


def with_data(settings: RunConfig, ready: Plan, loaded: sources.Loaded) -> RunInputs:
    """A planned run and its images, dealt to its clients."""
    clients = partition.deal(settings.data, loaded.sets, settings.seed)
    return RunInputs(settings, ready, loaded, clients)


def prepare(
    settings: RunConfig,
    loaded: sources.Loaded | None = None,
    known: Outline | None = None,
) -> RunInputs:
    """All inputs of a run; what is loaded or known already is not looked for again."""
    ready = plan_run(settings, known)
    return with_data(settings, ready, loaded or sources.load(settings.data))


def digest_images(loaded: sources.Loaded) -> str:
    """A hash of all images and labels."""
    total = hashlib.sha256()
    for part in (loaded.sets.train, loaded.sets.test):
        for array in part:
            total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


def digest_owners(clients: Partition) -> str:
    """A hash of who owns which image."""
    total = hashlib.sha256()
    for lists in clients:
        for client in lists:
            total.update(f"{len(client)};".encode())
            total.update(np.ascontiguousarray(client).data)
    return total.hexdigest()
