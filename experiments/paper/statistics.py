"""Effects over seeds: means, 95% intervals, and whether they lie where claimed."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from dpsparfl_jax.records.comparisons import interval

SEEDS_NEEDED = 3
HOLDS, REVERSED, UNSETTLED = "holds", "reversed", "unsettled"
TOO_FEW, NOT_RUN, TOLD = "too few seeds", "not run", "told"


class Comparison(NamedTuple):
    """One effect, its interval over seeds, and what that says about the claim.

    Attributes:
        label: What is compared.
        effect: Mean over seeds; nan if there are none.
        low: Lower end of the interval; nan with fewer than two seeds or if exact.
        high: Upper end of the interval.
        unit: Unit of these three numbers.
        seeds: How many seeds they come from.
        outcome: One of the words above; `TOLD` is given to the reader, not judged.
    """

    label: str
    effect: float
    low: float
    high: float
    unit: str
    seeds: int
    outcome: str


def compare(
    label: str,
    values: pd.Series,
    unit: str,
    *,
    side: int = 1,
    bound: float = 0.0,
    report_only: bool = False,
) -> Comparison:
    """Judges whether the mean of `values`, one a seed, lies on the claimed side.

    Args:
        label: What is compared.
        values: The effect in every seed; blanks do not count.
        unit: Unit of the values.
        side: The claim is that the mean is above (1) or below (-1) the bound.
        bound: What the claim is about: 0, or a tolerance.
        report_only: Gives the numbers without judging them.

    Returns:
        The comparison: it holds (is reversed) if the whole interval is on the claimed
        (other) side, and is unsettled if the interval holds the bound.
    """
    mean, low, high = interval(values)
    seeds = int(values.notna().sum())
    near, far = sorted((side * (low - bound), side * (high - bound)))
    if report_only:
        outcome = TOLD
    elif seeds < SEEDS_NEEDED:
        outcome = TOO_FEW if seeds else NOT_RUN
    else:
        outcome = HOLDS if near > 0 else REVERSED if far < 0 else UNSETTLED
    return Comparison(label, mean, low, high, unit, seeds, outcome)


def smallest(label: str, values: pd.Series, unit: str, seeds: int) -> Comparison:
    """A bound that every run must keep exactly: no value is below 0; no interval."""
    if values.dropna().empty:
        return Comparison(label, np.nan, np.nan, np.nan, unit, 0, NOT_RUN)
    least = float(values.min())
    outcome = HOLDS if least >= 0 else REVERSED
    return Comparison(label, least, np.nan, np.nan, unit, seeds, outcome)


def relative(values: pd.Series, to: pd.Series) -> pd.Series:
    """Per cent by which `values` exceed `to`, seed by seed."""
    percent = 100 * (values / to - 1)
    return percent.replace([np.inf, -np.inf], np.nan)
