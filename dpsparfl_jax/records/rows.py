"""A run as tables: one row a round, one row a client, one line of summary.

Everything here is a pure function of the schedule and of what came back from training.
Numbers are plain Python ones; what is not finite (no noise: epsilon is infinite) is
None, as JSON has no word for it. `columns` says what each column is.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.planning.schedule import Schedule
from dpsparfl_jax.records.columns import COLUMNS, REDUCERS, RoundView, Row, finite
from dpsparfl_jax.types import RoundOutput


class RoundRows:
    """Rows of a run's rounds; what accumulates is added up once, beforehand."""

    def __init__(self, schedule: Schedule, *, private_only: bool = False) -> None:
        """Takes the whole schedule; `private_only` leaves raw columns out."""
        self.schedule = schedule
        self.columns = {
            name: column
            for name, column in COLUMNS.items()
            if not (column.raw and private_only)
        }
        energy = np.sum(schedule.upload_j + schedule.training_j, axis=1)
        bits = np.sum(schedule.bits, axis=1)
        self.totals = {
            "round_energy_j": energy,
            "round_bits": bits,
            "cumulative_delay_s": np.cumsum(schedule.round_delay_s),
            "cumulative_energy_j": np.cumsum(energy),
            "cumulative_bits": np.cumsum(bits),
            **_over_clients(schedule),
        }

    def row(self, output: RoundOutput) -> Row:
        """One flat row: a value for every column."""
        t = output.round_index
        sends = self.schedule.sends[t]
        arrived = self.schedule.arrived[t]
        diagnostics = {
            name: np.asarray(values)[arrived]
            for name, values in output.diagnostics._asdict().items()
        }
        view = RoundView(self.schedule, t, sends, output, diagnostics, self.totals)
        return {name: _plain(column.of(view)) for name, column in self.columns.items()}


def _over_clients(schedule: Schedule) -> dict[str, NDArray[Any]]:
    """Queues and ledgers of all clients in every round, as single numbers [T]."""
    found = []
    for state in schedule.client_states():
        queue, spent = state.fairness_queue, schedule.epsilon_after(state.after)
        with np.errstate(invalid="ignore"):
            left = schedule.budget - spent
        left = np.where(np.isnan(left), np.inf, left)  # for everybody without noise
        found.append(
            {
                "fairness_queue_min": np.min(queue),
                "fairness_queue_mean": np.mean(queue),
                "fairness_queue_max": np.max(queue),
                "epsilon_max": np.max(spent),
                "epsilon_mean": np.mean(spent),
                "epsilon_margin": np.min(left),
                "epsilon_left": np.mean(left),
                "live_clients": np.sum(state.before < schedule.affordable),
            }
        )
    names = found[0] if found else ()
    return {name: np.array([one[name] for one in found]) for name in names}


def _plain(value: Any) -> Any:
    """What JSON can write: NumPy's numbers as Python's, None for what is not finite."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    return finite(value) if isinstance(value, float) else value


def client_rows(
    schedule: Schedule,
    label_counts: NDArray[Any],
    test_sizes: Sequence[int],
    right: NDArray[np.bool_],
    *,
    private_only: bool = False,
) -> list[Row]:
    """One row a client, after the last round; `right` [E] is in order of clients.

    `private_only` leaves the counts of labels out.
    """
    users = len(schedule.budget)
    ends = np.cumsum(test_sizes)[:-1]
    accuracy = [float(np.mean(part)) for part in np.split(right, ends)]
    energy, kept = np.zeros(users), np.zeros(users)
    used = schedule.sends
    np.add.at(
        energy, schedule.client[used], (schedule.upload_j + schedule.training_j)[used]
    )
    np.add.at(kept, schedule.client[used], schedule.keep_rate[used])
    counts = schedule.participations
    spent = schedule.epsilon_after(counts)
    return [
        {
            "client": i,
            "train_examples": int(np.sum(label_counts[i])),
            "test_examples": int(test_sizes[i]),
            "epsilon_asked": finite(schedule.budget[i]),
            "epsilon_spent": finite(spent[i]),
            "afforded": int(schedule.affordable[i]),
            "participations": int(counts[i]),
            "rate": float(schedule.rate[i]),
            "share": float(counts[i] / schedule.num_rounds),
            "energy_j": float(energy[i]),
            "keep_rate_mean": float(kept[i] / counts[i]) if counts[i] else None,
            "test_accuracy": accuracy[i],
            **{
                f"label_{c}": int(n)
                for c, n in enumerate(label_counts[i])
                if not private_only
            },
        }
        for i in range(users)
    ]


def summarise(rounds: Sequence[Mapping[str, Any]], clients: Sequence[Row]) -> Row:
    """What a table of runs shows of one: columns reduced as `columns` says.

    Fairness is Jain's index of participations over the rates that clients should have:
    1 if everybody takes part exactly in proportion, 1/U if only one client does, None
    if nobody ever does. Rows may come from a frame: nan is as good as None.
    """
    summary: Row = {}
    for column in COLUMNS.values():
        for part in column.summary:
            values = [row.get(column.name) for row in rounds]
            there = [value for value in values if finite(value) is not None]
            summary[part.name] = REDUCERS[part.reducer](there)
    served = np.array([c["participations"] / c["rate"] for c in clients if c["rate"]])
    summary["fairness"] = (
        float(np.sum(served) ** 2 / (served.size * np.sum(served**2)))
        if served.any()
        else None
    )
    return summary
