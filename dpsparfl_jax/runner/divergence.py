"""Notices runs that learn nothing, because all of their updates have diverged.

Such updates are dropped, but they have used records: budgets are charged for nothing,
and whoever does not hear of it finds out at the end of a long run.
"""

from collections.abc import Callable, Sequence

from dpsparfl_jax.errors import DivergedError
from dpsparfl_jax.records.columns import Row
from dpsparfl_jax.runner.run import Run


class DivergenceWatch:
    """Follows the runs of a batch; warns at once, and ends what only wastes budgets."""

    def __init__(self, runs: Sequence[Run], warn: Callable[[str], None]) -> None:
        """Begins with runs of which nothing is known."""
        self._runs, self._warn = runs, warn
        self._in_a_row = dict.fromkeys(range(len(runs)), 0)  # of runs under way

    def note(self, number: int, row: Row) -> None:
        """Takes the next row of a run.

        Raises:
            DivergedError: if all runs under way have had as many rounds in a row as
                `length.diverged_rounds` in which every update was dropped. One that
                still learns keeps the others going: they share its program.
        """
        run, sent = self._runs[number], len(row["clients"])
        lost_all = 0 < sent <= row["diverged"]
        self._in_a_row[number] = self._in_a_row[number] + 1 if lost_all else 0
        if self._in_a_row[number] == 1:
            self._warn(
                f"{run.name}: all {sent} updates of a round were dropped, because they "
                "had diverged, though they spent their epsilon: lower "
                "training.learning_rate."
            )
        if row["round"] == run.schedule.num_rounds:
            del self._in_a_row[number]
        elif lost_all and all(map(self._is_lost, self._in_a_row)):
            raise DivergedError(
                f"all updates of the last {self._in_a_row[number]} rounds have "
                "diverged and were dropped, while budgets were spent: lower "
                "training.learning_rate (length.diverged_rounds=0 goes on "
                "regardless)."
            )

    def _is_lost(self, number: int) -> bool:
        limit = self._runs[number].settings.length.diverged_rounds
        return 0 < limit <= self._in_a_row[number]
