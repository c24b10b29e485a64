"""What workers tell about their batches: one small file each, written whole.

Files work wherever records do: a worker that can write a run can also say how far it
is, and nobody needs to reach its machine.
"""

import json
import os
import pathlib
import platform
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.records.columns import Row
from dpsparfl_jax.storage import write_whole

if TYPE_CHECKING:
    from dpsparfl_jax.runner.run import Run

STOP = "stop"  # a file: workers end after the rounds under way
_EVERY_S = 1.0  # between two files
_LOOK_S = 0.5  # between two looks for the file that says stop


class Status(NamedTuple):
    """How far a batch is."""

    state: str = "waiting"  # starting, training, finished, failed
    runs: float = 0.0  # that are done; a run in its middle counts half
    rounds: int = 0  # that were trained by this worker
    accuracy: float | None = None  # of the newest evaluation
    where: str = ""  # machine and process
    attempt: int = 0  # how often it was begun
    warnings: tuple[str, ...] = ()


def status_file(launch: pathlib.Path, number: int) -> pathlib.Path:
    """The file of one batch."""
    return launch / f"batch{number:04d}.json"


def read(launch: pathlib.Path, number: int) -> Status:
    """How far a batch is; what is not there, or is damaged, has not begun."""
    try:
        content = json.loads(status_file(launch, number).read_text(encoding="utf-8"))
        told = Status(**{**content, "warnings": tuple(content["warnings"])})
        return told._replace(runs=float(told.runs), rounds=int(told.rounds))
    except (OSError, ValueError, TypeError, KeyError):
        return Status()


class Reporter:
    """A worker's side: hears what happens to a batch, and writes it down."""

    def __init__(self, launch: pathlib.Path, number: int) -> None:
        """Begins, or begins again after another worker was lost."""
        before = read(launch, number)
        self._path = status_file(launch, number)
        self._stop = launch / STOP
        self._share: dict[str, float] = {}
        self._written = self._looked = 0.0
        self._asked = False
        self._status = Status(
            state="starting",
            where=f"{platform.node()}, process {os.getpid()}",
            attempt=before.attempt + 1,
            warnings=before.warnings,
        )
        self._write()

    def warn(self, sentence: str) -> None:
        """Passes on what a user must not overlook."""
        print(sentence, flush=True)
        if sentence not in self._status.warnings:
            self._tell(warnings=(*self._status.warnings, sentence))

    def say(self, sentence: str) -> None:
        """Leaves a line in the worker's own log."""
        print(sentence, flush=True)

    def row(self, run: "Run", row: Row) -> None:
        """Counts a round."""
        self._share[run.name] = row["round"] / run.schedule.num_rounds
        told: dict[str, Any] = {"rounds": self._status.rounds + 1, "state": "training"}
        if row["accuracy"] is not None:
            told["accuracy"] = row["accuracy"]
        self._tell(runs=sum(self._share.values()), **told)

    def asked_to_stop(self) -> bool:
        """Whether whoever launched the sweep wants it to end."""
        if not self._asked and time.monotonic() - self._looked > _LOOK_S:
            self._looked = time.monotonic()
            self._asked = self._stop.exists()
        return self._asked

    def end(self, state: str, runs: int) -> None:
        """The last word: how it ended, and how many runs are done."""
        self._status = self._status._replace(state=state, runs=float(runs))
        self._write()

    def _tell(self, **changes: Any) -> None:
        self._status = self._status._replace(**changes)
        if time.monotonic() - self._written > _EVERY_S:
            self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        try:
            write_whole(self._path, json.dumps(self._status._asdict()) + "\n")
        except InputError:  # a full disk stops the runs themselves, with a sentence
            return
