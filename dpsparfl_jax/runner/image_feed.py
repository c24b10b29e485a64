"""Where clients' images are while a batch trains.

Resident: all images are on every device from the start, with a list of who owns which.
Streamed: for each round, the images of the clients that take part in it are gathered on
the host and sent to the devices that train them, ahead of time. A task finds the same
records either way, so results are equal to the bit.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import jax
import numpy as np
from jax.sharding import Mesh
from numpy.typing import NDArray

from dpsparfl_jax import memory
from dpsparfl_jax.runner.devices import chosen_devices
from dpsparfl_jax.runner.run import Run
from dpsparfl_jax.training import cohort
from dpsparfl_jax.training.local import Records
from dpsparfl_jax.types import ClientTables, ImageSet, Tasks

ROUNDS_AHEAD = 2  # that are gathered before they are needed
_SHARE = 16  # resident images take at most this part of a device's memory, unless told
_STEPS = 8  # room for images is rounded up to an eighth of a power of two


class Feed(Protocol):
    """Brings the records of a round to the devices."""

    def of_round(self, rows: Tasks) -> tuple[Records, Tasks]:
        """Records on the devices, and the tasks (on the host) that point at them."""


def choose_place(run: Run) -> str:
    """`resident` or `streamed`: what the settings say, or what suits this machine.

    Images are resident where they take little of a device's memory, or where most of
    them would be sent again every round.
    """
    wanted = run.settings.perf.images
    if wanted != "auto":
        return wanted
    devices = chosen_devices(run.settings)
    train = run.data.images.sets.train
    everything = _bytes(train) * (len(devices) if _share_memory(devices) else 1)
    if everything <= _device_bytes(devices) / _SHARE:
        return "resident"
    sent = run.settings.wireless.num_channels * float(np.mean(run.outline.sizes))
    at_once = (ROUNDS_AHEAD + 1) * sent
    return "streamed" if at_once < len(train.labels) else "resident"


def _bytes(images: ImageSet) -> int:
    return images.images.nbytes + images.labels.nbytes


def _share_memory(devices: Sequence[jax.Device]) -> bool:
    """Whether they have no memory of their own, as cores of a CPU."""
    return devices[0].platform == "cpu"


def _device_bytes(devices: Sequence[jax.Device]) -> float:
    """Memory of one device."""
    stats = None if _share_memory(devices) else devices[0].memory_stats()
    return float((stats or {}).get("bytes_limit", memory.total_bytes()))


class ResidentImages:
    """All images, on every device."""

    def __init__(self, images: ImageSet, tables: ClientTables, mesh: Mesh) -> None:
        """Sends everything, once."""
        self._records = cohort.replicate(Records(images, tables.rows), mesh)

    def of_round(self, rows: Tasks) -> tuple[Records, Tasks]:
        """The same for all rounds."""
        return self._records, rows


class Layout(NamedTuple):
    """Where the records of a round's tasks are on their devices."""

    first: NDArray[np.int64]  # [K]
    used: NDArray[np.int64]  # [devices] records of each device


def lay_out(
    tasks_of_devices: Sequence[NDArray[np.intp]], sizes: NDArray[np.int64]
) -> Layout:
    """Places the records of tasks one after another on the devices that train them.

    A task that two devices share has one place on both of them.
    """
    first = np.zeros(len(sizes), np.int64)
    used = np.zeros(len(tasks_of_devices), np.int64)
    everyone = np.concatenate(tasks_of_devices)
    numbers, counts = np.unique(everyone, return_counts=True)
    shared = numbers[counts > 1]
    for task in shared:
        holders = [d for d, own in enumerate(tasks_of_devices) if task in own]
        first[task] = used[holders].max()
        used[holders] = first[task] + sizes[task]
    for device, tasks in enumerate(tasks_of_devices):
        own = tasks[~np.isin(tasks, shared)]
        ends = used[device] + np.cumsum(sizes[own])
        first[own] = ends - sizes[own]
        used[device] = ends[-1] if own.size else used[device]
    return Layout(first, used)


class StreamedImages:
    """The images of a round's clients, on the devices that train them."""

    def __init__(
        self,
        images: ImageSet,
        tables: ClientTables,
        mesh: Mesh,
        tasks_of_devices: Sequence[NDArray[np.intp]],
        most: int,
    ) -> None:
        """Keeps everything on the host.

        Args:
            images: of all clients; may be memory-mapped files.
            tables: which of them each client owns.
            mesh: the devices.
            tasks_of_devices: numbers of the tasks that each of them trains in a round.
            most: records that a device gets in any round.
        """
        self._images, self._tables = images, tables
        self._tasks = tasks_of_devices
        self._room = _roomy(most)
        self._mesh = mesh

    def of_round(self, rows: Tasks) -> tuple[Records, Tasks]:
        """Gathers and sends; idle tasks get nothing."""
        sizes = active_sizes(rows)
        layout = lay_out(self._tasks, sizes)
        shape = (len(self._tasks), self._room)
        images = np.zeros((*shape, *self._images.images.shape[1:]), np.uint8)
        labels = np.zeros(shape, np.int32)
        for device, tasks in enumerate(self._tasks):
            for task in tasks[sizes[tasks] > 0]:
                own = self._tables.of(rows.run[task], rows.client[task])
                place = slice(layout.first[task], layout.first[task] + len(own))
                images[device, place] = self._images.images[own]
                labels[device, place] = self._images.labels[own]
        flat = ImageSet(images.reshape(-1, *images.shape[2:]), labels.reshape(-1))
        addressed = rows._replace(first=layout.first.astype(np.int32))
        return Records(cohort.split(flat, self._mesh), None), addressed


def active_sizes(rows: Tasks) -> NDArray[np.int64]:
    """Records that each task needs: none if it is idle."""
    return np.where(rows.active, rows.size, 0).astype(np.int64)


def _roomy(most: int) -> int:
    """A little more, so that programs for similar rounds are compiled once."""
    step = max(1, 2 ** (max(most, 1).bit_length() - 1) // _STEPS)
    return max(1, -(-most // step) * step)
