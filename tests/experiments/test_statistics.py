"""Are effects over seeds tested as the protocol says, and as surely as stated?"""

import math

import numpy as np
import pandas as pd
import pytest

from experiments.paper import protocol, statistics


def student_tail(t, degrees, steps=200_000):
    """P(T > t) by the trapezoidal rule on Student's density, t >= 0."""
    x = np.linspace(0, t, steps)
    factor = math.gamma((degrees + 1) / 2) / math.gamma(degrees / 2)
    density = (
        factor
        / math.sqrt(degrees * math.pi)
        * (1 + x**2 / degrees) ** (-(degrees + 1) / 2)
    )
    return 0.5 - float(np.sum((density[1:] + density[:-1]) / 2) * (x[1] - x[0]))


VALUES = pd.Series([1.0, 2.0, math.nan, 3.0, 4.0])  # mean 2.5, error 0.645497


@pytest.mark.parametrize("expected", [0.0, 1.0, 4.0])
def test_p_values_of_no_effect_by_hand(expected):
    error = math.sqrt(5 / 3) / 2
    want = 2 * student_tail(abs(2.5 - expected) / error, 3)
    assert statistics.p_of_no_effect(VALUES, expected) == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize("margin", [3.0, 4.0, 2.0])
def test_p_values_of_a_margin_by_hand(margin):
    error = math.sqrt(5 / 3) / 2
    sides = [(margin - 2.5) / error, (margin + 2.5) / error]
    tails = [student_tail(t, 3) if t > 0 else 1 - student_tail(-t, 3) for t in sides]
    for values in (VALUES, -VALUES):
        found = statistics.p_of_margin(values, margin)
        assert found == pytest.approx(max(tails), abs=1e-6)


def test_values_that_are_all_alike():
    same = pd.Series([0.1, 0.1, 0.1])
    assert statistics.p_of_no_effect(same) == 0
    assert statistics.p_of_no_effect(same, 0.1) == 1
    assert statistics.p_of_margin(same, 0.2) == 0
    assert statistics.p_of_margin(same, 0.1) == 1


@pytest.mark.parametrize(
    ("p_values", "corrected"),
    [
        ([], []),
        ([0.03], [0.03]),
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),
        ([0.04, 0.011, 0.012], [0.04, 0.033, 0.033]),
        ([0.5, 0.9, 1.0], [1, 1, 1]),
    ],
)
def test_holms_correction_by_hand(p_values, corrected):
    assert statistics.holm(p_values) == pytest.approx(corrected)


def outcomes(*effects):
    return [each.outcome for each in statistics.judge(effects)]


def effect(values, **more):
    return statistics.Effect("", pd.Series(values, dtype=float), "pp", 3, **more)


def test_outcomes_of_one_comparison():
    clear, near, wild = [9, 10, 11], [-0.1, 0.0, 0.1], [-9, 1, 10]
    assert outcomes(effect(clear)) == [statistics.HOLDS]
    assert outcomes(effect(clear, side=-1)) == [statistics.CONTRADICTED]
    assert outcomes(effect(near, margin=1.0)) == [statistics.NO_EFFECT]
    assert outcomes(effect(near)) == [statistics.UNDECIDED]
    assert outcomes(effect(wild, margin=1.0)) == [statistics.UNDECIDED]
    # A small effect that is sure is an effect, whatever the margin.
    assert outcomes(effect([0.5, 0.51, 0.52], margin=1.0)) == [statistics.HOLDS]
    # Of a tolerance: below it for sure, above it for sure, neither.
    for values, outcome in (
        ([0.4, 0.5, 0.6], statistics.HOLDS),
        ([1.4, 1.5, 1.6], statistics.CONTRADICTED),
        ([0.5, 1.0, 1.6], statistics.UNDECIDED),
    ):
        assert outcomes(effect(values, side=-1, tolerance=1.0)) == [outcome]
    assert outcomes(effect(clear, told=True)) == [statistics.TOLD]
    assert outcomes(effect([9, 10, math.nan])) == [statistics.NOT_RUN]


def test_a_family_is_corrected_and_what_is_not_run_counts_in_it():
    some = effect([1.0, 1.9, 1.5])  # p 0.03
    assert outcomes(some) == [statistics.HOLDS]
    assert outcomes(some, effect([])) == [statistics.UNDECIDED, statistics.NOT_RUN]
    assert outcomes(some, effect([], told=True))[0] == statistics.HOLDS
    sure = effect([9, 10, 11])
    assert outcomes(some, sure) == [statistics.HOLDS, statistics.HOLDS]
    near = effect([-0.5, 0.1, 0.4], margin=1.0)  # p 0.03 of the margin
    assert outcomes(near) == [statistics.NO_EFFECT]
    assert outcomes(near, effect([-9, 1, 10], margin=1.0))[0] == statistics.UNDECIDED


def test_false_alarms_are_as_rare_as_stated():
    """Of families of three effects, 5% may show one that is not there.

    With equal means 4.9% do by Holm's method if tests are independent; of effects that
    equal their margin, no more are called none. Of 500 families with a fixed seed,
    three standard errors of the share are 2.9%.
    """
    rng = np.random.default_rng(7)
    alarms, none = 0, 0
    for _ in range(500):
        found = outcomes(*(effect(rng.normal(0, 1, 5)) for _ in range(3)))
        alarms += found != [statistics.UNDECIDED] * 3
        at_margin = (effect(rng.normal(6, 1, 5), margin=6.0) for _ in range(3))
        p_margins = [each.p_margin for each in statistics.judge([*at_margin])]
        none += min(p_margins) < protocol.LEVEL
    assert 0.02 < alarms / 500 < 0.078
    assert 0.02 < none / 500 < 0.078


def test_the_interval_by_hand():
    # mean 2.5, deviation 1.290994, t of 3 degrees 3.182446: half is 2.054260.
    assert statistics.interval(VALUES) == pytest.approx(
        (2.5, 0.44574, 4.55426), abs=1e-5
    )


def test_exact_bounds():
    values = pd.Series([0.2, 0.9])
    most = {"seeds": 2, "most": 1.0}
    assert statistics.exact("", values, "x", **most)[1] == 0.9
    assert statistics.exact("", values, "x", **most).outcome == statistics.HOLDS
    broken = statistics.exact("", values + 0.2, "x", **most)
    assert broken.outcome == statistics.CONTRADICTED
    least = statistics.exact("", values - 0.5, "x", seeds=2, least=0)
    assert (least.effect, least.outcome) == (-0.3, statistics.CONTRADICTED)
    few = statistics.exact("", values, "x", seeds=2, seeds_asked=3, most=1)
    assert few.outcome == statistics.NOT_RUN
