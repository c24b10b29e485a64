"""A run as tables: one row a round, one row a client, one line of summary.

Everything here is a pure function of the schedule and of what came back from training.
Numbers are plain Python ones; what is not finite (no noise: epsilon is infinite) is
None, as JSON has no word for it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.planning.schedule import Schedule
from dpsparfl_jax.types import RoundOutput

Row = dict[str, Any]
WALL_TIMES = ("host_s", "device_s")  # the only fields that differ between repetitions


def finite(value: Any) -> float | None:
    """A plain number, or None."""
    return float(value) if value is not None and math.isfinite(value) else None


def _mean(values: NDArray[Any]) -> float | None:
    return finite(np.mean(values)) if len(values) else None


class RoundRows:
    """Rows of a run's rounds; what accumulates is added up once, beforehand."""

    def __init__(self, schedule: Schedule) -> None:
        """Takes the whole schedule."""
        self.schedule = schedule
        energy = np.sum(schedule.upload_j + schedule.training_j, axis=1)
        bits = np.sum(schedule.bits, axis=1)
        self.energy_j, self.bits = energy, bits
        self.cumulative = {
            "cumulative_delay_s": np.cumsum(schedule.round_delay_s),
            "cumulative_energy_j": np.cumsum(energy),
            "cumulative_bits": np.cumsum(bits),
        }

    def row(self, output: RoundOutput) -> Row:
        """One flat row; `round` counts from 1."""
        t = output.round_index
        return {
            "round": t + 1,
            "accuracy": finite(output.accuracy),
            "loss": finite(output.loss),
            **self._planned(t),
            **self._trained(output),
            "host_s": finite(output.host_s),
            "device_s": finite(output.device_s),
        }

    def _planned(self, t: int) -> Row:
        plan, sends = self.schedule, self.schedule.sends[t]
        slowest = int(np.argmax(plan.delay_s[t]))
        training, upload = plan.training_s[t, slowest], plan.upload_s[t, slowest]
        spent, budget = plan.epsilon_spent[t], plan.budget
        queue = plan.fairness_queue[t]
        return {
            "round_delay_s": float(plan.round_delay_s[t]),
            "downlink_s": float(plan.delay_s[t, slowest] - training - upload),
            "training_s": float(training),
            "upload_s": float(upload),
            "energy_j": float(self.energy_j[t]),
            "bits": float(self.bits[t]),
            **{name: float(total[t]) for name, total in self.cumulative.items()},
            "clients": plan.client[t][sends].tolist(),
            "channels": np.flatnonzero(sends).tolist(),
            "powers_w": plan.power_w[t][sends].tolist(),
            "keep_rates": plan.keep_rate[t][sends].tolist(),
            "delays_s": plan.delay_s[t][sends].tolist(),
            "keep_rate_mean": _mean(plan.keep_rate[t][sends]),
            "delay_queue": float(plan.delay_queue[t]),
            "fairness_queue_min": float(np.min(queue)),
            "fairness_queue_mean": float(np.mean(queue)),
            "fairness_queue_max": float(np.max(queue)),
            "objective": finite(plan.value[t]),
            "objective_lower_bound": finite(plan.lower_bound[t]),
            "epsilon_max": finite(np.max(spent)),
            "epsilon_mean": finite(np.mean(spent)),
            "epsilon_margin": finite(np.min(_margin(budget, spent))),
            "live_clients": int(np.sum(plan.live[t])),
        }

    def _trained(self, output: RoundOutput) -> Row:
        sends = self.schedule.sends[output.round_index]
        seen = {
            name: np.asarray(column)[sends]
            for name, column in output.diagnostics._asdict().items()
        }
        return {
            "train_loss": _mean(seen["loss"]),
            "clipped_fraction": _mean(seen["clipped_fraction"]),
            "median_norm": _mean(seen["median_norm"]),
            "gradient_to_noise": _mean(seen["gradient_to_noise"]),
            "examples": int(np.sum(seen["examples"])),
            "overflow": int(np.sum(seen["overflow"])),
            "nonfinite_examples": int(np.sum(seen["nonfinite_examples"])),
            "kept_coordinates": int(np.sum(seen["kept"])),
            "diverged": int(np.sum(seen["diverged"])),
        }


def _margin(budget: NDArray[Any], spent: NDArray[Any]) -> NDArray[Any]:
    """Epsilon left; infinite for everybody without noise."""
    with np.errstate(invalid="ignore"):
        left = budget - spent
    return np.where(np.isnan(left), np.inf, left)


def client_rows(
    schedule: Schedule,
    label_counts: NDArray[Any],
    test_sizes: Sequence[int],
    right: NDArray[np.bool_],
) -> list[Row]:
    """One row a client, after the last round; `right` [E] is in order of clients."""
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
    spent = schedule.epsilon_spent[-1]
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
            **{f"label_{c}": int(n) for c, n in enumerate(label_counts[i])},
        }
        for i in range(users)
    ]


def summarise(rounds: Sequence[Mapping[str, Any]], clients: Sequence[Row]) -> Row:
    """What a table of runs shows of one.

    Fairness is Jain's index of participations over the rates that clients should have:
    1 if everybody takes part exactly in proportion, 1/U if only one client does, None
    if nobody ever does.
    """
    last = rounds[-1]
    accuracies = [row["accuracy"] for row in rounds if row["accuracy"] is not None]
    served = np.array([c["participations"] / c["rate"] for c in clients if c["rate"]])
    return {
        "rounds": last["round"],
        "accuracy": accuracies[-1] if accuracies else None,
        "best_accuracy": max(accuracies, default=None),
        "delay_s": last["cumulative_delay_s"],
        "energy_j": last["cumulative_energy_j"],
        "bits": last["cumulative_bits"],
        "epsilon_max": last["epsilon_max"],
        "epsilon_mean": last["epsilon_mean"],
        "fairness": float(np.sum(served) ** 2 / (served.size * np.sum(served**2)))
        if served.any()
        else None,
        "diverged": sum(row["diverged"] for row in rounds),
    }
