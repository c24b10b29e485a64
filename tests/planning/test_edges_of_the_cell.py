"""Is a plan right where delay is free, targets are loose, and clients far away?"""

import numpy as np
import pytest

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning import planner as planning
from dpsparfl_jax.privacy import first_ledger
from dpsparfl_jax.scheduling import queues
from dpsparfl_jax.types import ModelSize
from tests.planning.plans import MODEL, PARAMETERS, SIZES, config, plan
from tests.reference.feasible import check_schedule


def mean_keep(made):
    return float(np.mean(made.keep_rate[made.sends]))


def test_an_empty_delay_queue_does_not_waste_time():
    """Everything is kept within some 270 s, although a target of 1000 s is far away."""
    settings = config(
        rounds=40, delay_unit="seconds", warm_start=False, delay_target_s=1000.0
    )
    made = plan(settings)
    assert mean_keep(made) > 0.9999
    assert np.mean(made.round_delay_s) < 275


def test_scarce_energy_does_not_make_rounds_of_days():
    made = plan(config(rounds=3, energy_budget_j=1.2, warm_start=False))
    assert made.round_delay_s[0] < 5000


def first_price(settings):
    ledger, _ = first_ledger.start_ledger(settings, SIZES, 60, 1000)
    planner = planning.Planner(settings, SIZES, MODEL, ledger)
    return queues.delay_price(settings.schedule, planner.queues)


def test_a_loose_target_has_no_price_and_everything_is_kept():
    settings = config(rounds=30, delay_target_s=300.0)
    assert first_price(settings) == 0
    made = plan(settings)
    assert mean_keep(made) > 0.999
    assert np.mean(made.round_delay_s) < 300


@pytest.mark.parametrize(
    "changes",
    [{}, {"delay_target_s": 90.0}, {"energy_budget_j": 1.2}, {"tradeoff": 10.0}],
)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_first_rounds_already_meet_the_target(changes, seed):
    """The queue starts where it stays: early rounds take as long as late ones."""
    made = plan(config(seed=seed, rounds=60, epsilon_hi=20.0, **changes))
    target = changes.get("delay_target_s", 120.0)
    assert np.mean(made.round_delay_s[:20]) == pytest.approx(target, rel=0.12)
    assert made.delay_queue[0] == pytest.approx(np.mean(made.delay_queue), rel=0.25)


def test_a_target_out_of_reach_starts_with_short_rounds():
    settings = config(rounds=5, delay_target_s=20.0, energy_budget_j=24.0)
    made = plan(settings)
    assert mean_keep(made) < 0.2


def test_baselines_start_with_an_empty_delay_queue():
    assert plan(config(rounds=1, policy="random")).delay_queue[0] == 0


FAR = {"area_m": 4_000.0}


def test_rounds_have_a_limit_and_who_is_slower_stays_out():
    """In a cell of 4 km, somebody always is on the brink."""
    loose = plan(config(rounds=20, wireless=FAR))
    assert np.median(loose.round_delay_s) > 2000
    settings = config(rounds=20, wireless=FAR, round_limit_s=2000.0)
    made = plan(settings)
    check_schedule(made, settings, SIZES, PARAMETERS)
    assert made.sends.any()
    assert np.max(made.round_delay_s) <= 2000 * (1 + 1e-9)
    assert np.any(made.sends.sum(axis=1) < 5)


@pytest.mark.parametrize("policy", ["delay_min", "round_robin", "random"])
@pytest.mark.parametrize("solver", ["joint", "paper"])
def test_every_policy_keeps_to_the_limit(policy, solver):
    policy = "dp_sparfl" if solver == "paper" else policy
    settings = config(
        rounds=10, wireless=FAR, round_limit_s=2000.0, policy=policy, solver=solver
    )
    made = plan(settings)
    check_schedule(made, settings, SIZES, PARAMETERS)
    assert np.max(made.round_delay_s) <= 2000 * (1 + 1e-9)


@pytest.mark.parametrize("solver", ["joint", "descent"])
def test_channels_idle_if_clients_cost_more_than_they_bring(solver):
    wanted = {"rounds": 40, "wireless": FAR, "solver": solver, "tradeoff": 20.0}
    settings = config(**wanted, clients="worthwhile")
    made = plan(settings)
    check_schedule(made, settings, SIZES, PARAMETERS)
    everybody = plan(config(**wanted))
    assert 0 < made.sends.sum() < everybody.sends.sum()
    assert np.mean(made.round_delay_s) < np.mean(everybody.round_delay_s)


def test_the_papers_procedure_cannot_leave_channels_idle():
    with pytest.raises(InputError, match=r"schedule\.clients"):
        config(clients="worthwhile", solver="paper_strict")


@pytest.mark.parametrize("policy", ["random", "round_robin", "delay_min"])
def test_baselines_send_everything_whatever_noise_makes_of_it(policy):
    """The best keep rate is below keep_min here: a cap, not a wish of the user."""
    noisy = {"noise_aware": True, "gradient_over_clip": 0.01}
    made = plan(config(rounds=5, policy=policy, **noisy))
    assert mean_keep(made) == 1.0
    fixed = plan(config(rounds=5, policy=policy, keep_rate=0.1, **noisy))
    assert mean_keep(fixed) == pytest.approx(0.1)


@pytest.mark.parametrize("policy", ["dp_sparfl", "round_robin", "random", "delay_min"])
def test_values_go_by_the_weights_of_those_who_send(policy):
    sizes = np.array([300, 600, 1800, 2100, 1000] * 4 + [500, 700])  # the last group: 2
    settings = config(rounds=12, policy=policy)
    made = plan(settings, sizes)
    lam = settings.schedule.tradeoff
    for t in range(made.num_rounds):
        sent = made.sends[t]
        client, keep = made.client[t][sent], made.keep_rate[t][sent]
        weights = sizes[client] / sizes[client].sum()
        value = made.fairness_queue[t][client].sum() - lam * np.sum(weights * keep)
        price = made.delay_queue[t] / settings.schedule.delay_target_s
        value += price * made.round_delay_s[t]
        assert made.value[t] == pytest.approx(value, rel=1e-6, abs=1e-6)


def test_clients_may_differ_in_everything(tmp_path):
    cycles = tuple(np.linspace(5e6, 2e7, 20))
    np.save(tmp_path / "gains.npy", np.geomspace(1e-9, 1e-7, 20))
    radio = {
        "cycles_per_sample": cycles,
        "capacitance": list(np.linspace(1e-29, 1e-28, 20)),
        "interference_w": tuple(np.linspace(0, 1e-13, 20)),
        "downlink_gain": str(tmp_path / "gains.npy"),
    }
    settings = config(rounds=6, wireless=radio)
    check_schedule(plan(settings), settings, SIZES, PARAMETERS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_idle_channels_in_a_large_cell(seed):
    """Intervals in which nobody is useful are left alone."""
    settings = config(
        seed=seed,
        rounds=4,
        epsilon_hi=20.0,
        clients="worthwhile",
        wireless={"num_channels": 15},
    )
    sizes = np.full(210, 1000)
    check_schedule(plan(settings, sizes), settings, sizes, PARAMETERS)


@pytest.mark.parametrize(("bandwidth", "target"), [(15e3, 0.4), (1e6, 0.007)])
def test_small_models_start_at_their_price_too(bandwidth, target):
    """A second carries many updates here: it is worth more than lambda."""
    settings = config(
        rounds=30,
        delay_target_s=target,
        energy_budget_j=24.0,
        wireless={"bandwidth_hz": bandwidth, "cycles_per_sample": 1e3},
    )
    ledger, _ = first_ledger.start_ledger(settings, SIZES, 60, 1000)
    small = ModelSize(7850, 10)
    made = planning.plan(planning.Planner(settings, SIZES, small, ledger))
    assert np.mean(made.round_delay_s[:10]) == pytest.approx(target, rel=0.25)


def test_the_warning_names_the_limit():
    settings = config(round_limit_s=1e-3, rounds=3)
    ledger, _ = first_ledger.start_ledger(settings, SIZES, 60, 1000)
    planner = planning.Planner(settings, SIZES, MODEL, ledger)
    assert "limit of 0.001 s" in planning.delay_warning(planner)
    assert not planning.plan(planner).sends.any()
