"""Do rounds of very many clients, sifted, come out as if all were looked at?"""

import itertools

import numpy as np
import pytest

from dpsparfl_jax.config import ScheduleConfig
from dpsparfl_jax.scheduling import baselines, edges, joint, matching, sifting
from dpsparfl_jax.scheduling.base import Observation, make_policy
from tests.reference import allocation as reference
from tests.reference.feasible import check_allocation
from tests.scheduling.instances import TRADEOFF, random_problem

KINDS = (
    {},
    {"unequal": True, "fairness": 0.1},
    {"aware": True},
    {"energy_j": 2.5},
    {"price": 0.0},
    {"price": 1e3},
    {"fairness": 10.0, "unequal": True, "energy_j": 5.0},
)


def crowd(seed, clients=1000, channels=8):
    """A round of many clients, some of whom cannot send; every third has a limit."""
    problem = random_problem(
        seed, clients=clients, channels=channels, **KINDS[seed % len(KINDS)]
    )
    snr = problem.snr_per_w.copy()
    if seed % 2:
        snr[np.random.default_rng(seed).random(snr.shape) < 0.3] = 0.0
    limit = 100.0 if seed % 3 == 0 else np.inf
    return problem._replace(snr_per_w=snr, latest_s=limit)


@pytest.fixture
def sift(monkeypatch):
    """Sets from how many edges rounds are sifted; says how often they were."""
    asked = []

    def is_worthwhile(problem, known=sifting.is_worthwhile):
        asked.append(known(problem))
        return asked[-1]

    monkeypatch.setattr(sifting, "is_worthwhile", is_worthwhile)

    def set_many(many):
        asked.clear()
        monkeypatch.setattr(sifting, "MANY", many)
        return asked

    return set_many


@pytest.mark.parametrize("seed", range(14))
def test_the_optimum_is_that_of_all_clients(seed, sift):
    problem = crowd(seed)
    sift(10**9)
    whole = joint.solve_joint(problem)
    assert sifting.optimum(problem, 1e-6) is not None
    assert sift(1) == []
    found = joint.solve_joint(problem)
    check_allocation(problem, found)
    near = 2e-6 * max(TRADEOFF, float(np.max(problem.reward)) * 8)
    slack = 1e-4 if problem.delay_price == 0 else 0.0  # a second has a tiny price then
    assert found.value == pytest.approx(whole.value, abs=near + slack)
    assert found.lower_bound <= whole.value + 1e-9 * (1 + abs(whole.value))
    assert found.value - found.lower_bound <= near + slack
    assert len(found.client) == 8


@pytest.mark.parametrize("seed", range(7))
def test_equals_brute_force(seed, monkeypatch):
    monkeypatch.setattr(sifting, "MANY", 1)
    monkeypatch.setattr(sifting, "_FIRST", 1)  # as few candidates as there can be
    monkeypatch.setattr(sifting, "_CROWD", 2)
    problem = crowd(seed, clients=6, channels=2)
    problem = problem._replace(delay_price=max(problem.delay_price, 1e-3))
    size, least = reference.brute_force(problem)
    found = joint.solve_joint(problem)
    assert len(found.client) == size
    assert found.value == pytest.approx(least, abs=2e-6 * TRADEOFF)
    assert found.lower_bound <= least + 1e-6 * TRADEOFF


def test_all_are_looked_at_where_channels_stay_idle(sift):
    problem = crowd(0)
    snr = problem.snr_per_w.copy()
    snr[:, 3] = 0.0
    problem = problem._replace(snr_per_w=snr)
    sift(10**9)
    whole = joint.solve_joint(problem)
    assert sifting.optimum(problem, 1e-6) is None
    assert sifting.descent(problem, None) is None
    sift(1)
    found = joint.solve_joint(problem)
    for ours, theirs in zip(found, whole, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert not sifting.is_worthwhile(problem._replace(may_idle=True))


@pytest.mark.parametrize("seed", range(7))
def test_the_descent_ends_where_nobody_else_would_do_better(seed, sift):
    problem = crowd(seed)
    sift(1)
    for start in (None, 60.0):
        found = joint.solve_descent(problem, start)
        check_allocation(problem, found)
        best = joint.solve_joint(problem)
        assert best.lower_bound <= found.value
        # The best matching of all clients at that deadline is no better.
        sift(10**9)
        whole = joint.solve_descent(problem, float(np.max(found.delay_s)))
        assert whole.value >= found.value - 2e-6 * np.max(problem.reward) * 8
        sift(1)


@pytest.mark.parametrize("seed", range(7))
def test_nobody_useful_is_left_out(seed):
    """Somebody of every better matching, at whatever deadline, is missed."""
    problem = crowd(seed, clients=100, channels=4)
    problem = problem._replace(delay_price=max(problem.delay_price, 0.01))
    sieve, seen = sifting.Sieve(problem), 0
    from_all = sifting.Search(sieve.problem)
    for first in range(4):
        rows = np.arange(first, 100, 4)
        search = sifting.Search(sifting.take_clients(sieve.problem, rows))
        if search.size < 4:
            continue
        search.offer(search.match_at(search.low))
        gap = 1e-6 * TRADEOFF
        range_of = [(sieve.low, sieve.latest(search.best.value))]
        levels = sieve.prove(search, range_of, gap)
        missing, _ = sieve.missing(search, rows, levels)
        alone = joint.solve_joint(search.given)  # the proof has found it too
        assert search.best.value == pytest.approx(alone.value, abs=gap)
        for deadline in search.best.deadline * np.linspace(0.5, 2.0, 40):
            deadline = min(deadline, problem.latest_s)
            match = from_all.match_at(deadline)
            value = match.cost + sieve.problem.delay_price * deadline
            if len(match.client) == 4 and value < search.best.value - gap:
                others = set(match.client) - set(rows)
                assert others & set(missing)
                seen += 1
    assert seen


def test_levels_are_what_others_must_cost():
    """Against all ways to use others who cost exactly as much, or a little less."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        cost = rng.normal(size=(4, 3))
        cost[rng.random(cost.shape) < 0.2] = np.inf
        price, needed = rng.normal(size=3), rng.normal()
        level = matching.level_of(cost, price, needed)
        alone = np.sum(np.sort(np.min(cost - price, axis=1))[:3]) + np.sum(price)
        assert (level is None) == (alone < needed)
        if level is None:
            continue
        for less, enough in ((0.0, True), (1e-6, False)):
            others = np.tile(level - less, (3, 1))
            everybody = np.concatenate([cost, others])
            bound = matching.dual_bounds(everybody, price).min()
            assert (bound >= needed - 1e-9) == enough


def test_channels_that_are_short_of_clients():
    rng = np.random.default_rng(0)
    shorts = 0
    for _ in range(200):
        allowed = rng.random((7, 5)) < 0.3
        short = matching.short_of(allowed)
        users = allowed[:, short].any(axis=1)
        free = 5 - matching.largest_size(allowed)
        assert np.sum(short) - np.sum(users) == free
        shorts += free > 0
    assert 20 < shorts < 180


@pytest.mark.parametrize("seed", range(7))
def test_costs_are_those_of_edges(seed):
    problem = crowd(seed, clients=30, channels=4)
    made = edges.make_edges(problem)
    for deadline in (20.0, 60.0, 90.0, 300.0):
        keep = edges.keep_rate_at(problem, made, deadline)
        gained = keep - problem.curvature[:, None] * keep**2 / 2
        expected = problem.weight[:, None] - problem.reward[:, None] * gained
        allowed = made.first_s <= deadline
        if deadline <= problem.latest_s:
            found = sifting.costs_at(problem, deadline)
            np.testing.assert_array_equal(np.isfinite(found), allowed)
            np.testing.assert_allclose(found[allowed], expected[allowed], rtol=1e-9)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("many", [1, 10**9])
def test_the_quickest_are_those_of_all_clients(seed, many, monkeypatch):
    problem = crowd(seed, clients=300, channels=5)
    snr = problem.snr_per_w.copy()
    if seed == 4:  # a channel that nobody can use
        snr[:, 2] = 0.0
    problem = problem._replace(snr_per_w=snr * (seed != 5))  # or none at all

    def first_s(some):
        return edges.make_edges(some).first_s

    delay = first_s(problem)
    size = matching.largest_size(np.isfinite(delay))
    assert sifting.largest_size(problem, edges.possible_edges) == size
    monkeypatch.setattr(sifting, "MANY", many)
    found = sifting.quickest(problem, first_s)
    assert found.size == size
    assert found.least_s == (matching.bottleneck(delay, size) if size else np.inf)
    quick = np.flatnonzero((delay <= found.least_s).any(axis=1))
    assert set(quick) <= set(found.rows)
    np.testing.assert_array_equal(found.delay_s, delay[found.rows])


@pytest.mark.parametrize("name", ["delay_min", "random", "round_robin"])
def test_baselines_choose_as_if_they_looked_at_all(name, monkeypatch):
    for seed in range(7):
        problem = crowd(seed, clients=120, channels=6)
        seen = Observation(seed, np.arange(120), np.full(120, 1000), problem)
        policy = make_policy(ScheduleConfig(policy=name))
        state, plans = policy.init(120, 6), []
        for many in (10**9, 1):
            monkeypatch.setattr(sifting, "MANY", many)
            plans.append(policy.plan(state, seen, np.random.default_rng(seed))[0])
        check_allocation(problem, plans[1])
        for ours, theirs in zip(*plans, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_random_draws_as_if_all_delays_were_known():
    """The policy written out plainly: one client after the other, over all edges."""
    for seed, channels in itertools.product(range(5), (3, 8)):
        problem = crowd(seed, clients=60, channels=channels)
        seen = Observation(seed, np.arange(60), np.full(60, 1000), problem)
        policy = make_policy(ScheduleConfig(policy="random"))
        plan, _ = policy.plan(None, seen, np.random.default_rng(seed))
        full, random = baselines.FullRate(problem), np.random.default_rng(seed)
        free, pairs = np.ones(channels, bool), []
        for row in random.permutation(60):
            usable = np.flatnonzero(free & np.isfinite(full.delay[row]))
            if usable.size:
                pairs.append((random.choice(usable), row))
                free[pairs[-1][0]] = False
        assert [client for _, client in sorted(pairs)] == list(plan.client)
        np.testing.assert_array_equal(
            plan.delay_s, full.delay[plan.client, plan.channel]
        )
        np.testing.assert_array_equal(
            plan.power_w, full.power[plan.client, plan.channel]
        )
