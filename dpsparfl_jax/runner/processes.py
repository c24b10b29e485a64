"""Processes that train together: what they tell each other on the host.

Each of them makes the same decisions in the same order, because all that a decision
depends on is either computed alike everywhere or said by the first process. What could
differ is settled here, through the key-value store of JAX's coordinator: who could not
go on, whether somebody was asked to stop, and whether all are about to train the same.
Numbers of the training itself go from device to device, not through here.

A process that is lost ends all others: JAX's coordinator sees to that.
"""

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax._src import distributed  # JAX shows its key-value store nowhere else

from dpsparfl_jax.errors import InputError, LostProcessError

_FOREVER_MS = 10**9  # eleven days: whoever is waited for is at work, or lost
_OLD = 64  # steps: no process is so many behind another, devices meet every round
_MEETING_S = 60.0  # for what takes others a moment, if they fail alike


class Processes:
    """This process by itself: whatever it decides is settled."""

    index, count = 0, 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.index == 0

    def settle(self, problems: Mapping[str, Exception]) -> dict[str, Exception]:
        """What stops a run in any process stops it in all of them."""
        return dict(problems)

    def require_same(self, what: str, value: str) -> None:
        """Refuses to go on unless all processes have the same value."""

    def from_first(self, make: Callable[[], Any]) -> Any:
        """What the first process makes, a value for JSON; the others make nothing."""
        return make()

    def agreed(self, stop: Callable[[], bool]) -> Callable[[], bool]:
        """`stop` that is true in all processes if it is in one of them."""
        return stop

    def require_all_failed(self, reason: Exception) -> None:
        """After a failure: goes on only if all processes have failed and are here."""

    def meets_at_the_end(self, seconds: float) -> bool:
        """Whether all processes come to their end within so many seconds."""
        return True


class JoinedProcesses(Processes):
    """One of several processes; all of them call the same methods in the same order."""

    def __init__(self, client: Any, index: int, count: int) -> None:
        """Takes the client of JAX's coordinator."""
        self.index, self.count = index, count
        self._client = client
        self._step = 0  # of everything that is done in a common order

    def tell(self, name: str, value: bytes) -> None:
        """Says something under a name, once."""
        self._client.key_value_set_bytes(f"dpsparfl/{name}", value)

    def hear(self, name: str) -> bytes:
        """Waits for what is said under a name."""
        return self._client.blocking_key_value_get_bytes(
            f"dpsparfl/{name}", _FOREVER_MS
        )

    def forget(self, name: str) -> None:
        """Drops what was said under a name, and under names that begin with it."""
        self._client.key_value_delete(f"dpsparfl/{name}")

    def settle(self, problems: Mapping[str, Exception]) -> dict[str, Exception]:
        """What stops a run in any process stops it in all of them."""
        mine = {name: str(reason) for name, reason in problems.items()}
        settled = dict(problems)
        for process, theirs in enumerate(self._gather(mine)):
            for name, reason in theirs.items():
                settled.setdefault(name, InputError(f"process {process}: {reason}"))
        return settled

    def require_same(self, what: str, value: str) -> None:
        """Refuses to go on unless all processes have the same value."""
        values = self._gather(value)
        other = [process for process, each in enumerate(values) if each != values[0]]
        if other:
            raise InputError(
                f"process {other[0]} has {what} that differ from those of process 0: "
                "give all processes the same settings, files and versions."
            )

    def from_first(self, make: Callable[[], Any]) -> Any:
        """What the first process makes, a value for JSON; the others make nothing."""
        name = self._next()
        if not self.first:
            return json.loads(self.hear(name))
        value = make()
        self.tell(name, json.dumps(value).encode())
        return value

    def agreed(self, stop: Callable[[], bool]) -> Callable[[], bool]:
        """`stop` that is true in all processes if it is in one of them.

        The first process decides, so that all stop before the same round; the others
        let it know that they were asked.
        """
        asked = False

        def decide() -> bool:
            return stop() or bool(self._client.key_value_dir_get("dpsparfl/stop/"))

        def agreed_stop() -> bool:
            nonlocal asked
            if not self.first and not asked and stop():
                asked = True
                self.tell(f"stop/{self.index}", b"asked")
            return bool(self.from_first(decide))

        return agreed_stop

    def require_all_failed(self, reason: Exception) -> None:
        """After a failure: goes on only if all processes have failed and are here."""
        if not self._meet(f"failed/{self._next()}", _MEETING_S):
            raise LostProcessError(
                f"process {self.index} failed and the others did not ({reason})."
            )

    def meets_at_the_end(self, seconds: float) -> bool:
        """Whether all processes come to their end within so many seconds."""
        return self._meet("end", seconds)

    def _meet(self, where: str, seconds: float) -> bool:
        """Waits until all processes are there; false if they are not in time."""
        try:
            self._client.wait_at_barrier(where, int(1000 * seconds))
        except Exception:  # of JAX's own kinds
            return False
        return True

    def _next(self) -> str:
        self._step += 1
        if self.first:
            self.forget(f"step/{self._step - _OLD}")
        return f"step/{self._step}"

    def _gather(self, value: Any) -> list[Any]:
        """What each process says, by its number."""
        name = self._next()
        self.tell(f"{name}/{self.index}", json.dumps(value).encode())
        return [json.loads(self.hear(f"{name}/{n}")) for n in range(self.count)]


def current() -> Processes:
    """This process and those that it was joined with by `jax.distributed`."""
    state = distributed.global_state
    if not jax.distributed.is_initialized() or state.num_processes == 1:
        return Processes()
    return _joined(state.client, state.process_id, state.num_processes)


@functools.cache
def _joined(client: Any, index: int, count: int) -> JoinedProcesses:
    """One value a process: the order of what is said runs through all of it."""
    return JoinedProcesses(client, index, count)
