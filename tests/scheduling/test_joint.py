"""Is the joint optimum the optimum, and is its certificate honest?"""

import numpy as np
import pytest

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.scheduling import alternating, deadline, joint, matching
from dpsparfl_jax.scheduling import search as search_lib
from dpsparfl_jax.scheduling.problem import value_of
from tests.reference import allocation as reference
from tests.reference.feasible import check_allocation
from tests.scheduling.instances import TRADEOFF, random_problem

ENERGIES = (24.0, 5.0, 2.5, 1.2, 0.8)  # plenty ... some clients cannot send at all


def tiny(seed):
    """U <= 5, N <= 3, any energy regime; some edges and clients forbidden."""
    rng = np.random.default_rng([seed, 99])
    problem = random_problem(
        seed,
        clients=int(rng.integers(1, 6)),
        channels=int(rng.integers(1, 4)),
        energy_j=ENERGIES[seed % 5],
        fairness=(1.0, 10.0)[seed % 2],
        unequal=seed % 4 == 0,
        aware=seed % 3 == 0,
    )
    snr, changes = problem.snr_per_w.copy(), {}
    if seed % 7 == 0:
        snr[rng.random(snr.shape) < 0.4] = 0.0
    if seed % 11 == 0:
        changes["delay_price"] = 10 ** rng.uniform(-3, 2)
    if seed % 13 == 0:
        changes["base_delay_s"] = np.zeros(problem.num_clients)
    if seed % 17 == 0:  # one keep rate for all
        changes |= {"keep_min": 0.25, "keep_max": np.full(problem.num_clients, 0.25)}
        changes["curvature"] = np.zeros(problem.num_clients)
    elif seed % 5 == 1:
        changes["keep_min"] = 0.01
    return problem._replace(snr_per_w=snr, **changes)


@pytest.mark.parametrize(
    "block", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 4))]
)
def test_equals_brute_force(block):
    """30 instances; the oracle enumerates matchings and searches over (s, P)."""
    sizes = set()
    for seed in range(30 * block, 30 * (block + 1)):
        problem = tiny(seed)
        ours = joint.solve_joint(problem)
        size, least = reference.brute_force(problem)
        assert len(ours.client) == size
        assert ours.value == pytest.approx(least, abs=2e-6 * TRADEOFF)
        assert ours.lower_bound <= least + 1e-6 * TRADEOFF
        sizes.add(size)
    assert len(sizes) > 1


def floored(problem, size):
    """With the price that a solver gives a second where it (almost) costs nothing."""
    least = 1e-6 * np.max(problem.reward) * size
    return problem._replace(delay_price=max(problem.delay_price, least))


@pytest.mark.parametrize(
    "kind",
    [
        *("free", "idle_and_limited"),
        *(
            pytest.param(kind, marks=pytest.mark.slow)
            for kind in ("tied", "limited", "idle", "idle_and_free")
        ),
    ],
)
@pytest.mark.parametrize(
    "block", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 5))]
)
def test_equals_brute_force_at_the_edges(block, kind):
    """Delay for nothing, equal channels and clients, limits, idle channels."""
    idle, sizes = kind.startswith("idle"), set()
    for seed in range(block, 50, 5):
        problem = tiny(seed + 1000)._replace(may_idle=idle)
        if kind.endswith("free"):
            problem = problem._replace(delay_price=0.0)
        if kind == "tied":
            one = problem.snr_per_w[:1, :1]
            problem = problem._replace(
                snr_per_w=np.broadcast_to(one, problem.snr_per_w.shape),
                base_delay_s=np.full(problem.num_clients, problem.base_delay_s[0]),
                weight=np.zeros(problem.num_clients),
            )
        if kind.endswith("limited"):
            problem = problem._replace(latest_s=40.0 + 10 * (seed % 10))
        if idle:  # some clients cost more than they bring
            problem = problem._replace(weight=problem.weight * 10 + 10)
        ours = joint.solve_joint(problem)
        possible = np.isfinite(search_lib.Search(problem).edges.first_s)
        priced = floored(problem, matching.largest_size(possible))
        size, least = reference.brute_force(priced, longest=1e5)
        value = value_of(priced, ours.client, ours.keep_rate, ours.delay_s)
        assert value == pytest.approx(least, abs=1e-6 * TRADEOFF)
        assert ours.lower_bound <= min(least, ours.value) + 1e-7 * TRADEOFF
        assert np.all(ours.delay_s <= problem.latest_s)
        if ours.client.size:
            feasible(problem, ours)
        if not idle:
            assert len(ours.client) == size
        sizes.add(size)
    assert len(sizes) > 1


@pytest.mark.parametrize("seed", range(2))
def test_large_rounds_with_idle_channels_take_the_short_cuts_and_agree(
    seed, monkeypatch
):
    problem = random_problem(seed, clients=300, channels=30, fairness=5.0)
    problem = problem._replace(may_idle=True, weight=problem.weight + 10.0)
    quick = joint.solve_joint(problem)
    feasible(problem, quick)
    assert 0 < len(quick.client) < 30
    monkeypatch.setattr(matching, "SMALL", 10**9)
    slow = joint.solve_joint(problem)
    assert quick.value == pytest.approx(slow.value, abs=2e-6 * TRADEOFF)
    assert quick.lower_bound <= slow.value + 1e-9


def test_a_second_more_is_seen_where_it_costs_nothing():
    """The earliest of equally good deadlines, to the second."""
    problem = random_problem(3)._replace(delay_price=0.0)
    found = joint.solve_joint(problem)
    assert np.all(found.keep_rate > 0.999)
    at_least = search_lib.Search(problem)
    match = matching.Matching(found.client, found.channel, 0.0)
    chosen = deadline.choose(problem, at_least.edges, match.client, match.channel)
    assert found.delay_s[0] <= np.max(chosen.last_s) + 1e-9


def feasible(problem, found):
    """Within all constraints, and worth what it says."""
    check_allocation(problem, found)
    assert np.all(found.keep_rate >= problem.keep_min * (1 - 1e-9))
    assert np.all(found.keep_rate <= problem.keep_max[found.client] * (1 + 1e-9))
    value = value_of(problem, found.client, found.keep_rate, found.delay_s)
    assert found.value == pytest.approx(value, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("count", [40, pytest.param(500, marks=pytest.mark.slow)])
def test_never_above_the_other_solvers_on_random_rounds(count):
    gaps = {"descent": [], "paper": [], "strict": []}
    for seed in range(count):
        problem = random_problem(
            seed,
            energy_j=(24.0, 24.0, 2.5)[seed % 3],
            fairness=(1.0, 10.0, 0.0, 3.0)[seed % 4],
            unequal=seed % 5 == 0,
        )
        best = joint.solve_joint(problem)
        feasible(problem, best)
        assert best.value - best.lower_bound <= 1.001e-6 * np.max(problem.reward) * 5
        others = {
            "descent": joint.solve_descent(problem),
            "paper": alternating.solve_paper(problem),
            "strict": alternating.solve_paper(problem, strict=True),
        }
        for name, other in others.items():
            if seed % 10 == 0:
                feasible(problem, other)
            assert len(other.client) == len(best.client)
            assert best.value <= other.value + 1e-6 * TRADEOFF
            assert best.lower_bound <= other.value
            gaps[name].append((other.value - best.value) / TRADEOFF)
    # The exact optimum is worth it, and descent nearly reaches it.
    assert np.mean(gaps["paper"]) > 0.02
    assert np.mean(gaps["descent"]) < 0.005
    if count == 500:
        assert np.mean(gaps["strict"]) < np.mean(gaps["paper"])


@pytest.mark.parametrize("seed", range(4))
def test_large_rounds_take_the_short_cuts_and_agree(seed, monkeypatch):
    """Prices and left-out clients against assignments of everything."""
    problem = random_problem(seed, clients=300, channels=30)
    quick = joint.solve_joint(problem)
    feasible(problem, quick)
    monkeypatch.setattr(matching, "SMALL", 10**9)
    slow = joint.solve_joint(problem)
    assert quick.value == pytest.approx(slow.value, abs=2e-6 * TRADEOFF)
    assert quick.lower_bound <= slow.value + 1e-9


@pytest.mark.parametrize("small", [1, 3000])
@pytest.mark.parametrize("seed", range(12))
def test_bounds_are_below_every_allocation_and_drop_nobody_useful(
    seed, small, monkeypatch
):
    """On random intervals, against the best matching at sampled deadlines."""
    monkeypatch.setattr(matching, "SMALL", small)
    problem = random_problem(
        seed, clients=12, channels=4, energy_j=(24.0, 2.5)[seed % 2]
    )
    search = search_lib.Search(problem)
    search.offer(search.match_at(search.low))
    search.offer(search.match_at(search.latest()))
    rng = np.random.default_rng(seed)
    part = search_lib.Part(np.arange(12), search.problem, search.edges)
    for _ in range(12):
        a, b = np.sort(rng.uniform(search.low, search.low + 150, 2))
        bound, smaller = search.bounds(part, [(a, b)])[0]
        for d in np.linspace(a, b, 9):
            match = search.match_at(d)
            if len(match.client) < search.size:
                continue
            value = match.cost + search.problem.delay_price * d
            assert bound <= value + 1e-9
            if value < search.best.value - 1e-9:
                assert set(match.client) <= set(smaller.rows)


def test_a_bound_of_too_few_clients_is_infinite():
    cost = np.array([[1.0, 2.0], [np.inf, np.inf]])
    assert np.all(np.isinf(matching.dual_bounds(cost, np.zeros(2))))
    assert np.all(np.isinf(matching.dual_bounds(cost[:1], np.zeros(2))))


@pytest.mark.parametrize("tradeoff", [1e-6, 1e-3, 50.0, 1e5])
def test_without_a_price_of_delay_the_scale_of_rewards_does_not_matter(tradeoff):
    problem = random_problem(0, price=0.0, fairness=0.0)
    problem = problem._replace(reward=np.full(20, tradeoff / 5))
    best = joint.solve_joint(problem)
    np.testing.assert_allclose(best.keep_rate, 1.0)
    assert best.value <= alternating.solve_paper(problem).value + 1e-9 * tradeoff
    assert best.value - best.lower_bound <= 3e-6 * tradeoff


def test_without_a_price_and_with_little_energy_the_bound_is_honest():
    """No edge can ever send everything: the best deadline is far away."""
    for seed in range(8):
        problem = random_problem(seed, clients=4, channels=2, energy_j=1.2, price=0.0)
        best = joint.solve_joint(problem)
        size, least = reference.brute_force(problem, longest=1e6)
        assert len(best.client) == size
        assert best.lower_bound <= least + 1e-6 * TRADEOFF
        assert best.value <= least + 1e-3 * TRADEOFF


def test_without_a_price_of_delay_everybody_sends_everything():
    problem = random_problem(3, price=0.0)
    best = joint.solve_joint(problem)
    np.testing.assert_allclose(best.keep_rate, 1.0)
    cheapest = np.sort(problem.weight - problem.reward)[:5].sum()
    assert best.value == pytest.approx(cheapest)
    assert best.value - best.lower_bound <= 2e-6 * TRADEOFF
    feasible(problem, best)


def test_an_infinite_price_leaves_the_fastest_round():
    problem = random_problem(3, price=1e6)
    best = joint.solve_joint(problem)
    first = search_lib.Search(problem).edges.first_s
    assert best.delay_s[0] == pytest.approx(matching.bottleneck(first, 5))


def test_fewer_clients_than_channels_leave_channels_idle():
    best = joint.solve_joint(random_problem(0, clients=3, channels=5))
    assert len(best.client) == 3


@pytest.mark.parametrize(
    "solve", [joint.solve_joint, joint.solve_descent, alternating.solve_paper]
)
def test_nobody_can_send(solve):
    problem = random_problem(0)
    silent = problem._replace(snr_per_w=np.zeros_like(problem.snr_per_w))
    assert solve(silent).client.size == 0
    empty = problem._replace(energy_j=np.full(20, -1.0))
    assert solve(empty).client.size == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_power_w": -1.0}, "largest power"),
        ({"delay_price": -1.0}, "must not be negative"),
        ({"keep_min": 0.0}, "keep rates must satisfy"),
        ({"bits_per_rate": 0.0}, "payload bits"),
        ({"weight": np.zeros(3)}, "one number a client"),
        ({"weight": np.full(20, np.nan)}, "no number nan"),
        ({"snr_per_w": np.full((20, 5), np.nan)}, "at least 0"),
        ({"snr_per_w": np.full((20, 5), np.inf)}, "finite"),
        ({"curvature": np.full(20, 2.0)}, "rewards must grow"),
    ],
)
def test_bad_problems_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        joint.solve_joint(random_problem(0)._replace(**changes))


def test_identical_channels_change_nothing():
    problem = random_problem(5)
    same = np.repeat(problem.snr_per_w[:, :1], 5, axis=1)
    best = joint.solve_joint(problem._replace(snr_per_w=same))
    again = joint.solve_joint(problem._replace(snr_per_w=same))
    np.testing.assert_array_equal(best.client, again.client)
    assert best.value - best.lower_bound <= 1.001e-6 * TRADEOFF


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_prices_of_another_problem_find_the_cheapest_matching(seed, tied):
    """From prices near and far, with forbidden edges and with many equal costs."""
    rng = np.random.default_rng([seed, 5])
    cost = rng.normal(0, 5, (200, 20)) + rng.normal(0, 5, (200, 1))
    if tied:
        cost = np.round(cost / 5) * 5
    cost[rng.random(cost.shape) < 0.3 * (seed % 3)] = np.inf
    plain = matching.cheapest(cost, np.isfinite(cost))
    near = matching.priced(cost + rng.normal(0, 0.1, cost.shape), None)
    for price in (near.price, rng.normal(0, 10, 20), np.zeros(20)):
        found = matching.priced(cost, price)
        assert found.match.cost == pytest.approx(plain.cost, abs=1e-8)
        assert len(set(found.match.client)) == len(set(found.match.channel)) == 20
        assert np.min(found.below) == pytest.approx(plain.cost, abs=1e-7)


def test_too_few_clients_have_no_matching_of_all_channels():
    cost = np.full((6, 3), np.inf)
    cost[:2] = 1.0
    for few in (cost, cost[:2]):
        assert matching.priced(few, None) is None
        assert matching.priced(few, np.zeros(3)) is None


def test_without_any_reward_weights_decide():
    problem = random_problem(0, clients=6, channels=2, price=0.0)
    problem = problem._replace(reward=np.zeros(6), weight=problem.weight * 1e10)
    found = joint.solve_joint(problem)
    assert set(found.client) == set(np.argsort(problem.weight)[:2])
