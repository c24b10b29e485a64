"""Where the rounds of a run go: what every sink does, and the one that keeps them.

The driver opens a sink, asks where to begin, hands it every round, and closes it. It is
the sink that remembers: `MemorySink` for Python callers, `FolderSink` (its own module)
for recorded runs, and whatever else wants to follow a run.
"""

from typing import NamedTuple, Protocol

from dpsparfl_jax.planning.schedule import Schedule
from dpsparfl_jax.privacy.clip_norm import ClipNorm
from dpsparfl_jax.records.columns import Row
from dpsparfl_jax.runner.run import Run
from dpsparfl_jax.types import ServerState


class Beginning(NamedTuple):
    """From where a run goes on."""

    rounds: int  # that are behind it; 0: from the start
    state: ServerState


class RoundRecord(NamedTuple):
    """One round of a run, as sinks receive it."""

    row: Row  # a value for every column of `records.columns`
    state: ServerState | None  # of the server, where a snapshot was due
    clients: list[Row] | None  # a row a client, after the last round only


class Sink(Protocol):
    """Receives the rounds of one run, in order."""

    @property
    def is_done(self) -> bool:
        """Whether the run is complete; asked before opening it, and at the end."""

    @property
    def snapshot_every(self) -> int:
        """Rounds between snapshots that it wants; 0 wants the last one only."""

    def saved_schedule(self) -> Schedule | None:
        """The plan of a run that is to go on; None has it planned."""

    def open(self, run: Run) -> None:
        """Takes hold of what it writes to. `close` follows, whatever happens."""

    def begin(self, clip: ClipNorm, first: ServerState) -> Beginning:
        """Says where to go on; `first` is the state before the first round."""

    def add(self, record: RoundRecord) -> None:
        """Takes the next round."""

    def close(self) -> None:
        """Lets go."""


class OuterSink:
    """Goes around another sink and does as it does; what follows a run adds to it."""

    def __init__(self, inner: Sink) -> None:
        """`inner` is the sink that remembers the run."""
        self._inner = inner

    @property
    def is_done(self) -> bool:
        """As the sink inside says."""
        return self._inner.is_done

    @property
    def snapshot_every(self) -> int:
        """As the sink inside says."""
        return self._inner.snapshot_every

    def saved_schedule(self) -> Schedule | None:
        """The plan that the sink inside has."""
        return self._inner.saved_schedule()

    def open(self, run: Run) -> None:
        """Takes hold of what the sink inside writes to."""
        self._inner.open(run)

    def begin(self, clip: ClipNorm, first: ServerState) -> Beginning:
        """From where the sink inside goes on."""
        return self._inner.begin(clip, first)

    def add(self, record: RoundRecord) -> None:
        """Hands the next round in."""
        self._inner.add(record)

    def close(self) -> None:
        """Lets go."""
        self._inner.close()


class FinishedSink:
    """The sink of a run that is known to be finished: nothing is done with it."""

    is_done, snapshot_every = True, 0

    def saved_schedule(self) -> Schedule | None:
        """None: nobody asks."""
        return None

    def open(self, run: Run) -> None:
        """Refuses: finished runs are skipped."""
        raise AssertionError("this run is finished")

    def begin(self, clip: ClipNorm, first: ServerState) -> Beginning:
        """Refuses: finished runs are skipped."""
        raise AssertionError("this run is finished")

    def add(self, record: RoundRecord) -> None:
        """Refuses: finished runs are skipped."""
        raise AssertionError("this run is finished")

    def close(self) -> None:
        """Nothing was taken hold of."""


class MemorySink:
    """Keeps rounds, clients and the last state of a run in memory."""

    snapshot_every = 0

    def __init__(self) -> None:
        """Starts empty."""
        self.is_done = False
        self.run: Run | None = None
        self.clip: ClipNorm | None = None
        self.rounds: list[Row] = []
        self.clients: list[Row] = []
        self.state: ServerState | None = None

    def saved_schedule(self) -> Schedule | None:
        """None: nothing is kept between calls."""
        return None

    def open(self, run: Run) -> None:
        """Forgets what an earlier try left."""
        self.run, self.rounds = run, []

    def begin(self, clip: ClipNorm, first: ServerState) -> Beginning:
        """From the start."""
        self.clip = clip
        return Beginning(0, first)

    def add(self, record: RoundRecord) -> None:
        """Keeps the row, and the last state."""
        self.rounds.append(record.row)
        if record.state is not None:
            self.state = record.state
        if record.clients is not None:
            self.clients, self.is_done = record.clients, True

    def close(self) -> None:
        """Lets the images go: a sweep may have many sets."""
        if self.run is not None:
            self.run = self.run.without_images()
