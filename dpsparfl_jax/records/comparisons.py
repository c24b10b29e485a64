"""How runs are compared: intervals over seeds, and accuracies at equal cost.

Costs are equal at what all compared runs reach. An accuracy at equal delay is that of
the last evaluation by then: every round takes time, so that a cap that moves a little
lets in one more evaluation at most. The largest epsilon is a staircase, on whose last
step a run may stay for many rounds, so that a single cap would be a knife edge: an
accuracy at equal epsilon is the mean over all caps from 80% to 100% of what all reach.
"""

import bisect
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dpsparfl_jax.records.columns import finite
from dpsparfl_jax.records.index import IndexedRun

LEVEL = 0.95
EVALUATED = (  # columns of rounds, in the order of an evaluation's fields
    *("round", "cumulative_delay_s", "cumulative_energy_j", "epsilon_max"),
    *("epsilon_mean", "accuracy"),
)
# By so much may a cost exceed another that is the same: indexes keep six digits.
_SAME = 1 + 1e-5


class Evaluation(NamedTuple):
    """What a run had come to when its model was tested."""

    round: float
    delay_s: float
    energy_j: float
    epsilon_max: float  # of the client that has spent most; infinite: not private
    epsilon_mean: float  # over all clients
    accuracy: float


class Cost(NamedTuple):
    """What may be made equal: its name, and from which share of it caps go."""

    words: str
    share: float
    private: bool = False  # whether it means something for private runs alone


COSTS = {  # by field of an evaluation
    "delay_s": Cost("delay", 1.0),
    "epsilon_max": Cost("largest epsilon", 0.8, private=True),
    "epsilon_mean": Cost("mean epsilon", 0.8, private=True),
}


class Caps(NamedTuple):
    """All costs from one to another, or a single one that is both."""

    low: float
    high: float


def interval(values: Iterable[float | None]) -> tuple[float, float, float]:
    """Mean and both ends of the 95% Student-t interval; blanks do not count."""
    there = [value for value in map(finite, values) if value is not None]
    if not there:
        return np.nan, np.nan, np.nan
    numbers = np.array(there)
    mean, half = float(numbers.mean()), float(half_interval(numbers))
    return mean, mean - half, mean + half


def half_interval(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Half of that interval over the first axis; not a number for a single value."""
    count = len(values)
    if count < 2:
        return np.full(values.shape[1:], np.nan)
    quantile = stats.t.ppf((1 + LEVEL) / 2, count - 1)
    return np.asarray(quantile * values.std(axis=0, ddof=1) / np.sqrt(count))


def evaluations(columns: Sequence[Sequence[Any]], private: bool) -> list[Evaluation]:
    """The rounds in which the model was tested, from the columns `EVALUATED`."""
    made = []
    for row in zip(*columns, strict=True):
        at, delay, energy, largest, mean, accuracy = map(finite, row)
        if accuracy is None or delay is None:
            continue
        if not private:
            largest = mean = None
        spent = [math.inf if one is None else one for one in (largest, mean)]
        costs = delay, energy or 0.0, spent[0], spent[1]
        made.append(Evaluation(at or 0, *costs, accuracy))
    return made


def indexed_evaluations(run: IndexedRun) -> list[Evaluation]:
    """Those that an index keeps: the first, the last, and some between."""
    curves = run.curves
    empty = [None] * len(curves.get("round", []))
    return evaluations([curves.get(name, empty) for name in EVALUATED], run.private)


def common_caps(cost: str, runs: Iterable[Sequence[Evaluation]]) -> Caps | None:
    """The caps at which runs are compared; None where no run has such a cost.

    Args:
        cost: a name of `COSTS`.
        runs: evaluations of all compared runs, of which the first and the last count.

    Returns:
        Caps from a share of what all runs reach to the whole of it. They start later if
        a run was first tested later: before that there is nothing to compare.
    """
    ends = [(getattr(run[0], cost), getattr(run[-1], cost)) for run in runs if run]
    high = min((last for _, last in ends), default=math.inf)
    if not math.isfinite(high):
        return None
    firsts = [first for first, _ in ends if first <= high]
    return Caps(min(high, max([COSTS[cost].share * high, *firsts])), high)


def accuracy_within(
    cost: str, run: Sequence[Evaluation], caps: Caps | None
) -> float | None:
    """The accuracy at equal cost; None if the run was not tested by the least cap.

    Within a cap, the last evaluation counts. Over a range of caps this is the exact
    mean of that step function, so that it changes smoothly when costs do.
    """
    if caps is None:
        return None
    points = [(getattr(one, cost), one.accuracy) for one in run]
    low, high = caps
    if low == high:
        return accuracy_at(points, high * _SAME)
    if not points or points[0][0] > low * _SAME:
        return None
    steps = np.clip([low, *(x for x, _ in points[1:]), high], low, high)
    return float(np.diff(steps) @ [y for _, y in points]) / (high - low)


def accuracy_at(
    evaluations: Sequence[tuple[float, float]], limit: float
) -> float | None:
    """The accuracy of the last evaluation up to a cost; None before the first.

    Args:
        evaluations: cost so far (delay, energy, epsilon) and accuracy, in order.
        limit: the cost up to which evaluations count.
    """
    count = bisect.bisect_right(evaluations, limit, key=lambda point: point[0])
    return evaluations[count - 1][1] if count else None
