"""Are the protocol's measures of a run what it says they are?"""

import math

import numpy as np
import pandas as pd
import pytest

import dpsparfl_jax as fl
from experiments.paper import run_measures
from tests import toy


def evaluations(*accuracies, every=2):
    rounds = every * np.arange(1, len(accuracies) + 1)
    return pd.DataFrame(
        {
            "round": rounds,
            "accuracy": accuracies,
            "cumulative_delay_s": 100.0 * rounds,
        }
    )


@pytest.mark.parametrize(
    ("count", "last_round", "settled"),
    [
        (12, 24, [8, 9, 10, 11, 12]),  # the last five of twelve
        (12, 21, [6, 7, 8, 9, 10]),  # of ten: round 20 is the last one by then
        (12, 19, [5, 6, 7, 8, 9]),  # half of nine, rounded up
        (9, 18, [5, 6, 7, 8, 9]),
        (4, 8, [3, 4]),
        (3, 100, [2, 3]),
        (1, 2, [1]),
    ],
)
def test_settled_accuracy(count, last_round, settled):
    seen = evaluations(*np.arange(1, count + 1) / 100)
    found = run_measures.settled_accuracy(seen, last_round)
    assert found == pytest.approx(np.mean(settled) / 100)


def test_nothing_settles_before_the_first_evaluation():
    assert math.isnan(run_measures.settled_accuracy(evaluations(0.5, 0.6), 1))


def test_time_until_two_evaluations_in_a_row_reach_a_level():
    seen = evaluations(0.1, 0.8, 0.4, 0.7, 0.72)
    assert run_measures.reach_s(seen, 0.7) == 1000.0  # not the 0.8 alone
    assert run_measures.reach_s(seen, 0.45) == 400.0
    assert math.isnan(run_measures.reach_s(seen, 0.9))
    assert math.isnan(run_measures.reach_s(seen[:1], 0.05))


def test_levels_are_those_of_images_or_partition():
    def level(name, **data):
        return run_measures.level_of(toy.settings(data={"name": name, **data}))

    assert level("mnist") == 0.85
    assert level("fashion_mnist") == level("fashion_mnist", partition="imbalanced")
    assert level("fashion_mnist", partition="dirichlet") == 0.5
    assert level("cifar10") == 0.25
    assert math.isnan(level("toy"))


def test_accuracy_at_a_time_is_linear_between_evaluations():
    seen = evaluations(0.2, 0.4)
    assert run_measures.accuracy_at(seen, 300.0) == pytest.approx(0.3)
    assert run_measures.accuracy_at(seen, 400.0) == 0.4
    assert math.isnan(run_measures.accuracy_at(seen, 100.0))


def test_clip_norms_are_chosen_by_the_last_three_evaluations():
    seen = evaluations(0.9, 0.1, 0.2, 0.3)
    assert run_measures.tuning_accuracy(seen) == pytest.approx(0.2)


def test_the_last_full_round_begins_with_a_client_for_every_channel():
    settings = toy.settings(
        length={"rounds": 0}, privacy={"accountant": "rdp", "max_participations": 20}
    )
    schedule = fl.plan(settings)
    enough = schedule.live.sum(axis=1) >= schedule.client.shape[1]
    found = run_measures.last_full_round(schedule)
    assert enough[found - 1]
    assert not enough[found:].any()
    assert 0 < found <= schedule.num_rounds


def test_queues_are_compared_with_their_bound_for_our_policy_alone():
    length = {"length": {"rounds": 6}}
    ours = toy.settings(schedule={"policy": "dp_sparfl"}, **length)
    found = run_measures.queue_ratio(ours, fl.plan(ours))
    bounds = fl.planning.theory.queue_bounds(ours, fl.plan(ours))
    ratios = [a / b for a, b in zip(bounds.norm, bounds.norm_bound, strict=True) if b]
    assert found == pytest.approx(max(ratios[-5:]))
    other = toy.settings(schedule={"policy": "random"}, **length)
    assert run_measures.queue_ratio(other, fl.plan(other)) is None
