"""Runs on their way into their folders: recorded, checkpointed, resumed.

The order of writing makes every moment a good one to be killed: rows come before the
checkpoint that is behind them, the table of clients before the last checkpoint, DONE
after everything. A resumed run goes on from its newest good checkpoint and writes the
rows after it again, the same to the bit.
"""

import importlib.metadata
import os
import platform
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from tqdm import tqdm

from dpsparfl_jax import config, records
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy.clip_norm import ClipNorm
from dpsparfl_jax.recording.checkpoint import Checkpoints
from dpsparfl_jax.recording.points import Hooks, Images, Planned, refuse_other_run
from dpsparfl_jax.records import rows
from dpsparfl_jax.records.events import EventLog
from dpsparfl_jax.simulation import inputs
from dpsparfl_jax.simulation.batch import Batch, client_table
from dpsparfl_jax.types import Params, RoundOutput

_PACKAGES = (
    *("dpsparfl_jax", "jax", "jaxlib", "flax", "optax", "numpy", "scipy"),
    *("dp-accounting", "orbax-checkpoint"),
)


class Recording:
    """One run and its folder; `close` it whatever happens."""

    def __init__(self, planned: Planned, images: Images, hooks: Hooks) -> None:
        """Takes hold of the folder, which must still be this run's; deals images."""
        if planned.plan is None:
            raise InputError(planned.problem)
        point = planned.point
        self.point, self._hooks = point, hooks
        self.planning_s = planned.seconds
        self.is_done = False
        self.first_round = 0
        self._events: EventLog | None = None
        self._checkpoints: Checkpoints | None = None
        self._folder = records.RunFolder(point.folder)
        try:
            self._is_new = not (point.folder / records.MANIFEST).is_file()
            if not self._is_new:
                refuse_other_run(point)
            self.run = inputs.with_data(point.settings, planned.plan, images.loaded)
            self._data = {
                "images": images.digest,
                "owners": inputs.digest_owners(self.run.clients),
            }
            self._table = rows.RoundRows(planned.plan.schedule)
        except BaseException:
            self._folder.close()
            raise

    def begin(self, clip: ClipNorm, initial: Params) -> Params:
        """Opens all files; returns the parameters to go on from."""
        manifest = self._manifest(clip)
        if self._is_new:
            self._folder.start(manifest, self.run.plan.schedule)
        else:
            self._check_continuation(manifest)
        damage = self._folder.set_damaged_rounds_aside()
        if damage:
            self._hooks.say(f"{self.point.name}: {damage}.")
        self._checkpoints = Checkpoints(self.point.folder)
        total = self.run.plan.schedule.num_rounds
        most = len(records.read_rounds(self.point.folder))
        if not (self.point.folder / records.CLIENTS).is_file():
            most = min(most, total - 1)  # the last round makes that table
        restored = self._checkpoints.restore(initial, most)
        self.first_round = restored.rounds
        if restored.complaints:
            where = f"round {restored.rounds}" if restored.rounds else "the start"
            self._hooks.say(
                f"{self.point.name}: {'; '.join(restored.complaints)}; going on from "
                f"{where}."
            )
        self._checkpoints.forget_after(restored.rounds)
        self._folder.open_rounds(restored.rounds)
        if restored.rounds == total:
            self._finish()
        elif restored.rounds:
            self._hooks.say(
                f"{self.point.name}: going on after round {restored.rounds} of {total}."
            )
        if self.point.settings.perf.tensorboard and not self.is_done:
            self._events = EventLog(self.point.folder, restored.rounds)
        return initial if restored.params is None else restored.params

    def _manifest(self, clip: ClipNorm) -> dict[str, Any]:
        plan = self.run.plan
        device = jax.devices()[0]
        return {
            "name": self.point.name,
            "config": config.as_dict(self.point.settings),
            "images": self.run.loaded.source,
            "data": self._data,
            "clip_norm": clip._asdict(),
            "num_parameters": plan.outline.num_parameters,
            "padded_batch": plan.outline.capacity,
            "planned_rounds": plan.schedule.num_rounds,
            "planned_end": plan.schedule.reason,
            "planning_s": self.planning_s,
            "budgets": plan.affordability,
            "warning": plan.warning,
            "versions": {
                "python": platform.python_version(),
                **{name: importlib.metadata.version(name) for name in _PACKAGES},
            },
            "device": {
                "platform": device.platform,
                "kind": device.device_kind,
                "count": len(jax.devices()),
                "machine": platform.machine(),
                "cores": os.cpu_count(),
            },
        }

    def _check_continuation(self, now: dict[str, Any]) -> None:
        """Refuses other data or another plan than that of the rounds so far."""
        then = records.read_manifest(self.point.folder)
        for name, what in (("images", "images"), ("owners", "owners of images")):
            if then.get("data", {}).get(name) != now["data"][name]:
                raise InputError(
                    f"{self.point.folder} was started with other {what}: restore them, "
                    "or choose another --out."
                )
        plan = self.run.plan.schedule
        for t, row in enumerate(records.read_rounds(self.point.folder)):
            sends = plan.sends[t] if t < plan.num_rounds else []
            if t >= plan.num_rounds or (
                row["clients"] != plan.client[t][sends].tolist()
                or row["keep_rates"] != plan.keep_rate[t][sends].tolist()
            ):
                raise InputError(
                    f"round {t + 1} in {self.point.folder} does not follow the run's "
                    "schedule: choose another --out to start anew."
                )
        self._folder.keep_schedule(plan)
        self._say_what_changed(then, now)

    def _say_what_changed(self, then: dict[str, Any], now: dict[str, Any]) -> None:
        """Names what may move last digits, though no setting that matters."""
        machine = ("versions", "device")
        found = config.differences(
            {name: then.get(name, {}) for name in machine},
            {name: now[name] for name in machine},
        ) + config.differences(
            {"perf": _shaping(then["config"])}, {"perf": _shaping(now["config"])}
        )
        if found:
            self._hooks.say(
                f"{self.point.name} goes on under other conditions ("
                f"{'; '.join(found)}): the same up to float rounding, not to the bit."
            )

    def add(self, output: RoundOutput) -> rows.Row:
        """Writes down a round that has come back."""
        assert self._checkpoints is not None
        row = self._table.row(output)
        self._folder.add_round(row)
        if self._events:
            self._events.add(row, self._hooks.clock())
        if output.params is not None:
            self._folder.sync()
            if output.right is not None:
                self._folder.write_clients(client_table(self.run, output.right))
            self._checkpoints.save(row["round"], output.params)
            if output.right is not None:
                self._finish()
        return row

    def _finish(self) -> None:
        schedule = self.run.plan.schedule
        self._folder.finish({"rounds": schedule.num_rounds, "reason": schedule.reason})
        self.is_done = True

    def close(self) -> None:
        """Closes files and lets the folder go."""
        try:
            if self._events:
                self._events.close()
            if self._checkpoints:
                self._checkpoints.close()
        finally:
            self._folder.close()


def _shaping(settings: dict[str, Any]) -> dict[str, Any]:
    """Speed settings that shape the compiled program."""
    names = (
        *("execution", "chunk_size", "clipping_method", "padded_sizes", "devices"),
        "eval_batch_size",
    )
    return {name: settings["perf"].get(name) for name in names}


def train_recorded(recordings: Sequence[Recording], hooks: Hooks) -> None:
    """Trains runs that share a program to their ends, or until asked to stop."""
    batch = Batch([recording.run for recording in recordings])
    params = [
        recording.begin(clip, initial)
        for recording, clip, initial in zip(
            recordings, batch.clip_norms, batch.initial, strict=True
        )
    ]
    for statement in dict.fromkeys(clip.statement for clip in batch.clip_norms):
        own = [c.value for c in batch.clip_norms if c.statement == statement]
        least, most = f"{min(own):.3g}", f"{max(own):.3g}"
        value = least if least == most else f"{least} to {most}"
        hooks.say(f"Clip norm {value}: {statement}.")
    if hooks.stop():
        return
    every = [each.point.settings.perf.checkpoint_every for each in recordings]
    first = [recording.first_round for recording in recordings]
    bar = tqdm(
        desc=f"{len(recordings)} run{'s' * (len(recordings) > 1)}",
        total=int(np.sum(batch.lengths)),
        initial=sum(first),
        unit="round",
        disable=None,
        leave=False,
    )
    with bar:
        for outputs in batch.train(
            params,
            first,
            snapshot_every=min((each for each in every if each), default=0),
            stop=hooks.stop,
            clock=hooks.clock,
        ):
            for output in outputs:
                row = recordings[output.run].add(output)
                if row["accuracy"] is not None:
                    bar.set_postfix_str(f"accuracy {row['accuracy']:.3f}")
            bar.update(len(outputs))
