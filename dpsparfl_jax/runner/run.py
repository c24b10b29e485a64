"""One run: its settings, and what becomes known of it on the way to training.

A `Run` is one value that gains parts stage by stage; every stage returns a new one:

    Run(name, settings)     what the caller wants
      .outlined()           + shapes, from the settings alone (no image is read)
      .planned()            + ledger and whole schedule: all but its training
      .with_images(images)  + the images, and which client owns which
"""

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax import preflight
from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.data import packing, partition, sources
from dpsparfl_jax.data.files import LabelledSets
from dpsparfl_jax.data.partition import Partition
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning import planner as planner_lib
from dpsparfl_jax.planning.schedule import Schedule
from dpsparfl_jax.privacy import first_ledger, poisson
from dpsparfl_jax.privacy.ledger import Ledger
from dpsparfl_jax.records import rows
from dpsparfl_jax.records.columns import Row
from dpsparfl_jax.runner.devices import require_backend
from dpsparfl_jax.training import models
from dpsparfl_jax.types import ModelSize

Described = dict[tuple[object, ...], tuple[tuple[int, int, int], int]]
Part = TypeVar("Part")


class Outline(NamedTuple):
    """Shapes of a run."""

    sizes: NDArray[np.int64]  # [U] training images of each client
    image_shape: tuple[int, ...]
    num_classes: int
    model: ModelSize
    capacity: int  # padded Poisson batch
    padded_sizes: tuple[int, ...]  # of batches, the last one is `capacity`
    table_lengths: tuple[int, ...]  # of drawing batches, the last is the longest


class Plan(NamedTuple):
    """What a run will do, and what to tell the user about it."""

    ledger: Ledger  # before the first round
    schedule: Schedule
    affordability: str  # what the budgets allow
    warnings: tuple[str, ...]  # sentences; empty if all is well
    seconds: float  # that planning took; 0 without a clock


class Images(NamedTuple):
    """An image set, in words where it came from, and a hash of it."""

    sets: LabelledSets
    source: str
    digest: str


class ClientData(NamedTuple):
    """The images of a run and who owns them."""

    images: Images
    clients: Partition


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """One run at whatever stage it is; asking for a later stage's part is a bug."""

    name: str
    settings: RunConfig
    notes: tuple[str, ...] = ()  # on the settings, to be told and recorded
    _outline: Outline | None = None
    _plan: Plan | None = None
    _data: ClientData | None = None

    @property
    def outline(self) -> Outline:
        """Shapes, once outlined."""
        return self._known(self._outline, "outlined")

    @property
    def plan(self) -> Plan:
        """Ledger, schedule and messages, once planned."""
        return self._known(self._plan, "planned")

    @property
    def schedule(self) -> Schedule:
        """The whole schedule, once planned."""
        return self.plan.schedule

    @property
    def data(self) -> ClientData:
        """Images and their owners, once there."""
        return self._known(self._data, "given images")

    def _known(self, part: Part | None, stage: str) -> Part:
        if part is None:
            raise RuntimeError(f"the run {self.name!r} is not {stage} yet.")
        return part

    def outlined(self, described: Described | None = None) -> "Run":
        """With shapes; `described` remembers image sets for the next run of a grid."""
        self.settings.check_names()
        return dataclasses.replace(self, _outline=outline(self.settings, described))

    def planned(
        self,
        schedule: Schedule | None = None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> "Run":
        """With its plan; a `schedule` that is known already is checked, not remade."""
        began = clock()
        ledger, message = first_ledger.start_ledger(
            self.settings,
            self.outline.sizes,
            self.outline.capacity,
            self.outline.model.parameters,
        )
        planner = self.make_planner(ledger)
        warnings = [*self.notes, planner_lib.delay_warning(planner)]
        if not self.settings.privacy.noise:
            warnings.append(message)
        if self.settings.length.eval_on == "validation":
            warnings.append(
                "Accuracies are those of training images that no client owns, not of "
                "test images (length.eval_on=validation)."
            )
        if schedule is None:
            schedule = planner_lib.plan(planner)
        else:
            _check_schedule(schedule, self.settings, ledger)
        sentences = tuple(filter(None, warnings))
        plan = Plan(ledger, schedule, message, sentences, clock() - began)
        return dataclasses.replace(self, _plan=plan)

    def require_sending(self) -> None:
        """Refuses a plan in which nobody ever sends: nothing would be trained."""
        if not self.schedule.sends.any():
            raise InputError(
                f"nobody can send in any of {self.schedule.num_rounds} planned rounds, "
                "so that nothing would be trained: raise the energy budget "
                "(schedule.energy_power_w), or schedule.round_limit_s if it is set, or "
                "lower the cost of local training."
            )

    def make_planner(self, ledger: Ledger) -> planner_lib.Planner:
        """The planner of this run before its first round; refuses one without end."""
        first_ledger.require_end(self.settings, ledger.affordable)
        return planner_lib.Planner(
            self.settings, self.outline.sizes, self.outline.model, ledger
        )

    def with_images(self, images: Images) -> "Run":
        """With the images, dealt to its clients."""
        settings = self.settings
        clients = partition.deal(settings.data, images.sets, settings.seed)
        if settings.length.eval_on == "validation":
            unowned = partition.deal_unowned(
                settings.data, images.sets, clients.train, settings.seed
            )
            clients = clients._replace(test=unowned)
        return dataclasses.replace(self, _data=ClientData(images, clients))

    def without_images(self) -> "Run":
        """Without them, once they are no longer needed."""
        return dataclasses.replace(self, _data=None)

    def client_table(self, right: NDArray[np.bool_]) -> list[Row]:
        """The table of clients after the last round, which told `right` [E] right."""
        sets, clients = self.data.images.sets, self.data.clients
        counts = partition.label_counts(
            sets.train.labels, clients.train, sets.num_classes
        )
        tested = [len(part) for part in clients.test]
        return rows.client_rows(
            self.schedule,
            counts,
            tested,
            right,
            private_only=self.settings.records.private_only,
        )


def outline(settings: RunConfig, described: Described | None = None) -> Outline:
    """Shapes, from the settings alone where the image set is known by name.

    Others are read; `described` remembers what was found.
    """
    preflight.check_size(settings)
    require_backend()
    sizes = partition.client_sizes(settings.data)
    memory = {} if described is None else described
    if settings.data.image_set not in memory:
        memory[settings.data.image_set] = sources.describe(settings.data)
    shape, classes = memory[settings.data.image_set]
    rates = poisson.sampling_rate(settings.training.batch_size, sizes)
    distinct, first = np.unique(sizes, return_index=True)
    capacity = poisson.batch_capacity(
        distinct, rates[first], settings.privacy.overflow_probability
    )
    middle = int(np.argsort(sizes)[len(sizes) // 2])
    return Outline(
        sizes,
        shape,
        classes,
        models.measure(settings.model.name, classes, shape),
        capacity,
        poisson.padded_sizes(
            int(sizes[middle]),
            float(rates[middle]),
            capacity,
            settings.perf.padded_sizes,
        ),
        packing.table_lengths(sizes),
    )


def _check_schedule(schedule: Schedule, settings: RunConfig, ledger: Ledger) -> None:
    """Refuses a schedule of another world, or one that would overspend in this one."""
    slots = schedule.client.shape[1:] == (settings.wireless.num_channels,)
    same = np.array_equal(schedule.budget, ledger.budget) and np.array_equal(
        schedule.affordable, ledger.affordable
    )
    if not slots or not same or np.any(schedule.participations > ledger.affordable):
        raise InputError(
            "the saved schedule belongs to other clients or budgets: choose another "
            "folder to start anew."
        )


def load_images(settings: RunConfig) -> Images:
    """The image set of a run, from where its settings say."""
    loaded = sources.load(settings.data, settings.perf.cache_dir)
    total = hashlib.sha256()
    for part in (loaded.sets.train, loaded.sets.test):
        for array in part:
            total.update(np.ascontiguousarray(array).data)
    return Images(loaded.sets, loaded.source, total.hexdigest())


def digest_owners(clients: Partition) -> str:
    """A hash of who owns which image."""
    total = hashlib.sha256()
    lists: Any
    for lists in clients:
        for client in lists:
            total.update(f"{len(client)};".encode())
            total.update(np.ascontiguousarray(client).data)
    return total.hexdigest()
