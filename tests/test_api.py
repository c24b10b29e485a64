"""Does the public surface give whole runs, within everybody's epsilon?"""

import json

import numpy as np
import pytest

import dpsparfl_jax
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.records.columns import WALL_TIMES
from dpsparfl_jax.runner import grouping
from dpsparfl_jax.runner.run import Run, outline
from tests import toy
from tests.reference.feasible import check_schedule


def check_result(result):
    """What every finished run must satisfy."""
    rounds, clients, plan = result.rounds, result.clients, result.schedule
    known = outline(result.settings)
    check_schedule(plan, result.settings, known.sizes, known.model.parameters)
    assert list(rounds["round"]) == list(range(1, plan.num_rounds + 1))
    assert np.all(plan.epsilon_spent <= plan.budget)
    assert (rounds["epsilon_margin"] >= 0).all()
    assert (clients["epsilon_spent"] <= clients["epsilon_asked"]).all()
    assert (clients["participations"] <= clients["afforded"]).all()
    np.testing.assert_allclose(
        rounds["cumulative_delay_s"], rounds["round_delay_s"].cumsum()
    )
    np.testing.assert_allclose(
        rounds["round_delay_s"],
        rounds["downlink_s"] + rounds["training_s"] + rounds["upload_s"],
    )
    assert clients["energy_j"].sum() == pytest.approx(rounds["energy_j"].sum())
    labels = [name for name in clients if name.startswith("label_")]
    assert (clients[labels].sum(axis=1) == clients["train_examples"]).all()
    weights = clients["test_examples"]
    accuracy = np.average(clients["test_accuracy"], weights=weights)
    assert accuracy == pytest.approx(rounds["accuracy"].iloc[-1], abs=1e-6)
    assert rounds["diverged"].sum() == 0
    for row in rounds.to_dict("records"):
        assert sorted(set(row["clients"])) == sorted(row["clients"])
        assert len(row["clients"]) == len(row["keep_rates"]) == len(row["channels"])


def outlined(settings):
    return [Run(f"{n}", each).outlined() for n, each in enumerate(settings)]


@pytest.mark.slow
@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_all_policies_on_all_partitions(accountant):
    runs = [
        toy.settings(
            data={"partition": partition},
            schedule={"policy": policy},
            privacy={"accountant": accountant},
            length={"rounds": 0},
            training={"batch_size": 9.0},
        )
        for policy in ("dp_sparfl", "delay_min", "round_robin", "random")
        for partition in ("iid", "dirichlet", "imbalanced")
    ]
    assert len(grouping.group_runs(outlined(runs))) <= 2  # other sizes: other padding
    for result in dpsparfl_jax.simulate_grid(runs):
        check_result(result)
        assert result.schedule.reason == "all budgets are spent"
        assert (result.clients["participations"] == result.clients["afforded"]).all()
        assert result.summary["accuracy"] > 0.3


def test_iterating_gives_the_same_rows_as_they_come():
    settings = toy.settings()
    result = dpsparfl_jax.simulate(settings)
    seen = list(dpsparfl_jax.iterate(settings))
    assert json.dumps(seen) == json.dumps(result.rounds.to_dict("records"))
    assert set(WALL_TIMES) <= set(seen[0])


def test_a_plan_is_what_is_then_trained():
    settings = toy.settings(seed=4)
    plan = dpsparfl_jax.plan(settings)
    result = dpsparfl_jax.simulate(settings)
    np.testing.assert_array_equal(plan.client, result.schedule.client)
    assert plan.reason == "all rounds are done"


def test_grids_are_split_by_shape_and_by_memory():
    runs = [toy.settings(seed) for seed in range(5)]
    runs += [toy.settings(training={"local_steps": 2}), toy.settings(5)]
    known = outlined(runs)
    assert grouping.group_runs(known) == [[0, 1, 2, 3, 4, 6], [5]]
    each = grouping.run_bytes(known[0]) / 1e6
    tight = [toy.settings(s, perf={"batch_memory_mb": 2.5 * each}) for s in range(5)]
    assert grouping.group_runs(outlined(tight)) == [[0, 1], [2, 3], [4]]


def test_the_surface_is_what_it_says():
    assert set(dpsparfl_jax.__all__) <= set(dir(dpsparfl_jax)) | {
        "RunResult",
        "iterate",
        "plan",
        "simulate",
        "simulate_grid",
    }
    for name in dpsparfl_jax.__all__:
        assert getattr(dpsparfl_jax, name)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = dpsparfl_jax.nonsense
    assert "dp_sparfl" in dpsparfl_jax.registered_names()["policy"]


def test_refusals():
    with pytest.raises(InputError, match="give at least one configuration"):
        dpsparfl_jax.simulate_grid([])
    broke = {"noise_multiplier": 0.1, "accountant": "rdp"}
    with pytest.raises(InputError, match="no client can take part even once"):
        dpsparfl_jax.plan(toy.settings(privacy=broke))
    with pytest.raises(InputError, match="unknown policy"):
        dpsparfl_jax.simulate(toy.settings(schedule={"policy": "x"}))
    with pytest.raises(InputError, match="sampling rate above 1"):
        dpsparfl_jax.simulate(toy.settings(training={"batch_size": 61.0}))


def test_what_is_not_private_is_a_warning_and_is_kept():
    raw = toy.settings(privacy={"clip_calibration": "median"}, length={"rounds": 1})
    with pytest.warns(UserWarning, match="not private") as heard:
        result = dpsparfl_jax.simulate(raw)
    assert result.warnings == tuple(str(each.message) for each in heard)
    silent = toy.settings(privacy={"noise": False}, length={"rounds": 1})
    with pytest.warns(UserWarning, match="No noise is added"):
        dpsparfl_jax.plan(silent)
