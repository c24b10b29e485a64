"""Are accuracies at equal cost what their definition says, and steady?"""

import math

import pytest

from dpsparfl_jax.records.comparisons import (
    Caps,
    Evaluation,
    accuracy_at,
    accuracy_within,
    common_caps,
    evaluations,
)


def run(*points):
    """Evaluations at a largest epsilon (delay is ten times that) with an accuracy."""
    return [
        Evaluation(number, 10 * epsilon, 0.0, epsilon, epsilon / 2, accuracy)
        for number, (epsilon, accuracy) in enumerate(points, start=1)
    ]


STAIRS = run((1.0, 0.3), (3.5, 0.4), (4.0, 0.5), (4.0, 0.6), (4.0, 0.7))
LONGER = run((1.0, 0.2), (3.4, 0.5), (3.8, 0.6), (6.0, 0.9))


def test_accuracy_up_to_a_cost():
    points = [(1.0, 0.3), (2.0, 0.6), (2.0, 0.5), (4.0, 0.9)]
    assert accuracy_at(points, 0.9) is None
    assert [accuracy_at(points, x) for x in (1.0, 2.0, 3.9, 9)] == [0.3, 0.5, 0.5, 0.9]


def test_equal_epsilon_by_hand():
    """Both reach 4, so caps go from 3.2 to 4.

    The stairs have 0.3 up to 3.5 and 0.4 from there; the longer one has 0.2 up to 3.4,
    then 0.5 up to 3.8, then 0.6.
    """
    caps = common_caps("epsilon_max", [STAIRS, LONGER])
    assert caps == pytest.approx((3.2, 4.0))
    stairs, longer = (accuracy_within("epsilon_max", r, caps) for r in (STAIRS, LONGER))
    assert stairs == pytest.approx((0.3 * 0.3 + 0.5 * 0.4) / 0.8)
    assert longer == pytest.approx((0.2 * 0.2 + 0.4 * 0.5 + 0.2 * 0.6) / 0.8)
    halves = common_caps("epsilon_mean", [STAIRS, LONGER])
    assert halves == pytest.approx((1.6, 2.0))
    assert accuracy_within("epsilon_mean", STAIRS, halves) == pytest.approx(stairs)


def test_equal_delay_and_a_chosen_cap_are_single_caps():
    caps = common_caps("delay_s", [STAIRS, LONGER])
    assert caps == (40.0, 40.0)
    assert accuracy_within("delay_s", STAIRS, caps) == 0.7
    assert accuracy_within("delay_s", LONGER, caps) == 0.6
    assert accuracy_within("epsilon_max", STAIRS, Caps(3.9, 3.9)) == 0.4


@pytest.mark.parametrize("shift", [1e-9, -1e-9])
def test_a_staircase_that_moves_a_little_hardly_moves_the_result(shift):
    """With a single cap, the last step would be worth 0.3 on one side of it."""
    moved = [one._replace(epsilon_max=one.epsilon_max + shift) for one in STAIRS]
    found = []
    for stairs in (STAIRS, moved):
        caps = common_caps("epsilon_max", [stairs, LONGER, run((1, 0.1), (4, 0.1))])
        found += [accuracy_within("epsilon_max", stairs, caps)]
    assert found[0] == pytest.approx(found[1], abs=1e-8)


def test_caps_start_where_all_have_been_tested():
    late = run((3.9, 0.8), (5.0, 0.9))
    caps = common_caps("epsilon_max", [STAIRS, late])
    assert caps == (3.9, 4.0)
    assert accuracy_within("epsilon_max", late, caps) == pytest.approx(0.8)
    once = run((4.0, 0.8))
    caps = common_caps("epsilon_max", [STAIRS, once])
    assert caps == (4.0, 4.0)
    assert accuracy_within("epsilon_max", STAIRS, caps) == 0.7
    never = run((4.5, 0.8))
    caps = common_caps("epsilon_max", [STAIRS, never])
    assert caps == pytest.approx((3.2, 4.0))
    assert accuracy_within("epsilon_max", never, caps) is None


def test_epsilons_of_runs_that_are_not_private_are_no_costs():
    told = evaluations([[1, 2], [3.0, 5.0], [1, 1], [2, 3], [1, 2], [0.5, None]], False)
    assert [one.epsilon_max for one in told] == [math.inf]
    assert common_caps("epsilon_max", [told]) is None
    assert common_caps("delay_s", []) is None
    assert accuracy_within("epsilon_max", told, None) is None
