"""Is a schedule feasible, deterministic, and what the queues and ledger promise?"""

import dataclasses
import threading

import numpy as np
import pytest

from dpsparfl_jax.config import ScheduleConfig
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning import planner as planning
from dpsparfl_jax.planning import schedule, theory
from dpsparfl_jax.privacy import first_ledger
from dpsparfl_jax.runner.prefetch import prefetch
from dpsparfl_jax.scheduling.joint import solve_joint
from dpsparfl_jax.types import ModelSize
from experiments import presets
from tests.planning.plans import (
    MODEL,
    PARAMETERS,
    SIZES,
    UNITS,
    config,
    plan,
    same_schedules,
)
from tests.reference.feasible import check_schedule


def best_rate(settings, weight):
    energy = theory.noise_energy(settings, PARAMETERS, 20)
    rates = theory.best_keep_rate(settings, energy, weight)
    assert np.all(rates == rates[0])
    return rates[0]


@pytest.mark.parametrize("policy", ["dp_sparfl", "delay_min", "round_robin", "random"])
def test_every_plan_is_feasible_and_ends_with_the_budgets(policy):
    settings = config(policy=policy)
    made = plan(settings)
    check_schedule(made, settings, SIZES, PARAMETERS)
    assert made.reason == "all budgets are spent"
    np.testing.assert_array_equal(made.participations, made.affordable)
    again = plan(settings)
    same_schedules(made, again)


@pytest.mark.parametrize("solver", ["descent", "paper", "paper_strict"])
@pytest.mark.parametrize("energy_budget_j", [0.0, 2.5])
def test_every_solver_plans_feasibly(solver, energy_budget_j):
    settings = config(rounds=15, solver=solver, energy_budget_j=energy_budget_j)
    check_schedule(plan(settings), settings, SIZES, PARAMETERS)


@pytest.mark.parametrize(
    "changes",
    [
        {"fairness": "paper"},
        {"fairness": "c7"},
        {"delay_unit": "seconds"},
        {"warm_start": False},
        {"noise_aware": True},
        {"keep_rate": 0.3},
        {"keep_rate": 0.3, "policy": "random"},
    ],
)
def test_variants_plan_feasibly(changes):
    settings = config(rounds=12, **changes)
    made = plan(settings)
    check_schedule(made, settings, SIZES, PARAMETERS)
    assert made.num_rounds == 12
    assert made.reason == "all rounds are done"
    if "keep_rate" in changes:
        np.testing.assert_allclose(made.keep_rate[made.sends], 0.3)


@pytest.mark.parametrize(
    "wireless",
    [
        {"geometry": "centre", "fading": False},
        {"payload": "seed", "downlink": "single"},
        {"interference_w": 1e-13, "shadowing_db": 8.0},
        {"num_channels": 30},
    ],
)
def test_worlds_plan_feasibly(wireless):
    settings = config(rounds=6, wireless=wireless)
    made = plan(settings)
    check_schedule(made, settings, SIZES, PARAMETERS)
    if "num_channels" in wireless:  # more channels than clients
        assert np.all(made.sends.sum(axis=1) <= 20)
        assert made.sends[0].sum() == made.live[0].sum()


def test_unequal_clients():
    settings = config(rounds=12)
    sizes = np.repeat([300, 600, 1800, 2100], 5)
    made = plan(settings, sizes)
    check_schedule(made, settings, sizes, PARAMETERS)


def test_policies_see_the_same_world():
    first, second = (plan(config(rounds=4, policy=p)) for p in ("random", "delay_min"))
    assert not np.array_equal(first.client, second.client)
    settings = config(rounds=4)
    ledger, _ = first_ledger.start_ledger(settings, SIZES, 60, 1000)
    planners = [
        planning.Planner(config(rounds=4, policy=p), SIZES, MODEL, ledger)
        for p in ("random", "delay_min")
    ]
    for planner in planners:
        planner.step(0)
    seen = [planner.observe(1)[0].problem for planner in planners]
    np.testing.assert_array_equal(seen[0].snr_per_w, seen[1].snr_per_w)
    np.testing.assert_array_equal(seen[0].base_delay_s, seen[1].base_delay_s)


def test_the_delay_target_and_the_participation_rates_are_met():
    settings = config()
    made = plan(settings)
    assert np.mean(made.round_delay_s) == pytest.approx(120, rel=0.05)
    share = made.participations / made.num_rounds
    assert np.max(np.abs(share - made.rate)) < 0.02
    law = theory.delay_law(settings, made)
    assert law.mean_delay_s <= law.bound_s + 1e-9
    statistics = theory.queue_statistics(made)
    assert statistics.delay_second_half < 2 * statistics.delay_first_half


def test_the_delay_law_holds_in_every_unit_and_start():
    for changes in (
        {"warm_start": False},
        {"delay_unit": "seconds"},
        {"tradeoff": 500.0},
    ):
        settings = config(rounds=30, **changes)
        law = theory.delay_law(settings, plan(settings))
        assert law.mean_delay_s <= law.bound_s + 1e-9


def test_streaming_and_prefetching_give_the_same_rounds():
    settings = config(rounds=7)
    ledger, _ = first_ledger.start_ledger(settings, SIZES, 60, 1000)
    whole = planning.plan(planning.Planner(settings, SIZES, MODEL, ledger))
    planner = planning.Planner(settings, SIZES, MODEL, ledger)
    rounds = list(prefetch(planning.stream(planner), ahead=2))
    assert len(rounds) == 7
    for t, one in enumerate(rounds):
        np.testing.assert_array_equal(one.client, whole.client[t])
        np.testing.assert_array_equal(one.power_w, whole.power_w[t])


def test_prefetching_passes_errors_on_and_leaves_no_thread():
    def broken():
        yield 1
        raise InputError("a broken plan")

    with pytest.raises(InputError, match="a broken plan"):
        list(prefetch(broken()))
    endless = prefetch(iter(range(10**9)), ahead=2)
    assert next(endless) == 0
    endless.close()  # the user stops early
    assert not [t for t in threading.enumerate() if t.name == "prefetch"]


def test_schedules_are_saved_and_loaded(tmp_path):
    made = plan(config(rounds=3))
    path = tmp_path / "one.npz"
    schedule.save(made, path)
    loaded = schedule.load(path)
    same_schedules(made, loaded)
    assert [p.name for p in tmp_path.iterdir()] == ["one.npz"]
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match="damaged"):
        schedule.load(path)
    np.savez(tmp_path / "other.npz", a=1)
    with pytest.raises(InputError, match="is no schedule"):
        schedule.load(tmp_path / "other.npz")
    with pytest.raises(InputError, match="there is no schedule"):
        schedule.load(tmp_path / "nowhere.npz")


def test_no_live_client_gives_an_empty_plan():
    settings = config()
    ledger, _ = first_ledger.start_ledger(settings, SIZES, 60, 1000)
    spent = dataclasses.replace(ledger, affordable=np.zeros(20, np.int64))
    made = planning.plan(planning.Planner(settings, SIZES, MODEL, spent))
    assert made.num_rounds == 0
    assert made.reason == "all budgets are spent"
    assert made.client.shape == (0, 5)
    assert list(made.participations) == [0] * 20
    with pytest.raises(InputError, match="at least 1 rounds, but this one has 0"):
        theory.convergence_terms(
            settings,
            made,
            SIZES,
            PARAMETERS,
            loss_gap=1,
            divergence=1,
            gradient_bound=1,
        )


def test_rounds_without_a_feasible_edge_are_skipped_and_recorded():
    settings = config(rounds=5, energy_budget_j=0.2)
    made = plan(settings)
    assert list(made.skipped) == [0, 1, 2, 3, 4]
    assert np.all(made.participations == 0)
    assert np.all(made.round_delay_s == 0)
    # Queues go on: fairness falls by the rates; delay has nothing to price.
    np.testing.assert_allclose(made.fairness_queue[1], -made.rate)
    assert np.all(made.delay_queue == 0)
    endless = config(energy_budget_j=0.2)
    assert plan(endless).reason == "nobody could send for 100 rounds"


def test_rewards_are_shared_by_those_who_can_send():
    settings = config(energy_budget_j=0.7)
    ledger, _ = first_ledger.start_ledger(settings, SIZES, 60, 1000)
    planner = planning.Planner(settings, SIZES, MODEL, ledger)
    sizes = set()
    for index in range(30):
        problem = planner.observe(index)[0].problem
        found = solve_joint(problem)
        if found.client.size:
            assert problem.reward[0] * found.client.size == pytest.approx(50.0)
            sizes.add(found.client.size)
    assert len(sizes) > 1  # not always five


@pytest.mark.parametrize(
    ("smoothness", "cap", "curvature"),
    [(100.0, 0.1, 10.0), (1.0, 0.21, 1 / 0.21), (0.1, 1.0, 1 / 3.7)],
)
def test_noise_aware_bounds_of_the_keep_rate(smoothness, cap, curvature):
    """The best keep rate lies below the least one, inside, or above 1."""
    settings = config(noise_aware=True, smoothness=smoothness)
    ledger, _ = first_ledger.start_ledger(settings, SIZES, 60, 1000)
    problem = planning.Planner(settings, SIZES, MODEL, ledger).observe(0)[0].problem
    best = best_rate(settings, 1 / 5)
    assert problem.keep_max[0] == pytest.approx(cap, abs=0.01)
    assert problem.curvature[0] == pytest.approx(1 / max(best, problem.keep_max[0]))
    assert problem.curvature[0] == pytest.approx(curvature, rel=0.1)


def test_theory_refuses_schedules_without_content():
    nobody = plan(config(rounds=3, energy_budget_j=0.2))
    arguments = {"loss_gap": 1.0, "divergence": 1.0, "gradient_bound": 1.0}
    with pytest.raises(InputError, match="nothing arrives"):
        theory.convergence_terms(config(), nobody, SIZES, PARAMETERS, **arguments)
    with pytest.raises(InputError, match="at least 2 rounds"):
        theory.queue_statistics(plan(config(rounds=1)))
    ledger, _ = first_ledger.start_ledger(config(), SIZES, 60, 1000)
    for sizes, parameters in ((SIZES[:0], PARAMETERS), (SIZES, 0)):
        model = ModelSize(parameters, UNITS)
        with pytest.raises(InputError, match="at least one client and one parameter"):
            planning.Planner(config(), sizes, model, ledger)


def test_an_unreachable_delay_target_is_said():
    ledger, _ = first_ledger.start_ledger(config(), SIZES, 60, 1000)
    for target, reachable in ((120.0, True), (20.0, False)):
        settings = config(delay_target_s=target, energy_budget_j=24.0)
        planner = planning.Planner(settings, SIZES, MODEL, ledger)
        warning = planning.delay_warning(planner)
        assert (warning == "") == reachable
        if not reachable:
            assert "cannot be met" in warning
            assert 40 < planning.reachable_delay_s(planner) < 80


def test_sizes_must_fit_the_ledger():
    ledger, _ = first_ledger.start_ledger(config(), SIZES, 60, 1000)
    with pytest.raises(InputError, match="20 clients, but 3 sizes"):
        planning.Planner(config(), SIZES[:3], MODEL, ledger)


def test_convergence_terms_by_hand():
    settings = dataclasses.replace(
        config(rounds=2, keep_rate=0.5),
        schedule=ScheduleConfig(keep_rate=0.5, smoothness=2.0),
    )
    made = plan(settings)
    terms = theory.convergence_terms(
        settings,
        made,
        SIZES,
        PARAMETERS,
        loss_gap=2.3,
        divergence=0.1,
        gradient_bound=3.0,
    )
    eta, tau, x = 0.002, 60, 0.002 * 2 * 60
    theta = PARAMETERS * (0.6 * 20.0 / 8) ** 2
    assert terms.start == pytest.approx(2 * 2.3 / (eta * tau * 2))
    assert terms.divergence == pytest.approx(0.3)
    assert terms.sparsification == pytest.approx(3 * 9 * 0.5)
    # Five equal clients: p = 1/5, sum p^2 = 1/5.
    expected = eta * 2 * theta * 0.25 * (1 / 5 + 1.5 * x)
    assert terms.noise == pytest.approx(expected)
    assert terms.holds
    assert terms.total == pytest.approx(sum(terms[:4]))


def test_the_best_keep_rate():
    """MNIST, b = 8, G = C: 0.21 for L = 1 and 0.02 for L = 4."""
    settings = presets.get_preset("paper_mnist").settings
    assert best_rate(settings, 0.2) == pytest.approx(0.21, abs=0.01)
    steep = dataclasses.replace(
        settings, schedule=dataclasses.replace(settings.schedule, smoothness=4.0)
    )
    assert best_rate(steep, 0.2) == pytest.approx(0.02, abs=0.01)
    efficient = dataclasses.replace(  # sigma = 1, b = 24
        settings,
        training=dataclasses.replace(settings.training, batch_size=24.0),
        privacy=dataclasses.replace(settings.privacy, noise_multiplier=1.0),
    )
    assert best_rate(efficient, 0.2) == pytest.approx(0.68, abs=0.02)
    silent = dataclasses.replace(
        settings, privacy=dataclasses.replace(settings.privacy, noise=False)
    )
    assert best_rate(silent, 0.2) == np.inf


@pytest.mark.parametrize(
    "fairness",
    ["signed", *(pytest.param(n, marks=pytest.mark.slow) for n in ("paper", "c7"))],
)
@pytest.mark.parametrize("policy", ["dp_sparfl", "random"])
def test_theorem_3_bounds_the_queues(policy, fairness):
    settings = config(rounds=80, policy=policy, fairness=fairness, epsilon_hi=20.0)
    made = plan(settings)
    bounds = theory.queue_bounds(settings, made)
    # By hand, for one round.
    t = 7
    taken = np.zeros(20)
    taken[made.client[t][made.sends[t]]] = 1
    surplus = taken - made.rate if fairness != "c7" else made.rate - taken
    late = made.round_delay_s[t] / 120 - 1
    half = (np.sum(surplus**2) + late**2) / 2
    cross = made.fairness_queue[t] @ surplus + made.delay_queue[t] * late
    assert bounds.drift_bound[t] == pytest.approx(half + cross)
    squares = np.sum(made.fairness_queue**2, axis=1) + made.delay_queue**2
    assert bounds.drift[t] == pytest.approx((squares[t + 1] - squares[t]) / 2)
    # Every round, whatever the policy; with equality where no queue was cut at 0.
    assert np.all(bounds.drift <= bounds.drift_bound + 1e-9)
    if fairness == "signed" and policy == "dp_sparfl":
        np.testing.assert_allclose(bounds.drift, bounds.drift_bound, atol=1e-9)
    if policy == "dp_sparfl":  # it minimises what the bound is made of
        assert np.all(bounds.norm <= bounds.norm_bound + 1e-9)
        assert np.all(bounds.delay_excess_s[1:] <= bounds.delay_bound_s[1:] + 1e-9)
    if policy == "dp_sparfl" and fairness == "signed":
        assert np.all(bounds.fairness_gap[1:] <= bounds.fairness_bound[1:] + 1e-9)
    share = made.sends[:40] & (made.client[:40] == 3)
    gap = abs(share.any(axis=1).mean() - made.rate[3])
    assert gap <= bounds.fairness_gap[40] + 1e-12


def test_the_bound_on_queues_can_be_broken():
    """A policy that does not mind delay is beyond it in the end."""
    settings = config(rounds=0, policy="random", epsilon_hi=20.0)
    bounds = theory.queue_bounds(settings, plan(settings))
    assert bounds.delay_excess_s[-1] > 100
    assert bounds.norm[-1] > bounds.norm_bound[-1]


@pytest.mark.parametrize(
    ("length", "good"),
    [
        ({"least_channels": 5}, lambda made: made.sends.sum(axis=1) >= 5),
        ({"least_live": 0.6}, lambda made: made.live.mean(axis=1) >= 0.6),
    ],
)
def test_a_planned_end_comes_before_too_few_clients_are_left(length, good):
    whole = plan(config())
    settings = config()
    settings = dataclasses.replace(
        settings, length=dataclasses.replace(settings.length, **length)
    )
    made = plan(settings)
    kept = made.num_rounds
    assert 0 < kept == np.flatnonzero(good(whole))[-1] + 1 < whole.num_rounds
    np.testing.assert_array_equal(made.client, whole.client[:kept])
    np.testing.assert_array_equal(made.epsilon_spent, whole.epsilon_spent[:kept])
    assert made.last_delay_queue == whole.delay_queue[kept]
    assert f"stopped after {kept} of {whole.num_rounds} rounds" in made.reason
    assert np.sum(made.budget - made.epsilon_spent[-1]) > np.sum(
        whole.budget - whole.epsilon_spent[-1]
    )


def test_a_run_of_which_nothing_is_wanted_is_empty():
    settings = config()
    length = dataclasses.replace(settings.length, least_channels=6)
    assert plan(dataclasses.replace(settings, length=length)).num_rounds == 0
