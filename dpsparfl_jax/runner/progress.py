"""How far training is: a bar on a terminal, and a line now and then elsewhere.

Without a terminal (a job of a cluster, a log file) a bar would be noise, but silence
for minutes looks like a program that hangs.
"""

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tqdm import tqdm

EVERY_S = 30.0  # between two lines


class Progress:
    """Counts rounds that were trained; use it in a `with` block.

    `say` hears the lines, and `clock` gives seconds; without a clock there are none.
    """

    def __init__(
        self,
        what: str,
        total: int,
        done: int,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float] | None,
        shown: bool,
    ) -> None:
        """Begins after `done` of `total` rounds; nothing is `shown` if so wanted."""
        self._what, self._total, self._done, self._before = what, total, done, done
        self._say, self._accuracy = say, ""
        self._clock = clock if shown and not sys.stderr.isatty() else None
        self._began = self._told = self._clock() if self._clock else 0.0
        self._bar = tqdm(
            desc=what,
            total=total,
            initial=done,
            unit="round",
            disable=None if shown else True,
            leave=False,
        )

    def __enter__(self) -> "Progress":
        """Shows the bar."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Takes the bar away."""
        self._bar.close()

    def note(self, row: dict[str, Any]) -> None:
        """Remembers the newest accuracy."""
        if row["accuracy"] is not None:
            self._accuracy = f"accuracy {row['accuracy']:.3f}"
            self._bar.set_postfix_str(self._accuracy)

    def update(self, rounds: int) -> None:
        """Counts rounds; says a line if the last one is long ago."""
        self._done += rounds
        self._bar.update(rounds)
        if self._clock is None or self._clock() - self._told < EVERY_S:
            return
        self._told = self._clock()
        seconds = self._told - self._began
        left = seconds * (self._total - self._done) / (self._done - self._before or 1)
        parts = (
            f"{self._what}: {self._done} of {self._total} rounds",
            self._accuracy,
            f"about {in_words(left)} left",
        )
        self._say(", ".join(filter(None, parts)) + ".")


def in_words(seconds: float) -> str:
    """A length of time that is quickly read."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
