"""How runs are compared: intervals over seeds, and accuracies at equal cost."""

import bisect
from collections.abc import Iterable, Sequence

import numpy as np
from scipy import stats

from dpsparfl_jax.records.columns import finite

LEVEL = 0.95


def interval(values: Iterable[float | None]) -> tuple[float, float, float]:
    """Mean and both ends of the 95% Student-t interval; blanks do not count."""
    there = [value for value in map(finite, values) if value is not None]
    if not there:
        return np.nan, np.nan, np.nan
    numbers = np.array(there)
    mean = float(numbers.mean())
    if len(numbers) < 2:
        return mean, np.nan, np.nan
    quantile = stats.t.ppf((1 + LEVEL) / 2, len(numbers) - 1)
    half = float(quantile * numbers.std(ddof=1) / np.sqrt(len(numbers)))
    return mean, mean - half, mean + half


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
