"""How far a command is: one bar on a terminal, and a line now and then elsewhere.

It counts the rounds of all runs, also of those whose turn has not come. A run's length
is known once it is planned; until then it is taken to be like the others, and the total
is called "about". Without a terminal (a job of a cluster, a log file) a bar would be
noise, but silence for minutes looks like a program that hangs.
"""

import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType

from tqdm import tqdm

from dpsparfl_jax.records.columns import Row

EVERY_S = 30.0  # between two lines
_BEAT_S = 1.0  # between two looks while nothing else happens


class Progress:
    """Follows all runs of a command; use it in a `with` block.

    `say` hears the lines, and `clock` gives seconds; without a clock there are none.
    """

    def __init__(
        self,
        limits: Mapping[str, int],
        *,
        say: Callable[[str], None],
        clock: Callable[[], float] | None,
        shown: bool,
    ) -> None:
        """Begins with runs that have so many rounds at most; 0 has no limit."""
        self._limits, self._say, self._clock = dict(limits), say, clock
        self._planned: dict[str, int] = {}
        self._done = dict.fromkeys(limits, 0)
        self._accuracy: dict[str, float] = {}
        self._epsilon, self._doing = 0.0, "starting"
        self._untimed = 0  # next steps of the runs that train together now
        self._last_s = self._timed_s = 0.0
        self._timed_rounds = self._timed_examples = self._examples = 0
        self._foretells = shown and clock is not None
        self._tells = shown and clock is not None and not sys.stderr.isatty()
        self._told_s = clock() if clock is not None and self._tells else 0.0
        self._lock, self._over = threading.RLock(), threading.Event()
        self._bar = tqdm(
            bar_format="{percentage:3.0f}%|{bar:12}| {desc}",
            total=0,
            disable=None if shown else True,
            leave=False,
            dynamic_ncols=True,
        )
        self._beats = threading.Thread(target=self._beat, name="progress", daemon=True)

    def __enter__(self) -> "Progress":
        """Shows the bar; looks after it while a plan or a compiler takes its time."""
        if self._tells or not self._bar.disable:
            self._beats.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Takes the bar away."""
        self._over.set()
        if self._beats.is_alive():
            self._beats.join()
        self._bar.close()

    def doing(self, what: str) -> None:
        """Says what is happening now, which is no training yet."""
        with self._lock:
            self._doing = what
            self._show()

    def plan(self, run: str, rounds: int) -> None:
        """Notes how many rounds a run has; a thread may plan ahead."""
        with self._lock:
            self._planned[run] = rounds
            self._show()

    def begin(self, rounds: Mapping[str, int], *, untimed: int) -> None:
        """Some runs are about to train together, after so many rounds each.

        What the first `untimed` steps take says nothing about others.
        """
        with self._lock:
            self._done |= rounds
            self._untimed, self._examples = untimed, 0
            self._show()

    def drop(self, runs: Iterable[str]) -> None:
        """These will not go on: what they lack is not waited for."""
        with self._lock:
            for run in set(runs) & set(self._done):
                self._planned[run] = self._done[run]
            self._show()

    def note(self, run: str, row: Row) -> None:
        """Counts a round of a run."""
        self._done[run] = row["round"]
        self._examples += row.get("examples") or 0
        self._epsilon = max(self._epsilon, row.get("epsilon_max") or 0.0)
        if row["accuracy"] is not None:
            self._accuracy[run] = row["accuracy"]

    def step(self, runs: int, what: str) -> None:
        """So many runs have each done a round, side by side."""
        with self._lock:
            now = self._seconds()
            if self._untimed:
                self._untimed -= 1
            else:
                self._timed_s += now - self._last_s
                self._timed_rounds += runs
                self._timed_examples += self._examples
            self._last_s, self._examples, self._doing = now, 0, what
            if self._foretells and self._timed_rounds:
                self._foretells = False
                self._foretell()
            self._show()

    def _foretell(self) -> None:
        """Once, as soon as a round has been measured."""
        rounds, total = sum(self._done.values()), self._total()
        if rounds < total:
            self._say(
                f"About {in_words(self._left_s())} to go: {total - rounds} rounds of "
                f"{self._about()}{total} are left, and one takes "
                f"{self._round_s():.2g} s."
            )

    def _seconds(self) -> float:
        return self._clock() if self._clock else self._bar.format_dict["elapsed"]

    def _total(self) -> int:
        """Of all runs; one that is not planned yet is taken to be like the others."""
        known = self._planned.values()
        usual = round(sum(known) / len(known)) if known else 0
        others = [
            limit for run, limit in self._limits.items() if run not in self._planned
        ]
        return sum(known) + sum(min(limit or usual, usual or limit) for limit in others)

    def _about(self) -> str:
        return "" if len(self._planned) == len(self._limits) else "about "

    def _round_s(self) -> float:
        return self._timed_s / (self._timed_rounds or 1)

    def _left_s(self) -> float:
        return self._round_s() * (self._total() - sum(self._done.values()))

    def _words(self) -> str:
        """All that is known, what matters most first: a terminal may be narrow."""
        total, done = self._total(), sum(self._done.values())
        parts = [f"{self._doing}: {done} of {self._about()}{total} rounds"]
        if self._timed_s:
            parts.append(f"about {in_words(self._left_s())} left")
        parts += [self._accuracy_words()] if self._accuracy else []
        if self._epsilon:
            parts.append(f"epsilon up to {self._epsilon:.3g}")
        if self._timed_s:
            speed = self._timed_examples / self._timed_s
            parts.append(f"{speed:,.0f} examples/s")
        return ", ".join(parts)

    def _accuracy_words(self) -> str:
        """Over the newest of every run, so that it does not hop between runs."""
        newest = self._accuracy.values()
        if len(self._limits) == 1:
            return f"accuracy {max(newest):.3f}"
        mean = sum(newest) / len(newest)
        return f"accuracy up to {max(newest):.3f} (mean {mean:.3f})"

    def _show(self) -> None:
        """Draws the bar, or says a line if the last one is long ago."""
        if not self._bar.disable:
            self._bar.total, self._bar.n = self._total(), sum(self._done.values())
            self._bar.set_description_str(self._words())
        elif self._tells and self._seconds() - self._told_s >= EVERY_S:
            self._told_s = self._seconds()
            words = self._words()
            self._say(f"{words[0].upper()}{words[1:]}.")

    def _beat(self) -> None:
        while not self._over.wait(_BEAT_S):
            with self._lock:
                self._show()


def in_words(seconds: float) -> str:
    """A length of time that is quickly read."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
