"""Effects over seeds: means, 95% intervals, tests, and what these say of a claim.

A claim is a family of effects. Each has a two-sided paired t-test of no effect (or of
one that equals a tolerance), and, where a margin is given, two one-sided tests that it
is smaller than the margin in either direction. Both kinds of p-values are corrected by
Holm's method within the family.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from dpsparfl_jax.records.comparisons import interval

from . import protocol

HOLDS, CONTRADICTED = "holds", "is contradicted"
NO_EFFECT, UNDECIDED = "no effect", "undecided"
NOT_RUN, TOLD = "not run", "told"
_EQUAL = 1e-12  # values that differ by less, relative to them, are the same


class Effect(NamedTuple):
    """One comparison of a claim, before it is judged.

    Attributes:
        label: What is compared.
        values: The effect in every seed; blanks do not count.
        unit: Unit of the values.
        seeds_asked: Seeds without which it is not judged.
        side: The claim is that the mean is above (1) or below (-1) the tolerance.
        tolerance: What the claim is about: 0, or a tolerance.
        margin: Effects that are smaller in either direction count as none.
        told: It is given to the reader, not judged.
    """

    label: str
    values: pd.Series
    unit: str
    seeds_asked: int = protocol.PLANNED_SEEDS
    side: int = 1
    tolerance: float = 0.0
    margin: float | None = None
    told: bool = False

    @property
    def seeds(self) -> int:
        """How many there are values of."""
        return int(self.values.notna().sum())

    @property
    def is_run(self) -> bool:
        """Whether it has as many seeds as it is judged by."""
        return self.seeds >= self.seeds_asked


class Comparison(NamedTuple):
    """One effect with its interval and tests, and what they say about the claim.

    Attributes:
        label: What is compared.
        effect: Mean over seeds; nan if there are none.
        low: Lower end of the interval; nan with fewer than two seeds or if exact.
        high: Upper end of the interval.
        unit: Unit of these three numbers.
        seeds: How many seeds they come from.
        seeds_asked: How many the protocol asks for.
        margin: The effect that would count as none; nan if no margin is given.
        p: Corrected p-value of no effect; nan where nothing is tested.
        p_margin: Corrected p-value of an effect of at least the margin.
        outcome: One of the words above.
    """

    label: str
    effect: float
    low: float
    high: float
    unit: str
    seeds: int
    seeds_asked: int
    margin: float
    p: float
    p_margin: float
    outcome: str


def p_of_no_effect(values: pd.Series, expected: float = 0.0) -> float:
    """Two-sided p-value of the t-test that the mean is `expected`."""
    mean, error, degrees = _moments(values)
    if error == 0:
        return float(np.isclose(mean, expected, rtol=_EQUAL, atol=_EQUAL))
    return float(2 * stats.t.sf(abs(mean - expected) / error, degrees))


def p_of_margin(values: pd.Series, margin: float) -> float:
    """The larger p-value of two one-sided tests that the mean is within the margin."""
    mean, error, degrees = _moments(values)
    if error == 0:
        return float(abs(mean) >= margin)
    return float(stats.t.sf((margin - abs(mean)) / error, degrees))


def _moments(values: pd.Series) -> tuple[float, float, int]:
    """Mean, its standard error, and degrees of freedom."""
    there = values.dropna().to_numpy(float)
    mean, spread = float(there.mean()), float(there.std(ddof=1))
    alike = spread <= _EQUAL * max(1.0, abs(mean))
    return mean, 0.0 if alike else spread / np.sqrt(len(there)), len(there) - 1


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values of a family, corrected by Holm's method."""
    corrected, largest = [0.0] * len(p_values), 0.0
    for place, index in enumerate(np.argsort(p_values, kind="stable")):
        scaled = (len(p_values) - place) * p_values[index]
        largest = min(1.0, max(largest, scaled))
        corrected[index] = largest
    return corrected


def judge(family: Sequence[Effect | Comparison]) -> list[Comparison]:
    """Judges all effects of a claim together; exact comparisons are judged already.

    Effects with fewer seeds than asked for are not run: they count as a p-value of 1,
    so that what is found of the others stays when they come.
    """
    tested = {
        place: one
        for place, one in enumerate(family)
        if isinstance(one, Effect) and not one.told
    }
    plain = {
        place: p_of_no_effect(one.values, one.tolerance) if one.is_run else 1.0
        for place, one in tested.items()
    }
    within = {
        place: p_of_margin(one.values, one.margin) if one.is_run else 1.0
        for place, one in tested.items()
        if one.margin is not None
    }
    p = dict(zip(plain, holm([*plain.values()]), strict=True))
    p_margin = dict(zip(within, holm([*within.values()]), strict=True))
    return [
        _judged(one, p.get(place, np.nan), p_margin.get(place, np.nan))
        if isinstance(one, Effect)
        else one
        for place, one in enumerate(family)
    ]


def _judged(effect: Effect, p: float, p_margin: float) -> Comparison:
    if effect.told or not effect.is_run:
        return _compared(effect, TOLD if effect.told else NOT_RUN)
    outcome = UNDECIDED
    if p < protocol.LEVEL:
        above = float(effect.values.mean()) > effect.tolerance
        outcome = HOLDS if above == (effect.side > 0) else CONTRADICTED
    elif p_margin < protocol.LEVEL:
        outcome = NO_EFFECT
    return _compared(effect, outcome, p, p_margin)


def _compared(
    effect: Effect, outcome: str, p: float = np.nan, p_margin: float = np.nan
) -> Comparison:
    return Comparison(
        effect.label,
        *interval(effect.values),
        effect.unit,
        effect.seeds,
        effect.seeds_asked,
        np.nan if effect.margin is None else effect.margin,
        p,
        p_margin,
        outcome,
    )


def exact(
    label: str,
    values: pd.Series,
    unit: str,
    *,
    seeds: int,
    seeds_asked: int = 1,
    least: float = -np.inf,
    most: float = np.inf,
) -> Comparison:
    """A bound that every value must keep; its effect is the worst of them."""
    there = values.dropna()
    worst = np.nan
    if len(there):
        worst = float(there.min() if np.isfinite(least) else there.max())
    outcome = HOLDS if least <= worst <= most else CONTRADICTED
    if seeds < seeds_asked or not len(there):
        outcome = NOT_RUN
    blank = (np.nan, np.nan)
    return Comparison(
        label, worst, *blank, unit, seeds, seeds_asked, np.nan, *blank, outcome
    )


def relative(values: pd.Series, to: pd.Series) -> pd.Series:
    """Per cent by which `values` exceed `to`, seed by seed."""
    percent = 100 * (values / to - 1)
    return percent.replace([np.inf, -np.inf], np.nan)
