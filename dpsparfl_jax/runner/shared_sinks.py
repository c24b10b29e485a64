"""Sinks of runs that several processes train: the first one writes, others follow.

`TellingSink` goes around the sink of the first process and tells the others what they
cannot know: the schedule that a folder holds, and from where its run goes on.
`HearingSink` is the sink of all others: it writes nothing.
"""

import io
import json
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning import schedule as schedule_lib
from dpsparfl_jax.planning.schedule import Schedule
from dpsparfl_jax.privacy.clip_norm import ClipNorm
from dpsparfl_jax.runner.processes import JoinedProcesses
from dpsparfl_jax.runner.run import Run
from dpsparfl_jax.runner.sinks import Beginning, OuterSink, RoundRecord, Sink
from dpsparfl_jax.types import ServerState


class _SharedSink:
    """What both have: a name for everything that is said of a run."""

    def __init__(self, name: str, processes: JoinedProcesses) -> None:
        self._name, self._processes = f"runs/{name}", processes
        self._beginnings = 0  # a run that failed together with others is begun again

    def _next_beginning(self) -> str:
        self._beginnings += 1
        return f"{self._name}/begin {self._beginnings}"


class TellingSink(OuterSink, _SharedSink):
    """The sink of the first process, which lets the others know what it says."""

    def __init__(self, name: str, processes: JoinedProcesses, inner: Sink) -> None:
        """Goes around `inner`, the sink that remembers the run."""
        OuterSink.__init__(self, inner)
        _SharedSink.__init__(self, name, processes)

    def saved_schedule(self) -> Schedule | None:
        """The plan of a run that is to go on."""
        schedule = super().saved_schedule()
        told = b"" if schedule is None else _schedule_bytes(schedule)
        self._processes.tell(f"{self._name}/schedule", told)
        return schedule

    def begin(self, clip: ClipNorm, first: ServerState) -> Beginning:
        """Says where to go on, or why not."""
        name = self._next_beginning()
        try:
            beginning = super().begin(clip, first)
        except Exception as reason:
            self._tell(name, problem=str(reason))
            raise
        if beginning.rounds:
            self._processes.tell(f"{name} state", _state_bytes(beginning.state))
        self._tell(name, rounds=beginning.rounds, done=self.is_done)
        return beginning

    def _tell(self, name: str, **facts: Any) -> None:
        self._processes.tell(name, json.dumps(facts).encode())

    def close(self) -> None:
        """Lets go; what was said has been heard by all once a run was begun."""
        super().close()
        if self._beginnings:
            self._processes.forget(self._name)


class HearingSink(_SharedSink):
    """The sink of all others: it does as the first one says, and writes nothing."""

    def __init__(
        self, name: str, processes: JoinedProcesses, settings: RunConfig, *, done: bool
    ) -> None:
        """Follows the run of this name; `done` runs are finished already."""
        super().__init__(name, processes)
        self.is_done = done
        self.snapshot_every = settings.perf.checkpoint_every

    def saved_schedule(self) -> Schedule | None:
        """The schedule that the first process has found."""
        told = self._processes.hear(f"{self._name}/schedule")
        return _read_schedule(told) if told else None

    def open(self, run: Run) -> None:
        """Nothing is written."""

    def begin(self, clip: ClipNorm, first: ServerState) -> Beginning:
        """From where the first process goes on."""
        name = self._next_beginning()
        facts = json.loads(self._processes.hear(name))
        if "problem" in facts:
            raise InputError(facts["problem"])
        self.is_done = facts["done"]
        if not facts["rounds"]:
            return Beginning(0, first)
        state = _read_state(self._processes.hear(f"{name} state"), first)
        return Beginning(facts["rounds"], state)

    def add(self, record: RoundRecord) -> None:
        """Notices the end."""
        self.is_done = record.clients is not None

    def close(self) -> None:
        """Nothing was taken hold of."""


def share_sinks(
    settings: Mapping[str, RunConfig],
    sinks: Mapping[str, Sink],
    refused: Mapping[str, Exception],
    processes: JoinedProcesses,
) -> tuple[dict[str, Sink], dict[str, Exception]]:
    """Sinks of all runs that the first process has not refused, for every process.

    `sinks` and `refused` are those of the first process, by the name of the run; what
    others give is not looked at.
    """

    def facts() -> dict[str, Any]:
        reasons = {name: str(reason) for name, reason in refused.items()}
        return {"done": {n: s.is_done for n, s in sinks.items()}, "refused": reasons}

    said = processes.from_first(facts)
    if processes.first:
        telling = {n: TellingSink(n, processes, sink) for n, sink in sinks.items()}
        return dict(telling), dict(refused)
    hearing = {
        name: HearingSink(name, processes, settings[name], done=done)
        for name, done in said["done"].items()
    }
    return dict(hearing), {n: InputError(why) for n, why in said["refused"].items()}


def _schedule_bytes(schedule: Schedule) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "schedule.npz"
        schedule_lib.save(schedule, path)
        return path.read_bytes()


def _read_schedule(content: bytes) -> Schedule:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "schedule.npz"
        path.write_bytes(content)
        return schedule_lib.load(path)


def _state_bytes(state: ServerState) -> bytes:
    file = io.BytesIO()
    np.savez(file, *jax.tree.leaves(state))
    return file.getvalue()


def _read_state(content: bytes, like: ServerState) -> ServerState:
    """The state, with the structure of one that is known."""
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        leaves = [file[f"arr_{number}"] for number in range(len(file))]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)
