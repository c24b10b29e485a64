"""One contract for all policies, and what each is about."""

import dataclasses
import itertools

import numpy as np
import pytest

from dpsparfl_jax.config import ScheduleConfig
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.registry import POLICIES, SOLVERS
from dpsparfl_jax.scheduling import baselines, dp_sparfl
from dpsparfl_jax.scheduling.base import Observation, make_policy, register_policy
from tests.reference.feasible import check_allocation
from tests.scheduling.instances import TRADEOFF, random_problem

NAMES = ("dp_sparfl", "delay_min", "round_robin", "random")


def observation(seed, users=20, **changes):
    problem = random_problem(seed, clients=users, **changes)
    return Observation(seed, np.arange(users), np.full(users, 1000), problem)


def make(name, **changes):
    return make_policy(ScheduleConfig(policy=name, **changes))


def test_names():
    assert POLICIES.names() == NAMES
    with pytest.raises(
        InputError, match="unknown policy 'best': choose one of dp_sparfl"
    ):
        make("best")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("energy_j", [24.0, 60.0, 2.0, 0.5])
def test_contract(name, energy_j):
    """Distinct clients and channels, feasible, reproducible, state untouched."""
    policy = make(name)
    state = policy.init(20, 5)
    for seed in range(6):
        seen = observation(seed, energy_j=energy_j)
        frozen = repr(state)
        plan, following = policy.plan(state, seen, np.random.default_rng(seed))
        again, _ = policy.plan(state, seen, np.random.default_rng(seed))
        assert repr(state) == frozen
        for ours, theirs in zip(plan, again, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        check_allocation(seen.problem, plan)
        state = following


@pytest.mark.parametrize("name", NAMES)
def test_few_live_clients_all_send(name):
    policy = make(name)
    state = policy.init(20, 5)
    seen = observation(0)
    few = seen._replace(
        client=np.array([2, 3]),
        size=seen.size[:2],
        problem=random_problem(0, clients=2, channels=5),
    )
    plan, _ = policy.plan(state, few, np.random.default_rng(0))
    assert sorted(plan.client) == [0, 1]


@pytest.mark.parametrize("name", ["random", "round_robin", "delay_min"])
def test_baselines_send_everything(name):
    policy = make(name)
    plan, _ = policy.plan(policy.init(20, 5), observation(1), np.random.default_rng(1))
    np.testing.assert_array_equal(plan.keep_rate, 1.0)


def test_round_robin_takes_groups_in_turn_and_skips_dead_ones():
    policy = make("round_robin")
    state = policy.init(20, 5)
    seen = observation(0)
    groups = []
    for _ in range(5):
        plan, state = policy.plan(state, seen, np.random.default_rng(0))
        groups.append(sorted(plan.client))
    assert groups[:4] == [list(range(5 * g, 5 * g + 5)) for g in range(4)]
    assert groups[4] == groups[0]
    alive = np.r_[0:5, 10:20]  # the second group has retired
    fewer = seen._replace(
        client=alive,
        size=seen.size[alive],
        problem=random_problem(0, clients=15, channels=5),
    )
    plan, _ = policy.plan(state, fewer, np.random.default_rng(0))
    assert sorted(fewer.client[plan.client]) == list(range(10, 15))


def test_delay_min_is_the_fastest_of_all():
    policy = make("delay_min")
    for seed in range(10):
        seen = observation(seed)
        plan, _ = policy.plan(None, seen, np.random.default_rng(0))
        full = seen.problem._replace(delay_price=1e9, keep_min=1.0)
        exact, _ = make("dp_sparfl").plan(
            None, seen._replace(problem=full), np.random.default_rng(0)
        )
        assert np.max(plan.delay_s) == pytest.approx(np.max(exact.delay_s))


def test_random_takes_everybody_equally_often():
    """400 rounds of 5 of 20: counts are Binomial(400, 1/4); 5 sigma is 43."""
    policy = make("random")
    seen = observation(0)
    counts = np.zeros(20)
    for seed in range(400):
        plan, _ = policy.plan(None, seen, np.random.default_rng(seed))
        counts[plan.client] += 1
    assert np.all(np.abs(counts - 100) < 5 * np.sqrt(400 * 0.25 * 0.75))


@pytest.mark.parametrize("seed", range(8))
def test_true_weights_of_unequal_clients(seed):
    """Never worse, in the true objective, than choosing with equal weights."""
    rng = np.random.default_rng(seed)
    seen = observation(seed)._replace(size=rng.choice([300, 600, 1800, 2100], 20))
    policy = make("dp_sparfl")
    plan, _ = policy.plan(None, seen, rng)

    def true_value(client, keep, delay):
        sizes = seen.size[client]
        gained = TRADEOFF * np.sum(sizes * keep) / np.sum(sizes)
        price = seen.problem.delay_price * np.max(delay)
        return np.sum(seen.problem.weight[client]) - gained + price

    ours = true_value(plan.client, plan.keep_rate, plan.delay_s)
    assert plan.value == pytest.approx(ours)
    equal = policy._solve(seen.problem)
    assert ours <= true_value(equal.client, equal.keep_rate, equal.delay_s) + 1e-6


def best_true_value(seen):
    """Exhaustive: every set of three clients, solved with its own weights."""
    best = np.inf
    for rows in itertools.combinations(range(len(seen.client)), 3):
        sizes = seen.size[list(rows)]
        reward, energy = np.zeros(len(seen.client)), np.zeros(len(seen.client))
        reward[list(rows)] = TRADEOFF * sizes / sizes.sum()
        energy[list(rows)] = seen.problem.energy_j[list(rows)]
        only = seen.problem._replace(reward=reward, energy_j=energy)
        best = min(best, SOLVERS.get("joint")(only).value)
    return best


@pytest.mark.parametrize("count", [12, pytest.param(240, marks=pytest.mark.slow)])
def test_linearised_weights_nearly_reach_the_true_optimum(monkeypatch, count):
    """Six unequal clients, three channels: half the gap of choosing with 1/K."""
    policy, gaps, without = make("dp_sparfl"), [], []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        seen = observation(seed, users=6, channels=3)
        seen = seen._replace(size=rng.choice([300, 600, 1800, 2100], 6))
        least = best_true_value(seen)
        plan, _ = policy.plan(None, seen, rng)
        gaps.append((plan.value - least) / TRADEOFF)
        with monkeypatch.context() as patch:
            patch.setattr(dp_sparfl, "_LINEARISATIONS", 0)
            plan, _ = policy.plan(None, seen, rng)
            without.append((plan.value - least) / TRADEOFF)
    assert np.min(gaps) > -1e-5
    assert np.mean(gaps) < 0.01
    if count > 12:  # A few worlds have most of the gap: it takes many to tell.
        assert np.mean(without) > 1.7 * np.mean(gaps)


def test_noise_aware_rewards_keep_less():
    plain = observation(0)
    aware = plain._replace(
        problem=plain.problem._replace(
            curvature=np.full(20, 2.0), keep_max=np.full(20, 0.5)
        )
    )
    policy = make("dp_sparfl")
    first, _ = policy.plan(None, plain, np.random.default_rng(0))
    second, _ = policy.plan(None, aware, np.random.default_rng(0))
    assert np.all(second.keep_rate <= 0.5 + 1e-9)
    assert first.keep_rate.mean() > second.keep_rate.mean()


def test_a_policy_of_ones_own(monkeypatch):
    monkeypatch.setattr(POLICIES, "_entries", dict(POLICIES._entries))

    @register_policy("first_come")
    class FirstCome:
        def __init__(self, settings):
            self.settings = settings

        def init(self, num_clients, num_channels):
            return None

        def plan(self, state, observation, random):
            full = baselines.FullRate(observation.problem)
            return full.quickest(np.arange(5)), None

    policy = make("first_come")
    plan, _ = policy.plan(None, observation(0), np.random.default_rng(0))
    assert sorted(plan.client) == [0, 1, 2, 3, 4]
    with pytest.raises(InputError, match="already a policy named 'first_come'"):
        register_policy("first_come")(baselines.RandomPolicy)


def test_settings_name_existing_solvers():
    (field,) = [f for f in dataclasses.fields(ScheduleConfig) if f.name == "solver"]
    assert field.metadata["named"] is SOLVERS
