"""Rounds on their way to services (`--log`), beside the records.

Every service has a thread: no round waits for it, and if it is out of reach, rounds do.
Records stay the truth. A file in the run's folder says by which id the service knows
the run and how many of its rounds it has; what it lacks is sent from the records, when
the service is back or when the same command is given again.
"""

import functools
import json
import pathlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from dpsparfl_jax import config_values, records
from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.errors import first_line
from dpsparfl_jax.privacy.clip_norm import ClipNorm
from dpsparfl_jax.records import groups
from dpsparfl_jax.records.columns import Row
from dpsparfl_jax.runner.sinks import Beginning, OuterSink, RoundRecord, Sink
from dpsparfl_jax.storage import write_whole
from dpsparfl_jax.types import ServerState

from .services import SERVICES, About, Opened

_AGAIN_S = 60.0  # before a service that failed is tried again
_SAVED_S = 10.0  # between two notes of how many rounds were sent
_LONGEST = 160  # characters of what a client complains of
_PATIENCE_S = 60.0  # at the end, for what is still on its way


class _Copy:
    """A run as one service has it; only the service's thread touches it."""

    def __init__(self, service: str, about: About, folder: pathlib.Path) -> None:
        """Remembers what was sent before, if anything was."""
        self._open_new, self._about = SERVICES[service], about
        self._path = folder / f"tracked_{service}.json"
        self._waiting: list[Row] = []
        self._opened: Opened | None = None
        self._is_over: bool | None = None  # whether it is done; None: it goes on
        self._saved_s = 0.0
        try:
            known = json.loads(self._path.read_text(encoding="utf-8"))
            self._id, self._sent = str(known["id"]), int(known["rounds"])
        except (OSError, ValueError, KeyError, TypeError):  # new, or to be sent anew
            self._id, self._sent = "", 0

    @property
    def lacks(self) -> bool:
        """Whether there are rounds that are not sent yet."""
        return bool(self._waiting)

    def add(self, rows: Sequence[Row]) -> None:
        """Takes rounds; those that were sent before come again to the same bits."""
        self._is_over = None
        self._waiting += [row for row in rows if row["round"] > self._sent]

    def end(self, *, done: bool) -> None:
        """No round follows for now."""
        self._is_over = done

    def send(self) -> None:
        """Sends what waits; raises whatever the service raises."""
        if self._opened is None and self._waiting:
            self._opened = self._open_new(self._about._replace(id=self._id))
            self._id = self._opened.id
            self._save()
        if self._opened is None:
            return
        if self._waiting:
            self._opened.send(self._waiting)
            self._sent, self._waiting = self._waiting[-1]["round"], []
        if self._is_over is not None:
            opened, self._opened = self._opened, None
            opened.end(done=self._is_over)
        if self._opened is None or time.monotonic() - self._saved_s > _SAVED_S:
            self._save()

    def _save(self) -> None:
        self._saved_s = time.monotonic()
        content = {"id": self._id, "rounds": self._sent}
        write_whole(self._path, json.dumps(content) + "\n")


class _Feed:
    """One service: work is done in its thread, in order, as long as it answers."""

    def __init__(self, service: str, warn: Callable[[str], None]) -> None:
        """Begins to wait for work."""
        self.service, self._warn = service, warn
        self._copies: list[_Copy] = []
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._next_s, self._has_warned = 0.0, False
        self._thread = threading.Thread(target=self._work, name=service, daemon=True)
        self._thread.start()

    def follow(self, about: About, folder: pathlib.Path) -> _Copy:
        """A run that is to be sent."""
        copy = _Copy(self.service, about, folder)
        self._copies.append(copy)
        return copy

    def put(self, copy: _Copy, change: Callable[[], None]) -> None:
        """Changes a copy when its turn comes, and sends what it lacks."""

        def work() -> None:
            change()
            if time.monotonic() >= self._next_s:
                self._send(copy)

        self._queue.put(work)

    def close(self) -> None:
        """Sends what waits, for a while; says what could not be sent."""
        self._queue.put(None)
        self._thread.join(_PATIENCE_S)
        if self._thread.is_alive() or any(copy.lacks for copy in self._copies):
            self._has_warned = True  # what a client complains of later is no news
            self._warn(
                f"Not all rounds were sent to {self.service}: they are recorded, and "
                "the same command sends them."
            )

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            work()
        for copy in self._copies:
            self._send(copy)

    def _send(self, copy: _Copy) -> None:
        """Sends, or warns the first time that it fails, and rests a while."""
        try:
            copy.send()
        except Exception as reason:  # whatever a client raises: training goes on
            self._next_s = time.monotonic() + _AGAIN_S
            if not self._has_warned:
                self._has_warned = True
                first = first_line(reason, type(reason).__name__)[:_LONGEST]
                self._warn(
                    f"Rounds cannot be sent to {self.service} now ({first}): training "
                    "goes on, and they are sent later."
                )


class Tracking:
    """Sends the rounds of some runs to some services; use it in a `with` block."""

    def __init__(
        self, names: Sequence[str], group: str, warn: Callable[[str], None]
    ) -> None:
        """Starts a thread a service; `group` is what all runs belong to."""
        self._group = group
        self._feeds = [_Feed(name, warn) for name in names]

    def __enter__(self) -> "Tracking":
        """Nothing is sent yet."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Waits for what is on its way."""
        for feed in self._feeds:
            feed.close()

    def around(
        self, sink: Sink, name: str, settings: RunConfig, folder: pathlib.Path
    ) -> Sink:
        """A sink that sends what the inner one records; finished runs are sent now."""
        if not self._feeds:
            return sink
        about = About(name, self._group, groups.flat(config_values.as_dict(settings)))
        copies = [(feed, feed.follow(about, folder)) for feed in self._feeds]
        tracked = TrackedSink(sink, folder, copies)
        if sink.is_done:
            tracked.catch_up(None)
            tracked.end(done=True)
        return tracked


class TrackedSink(OuterSink):
    """Goes around the sink that records a run, and passes its rounds on."""

    def __init__(
        self, inner: Sink, folder: pathlib.Path, copies: Sequence[tuple[_Feed, _Copy]]
    ) -> None:
        """`copies` are the run as each service has it."""
        super().__init__(inner)
        self._folder, self._copies = folder, copies
        self._has_begun = False

    def begin(self, clip: ClipNorm, first: ServerState) -> Beginning:
        """Says where to go on; earlier rounds that a service lacks are sent first."""
        beginning = super().begin(clip, first)
        self.catch_up(beginning.rounds)
        self._has_begun = True
        return beginning

    def add(self, record: RoundRecord) -> None:
        """Records the next round, then passes it on."""
        super().add(record)
        self._pass_on([record.row])

    def close(self) -> None:
        """Lets go."""
        if self._has_begun:
            self._has_begun = False
            self.end(done=self.is_done)
        super().close()

    def catch_up(self, count: int | None) -> None:
        """Passes recorded rounds on: the first ones, or all."""
        self._pass_on(records.read_rounds(self._folder)[:count])

    def end(self, *, done: bool) -> None:
        """Tells services that no round follows for now."""
        for feed, copy in self._copies:
            feed.put(copy, functools.partial(copy.end, done=done))

    def _pass_on(self, rows: Sequence[Row]) -> None:
        for feed, copy in self._copies:
            feed.put(copy, functools.partial(copy.add, rows))
