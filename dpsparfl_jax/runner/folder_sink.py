"""A run on its way into its folder: recorded, checkpointed, resumed.

The order of writing makes every moment a good one to be killed: rows come before the
checkpoint that is behind them, the table of clients before the last checkpoint, DONE
after everything. A resumed run goes on from its newest good checkpoint and writes the
rows after it again, the same to the bit.
"""

import contextlib
import importlib.metadata
import os
import pathlib
import platform
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax

from dpsparfl_jax import config_values, own_code, records
from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning import schedule as schedule_lib
from dpsparfl_jax.planning.schedule import Schedule
from dpsparfl_jax.privacy.clip_norm import ClipNorm
from dpsparfl_jax.runner import image_feed, own_folder
from dpsparfl_jax.runner.checkpoint import Checkpoints
from dpsparfl_jax.runner.devices import chosen_devices
from dpsparfl_jax.runner.run import Run, digest_owners
from dpsparfl_jax.runner.sinks import Beginning, RoundRecord
from dpsparfl_jax.training import cpu_kernels
from dpsparfl_jax.training.cohort import resolve_execution
from dpsparfl_jax.types import ServerState

if TYPE_CHECKING:
    from dpsparfl_jax.records.events import EventLog

_PACKAGES = (
    *("dpsparfl_jax", "jax", "jaxlib", "flax", "optax", "numpy", "scipy"),
    *("dp-accounting", "orbax-checkpoint"),
)


class FolderSink:
    """Writes one run into its folder; a folder that holds it already is gone on with.

    `say` hears what is going on, `warn` what a person must not overlook; `clock` gives
    seconds since 1970.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        settings: RunConfig,
        *,
        resume: bool,
        say: Callable[[str], None],
        warn: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        """Looks at the folder; refuses one that is not this run's."""
        self.folder, self.settings = folder, settings
        self.snapshot_every = settings.perf.checkpoint_every
        self._say, self._warn, self._clock = say, warn, clock
        self._run: Run | None = None
        self._writer: records.RunFolder | None = None
        self._events: EventLog | None = None
        self._checkpoints: Checkpoints | None = None
        self.is_done, self._is_shorter = own_folder.look(
            folder, settings, resume=resume
        )

    @property
    def run(self) -> Run:
        """The run, once opened."""
        assert self._run is not None
        return self._run

    @property
    def writer(self) -> records.RunFolder:
        """The folder's files, once opened."""
        assert self._writer is not None
        return self._writer

    def saved_schedule(self) -> Schedule | None:
        """The schedule that the folder has; a damaged or short one is planned anew."""
        if self._is_shorter or not (self.folder / records.MANIFEST).is_file():
            return None
        try:
            schedule = schedule_lib.load(self.folder / records.SCHEDULE)
        except InputError as reason:
            self._warn(f"{self.folder.name}: {reason} It is planned anew.")
            return None
        # They differ if a run was killed while it was given more rounds.
        rounds = records.read_manifest(self.folder).get("planned_rounds")
        return schedule if rounds in (None, schedule.num_rounds) else None

    def open(self, run: Run) -> None:
        """Takes hold of the folder, which must still be this run's."""
        self._run, self._writer = run, records.RunFolder(self.folder)
        if (self.folder / records.MANIFEST).is_file():
            self._is_shorter = own_folder.is_shorter(self.folder, self.settings)

    def begin(self, clip: ClipNorm, first: ServerState) -> Beginning:
        """Opens all files; goes on from the newest good checkpoint."""
        manifest = self._manifest(clip)
        if not (self.folder / records.MANIFEST).is_file():
            self.writer.start(manifest, self.run.schedule)
        else:
            self._check_continuation(manifest)
        damage = self.writer.set_damaged_rounds_aside()
        if damage:
            self._warn(f"{self.run.name}: {damage}.")
        beginning = self._restore(first)
        self.writer.open_rounds(beginning.rounds)
        total = self.run.schedule.num_rounds
        if beginning.rounds == total:
            self._finish()
        elif beginning.rounds:
            self._say(
                f"{self.run.name}: going on after round {beginning.rounds} of {total}."
            )
        if self.settings.perf.tensorboard and not self.is_done:
            from dpsparfl_jax.records.events import EventLog  # may load torch

            self._events = EventLog(self.folder, beginning.rounds)
        return beginning

    def _restore(self, first: ServerState) -> Beginning:
        self._checkpoints = Checkpoints(self.folder)
        most = len(records.read_rounds(self.folder))
        if not (self.folder / records.CLIENTS).is_file():
            # The last round makes that table.
            most = min(most, self.run.schedule.num_rounds - 1)
        restored = self._checkpoints.restore(first, most, self._misfit)
        if restored.complaints:
            where = f"round {restored.rounds}" if restored.rounds else "the start"
            complaints = "; ".join(restored.complaints)
            self._warn(f"{self.run.name}: {complaints}; going on from {where}.")
        self._checkpoints.forget_after(restored.rounds)
        if restored.params is None:
            return Beginning(0, first)
        structure = jax.tree.structure((first.optimizer, first.clients))
        own, clients = jax.tree.unflatten(structure, restored.optimizer)
        state = ServerState(restored.params, own, restored.average, clients)
        return Beginning(restored.rounds, state)

    def _misfit(self, rounds: int, beside: Mapping[str, str]) -> str:
        """What has changed since a checkpoint was saved, if anything has."""
        rows, table = beside.get(records.ROUNDS), beside.get(records.CLIENTS)
        if rows and rows != self.writer.digest_rounds(rounds):
            kept = self.writer.copy_rounds_aside()
            return f"rows of {records.ROUNDS} up to round {rounds} are damaged ({kept})"
        at_end = rounds == self.run.schedule.num_rounds
        if table and at_end and table != self.writer.digest_clients():
            return f"{records.CLIENTS} is damaged"
        return ""

    def _manifest(self, clip: ClipNorm) -> dict[str, Any]:
        run = self.run
        device = jax.devices()[0]
        return {
            "name": run.name,
            "config": config_values.as_dict(self.settings),
            records.OWN_CODE: own_code.of(self.settings),
            "images": run.data.images.source,
            "data": {
                "images": run.data.images.digest,
                "owners": digest_owners(run.data.clients),
            },
            "images_are": image_feed.choose_place(run),
            "clip_norm": clip._asdict(),
            "num_parameters": run.outline.model.parameters,
            "padded_batch": run.outline.capacity,
            "planned_rounds": run.schedule.num_rounds,
            "planned_end": run.schedule.reason,
            "planning_s": run.plan.seconds,
            "budgets": run.plan.affordability,
            "warnings": [*run.plan.warnings, *clip.warnings, *_on_noise(run.settings)],
            "versions": {
                "python": platform.python_version(),
                **{name: importlib.metadata.version(name) for name in _PACKAGES},
            },
            "device": {
                "platform": device.platform,
                "kind": device.device_kind,
                "count": len(chosen_devices(run.settings)),
                "processes": jax.process_count(),
                "machine": platform.machine(),
                "cores": os.cpu_count(),
                "kernels": cpu_kernels.instructions(),
            },
        }

    def _check_continuation(self, now: dict[str, Any]) -> None:
        """Refuses other data or another plan than that of the rounds so far."""
        then = records.read_manifest(self.folder)
        for name, what in (("images", "images"), ("owners", "owners of images")):
            if then.get("data", {}).get(name) != now["data"][name]:
                raise InputError(
                    f"{self.folder} was started with other {what}: restore them, or "
                    "choose another folder."
                )
        if then.get("clip_norm", {}).get("value") != now["clip_norm"]["value"]:
            raise InputError(
                f"{self.folder} was started with another clip norm than the "
                f"{now['clip_norm']['value']:g} that is found now (other versions or "
                "devices measure other gradients): go on where it was started, or "
                "choose another folder."
            )
        if (
            then["config"]["records"]["private_only"]
            != now["config"]["records"]["private_only"]
        ):
            raise InputError(
                f"{self.folder} was started with another records.private_only: go on "
                "with that, or choose another folder."
            )
        schedule = self.run.schedule
        for t, row in enumerate(records.read_rounds(self.folder)):
            sends = schedule.sends[t] if t < schedule.num_rounds else []
            if t >= schedule.num_rounds or (
                row["clients"] != schedule.client[t][sends].tolist()
                or row["keep_rates"] != schedule.keep_rate[t][sends].tolist()
            ):
                raise InputError(
                    f"round {t + 1} in {self.folder} does not follow the run's "
                    "schedule (another version may have planned it): choose another "
                    "folder to start anew."
                )
        if self._is_shorter:
            self._extend(then, now)
        self.writer.keep_schedule(schedule)
        self._say_what_changed(then, now)

    def _extend(self, then: dict[str, Any], now: dict[str, Any]) -> None:
        """Lets a run that has fewer rounds go on: what tells of its end is no more."""
        before, most = then.get("planned_rounds", 0), now["planned_rounds"]
        self._say(f"{self.run.name}: {most} rounds are planned now, {before} before.")
        if most > before:
            self.writer.forget_end()
        told = ("planned_rounds", "planned_end")
        config = {**then["config"], "length": now["config"]["length"]}
        changes = {name: now[name] for name in told} | {"config": config}
        self.writer.keep_manifest({**then, **changes})

    def _say_what_changed(self, then: dict[str, Any], now: dict[str, Any]) -> None:
        """Names what may move last digits, though no setting that matters."""
        changes = [
            change
            for before, after in zip(_conditions(then), _conditions(now), strict=True)
            for change in config_values.differences(before, after)
        ]
        if changes:
            self._warn(
                f"{self.run.name} goes on under other conditions ("
                f"{'; '.join(changes)}): the same up to float rounding, not to the bit."
            )

    def add(self, record: RoundRecord) -> None:
        """Writes down a round; a snapshot follows the rows that are behind it."""
        self.writer.add_round(record.row)
        if self._events:
            self._events.add(record.row, self._clock())
        if record.state is not None:
            assert self._checkpoints is not None
            self.writer.sync()
            rounds = record.row["round"]
            beside = {records.ROUNDS: self.writer.digest_rounds(rounds)}
            if record.clients is not None:
                self.writer.write_clients(record.clients)
                beside[records.CLIENTS] = self.writer.digest_clients()
            self._checkpoints.save(rounds, record.state, beside)
            if record.clients is not None:
                self._finish()

    def _finish(self) -> None:
        schedule = self.run.schedule
        self.writer.finish(
            {
                "rounds": schedule.num_rounds,
                "clients": len(schedule.budget),
                "reason": schedule.reason,
            }
        )
        self.is_done = True

    def close(self) -> None:
        """Closes files and lets folder and images go, whatever fails on the way."""
        opened = (self._writer, self._checkpoints, self._events)
        self._run = self._writer = self._checkpoints = self._events = None
        with contextlib.ExitStack() as closing:
            for each in opened:
                if each is not None:
                    closing.callback(each.close)


def _conditions(manifest: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What may move last digits: versions and device, and settings of speed.

    Not the number of processes; nor that of devices, where tasks go one by one.
    """
    settings = config_values.from_dict(manifest["config"])
    rounding = config_values.moving(settings, "rounding")
    device = dict(manifest.get("device", {}))
    device.pop("processes", None)
    platform = str(device.get("platform", ""))
    if resolve_execution(settings.perf.execution, platform) == "map":
        device.pop("count", None)
        del rounding["perf"]["devices"]
    return {"versions": manifest.get("versions", {}), "device": device}, rounding


def _on_noise(settings: RunConfig) -> tuple[str, ...]:
    """For whoever finds the folder; whoever started the run has chosen it."""
    if not settings.privacy.noise or settings.privacy.noise_key == "own":
        return ()
    return (
        "Runs of this seed share their noise (privacy.noise_key=paired): whoever sees "
        "two of them can subtract it, so release one at most.",
    )
