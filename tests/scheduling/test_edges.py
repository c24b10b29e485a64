"""Powers, airtimes and keep rates of single edges, and the steps built from them."""

import numpy as np
import pytest
from scipy import optimize

from dpsparfl_jax.scheduling import alternating, deadline, edges, matching
from dpsparfl_jax.scheduling.problem import value_of
from tests.scheduling.instances import random_problem

RNG = np.random.default_rng(0)


def bisect_power(bits, energy, snr, bandwidth):
    """P with P bits / (B log2(1 + snr P)) = E, by bisection on log P; 0 if none."""
    limit = bits * np.log(2) / (bandwidth * snr)
    if energy <= limit:
        return 0.0

    def excess(log_power):
        power = np.exp(log_power)
        # energy - limit in a form that loses no digits near the branch point
        x = power * snr
        return limit * (x / np.log1p(x)) - energy

    high = 0.0
    while excess(high) < 0:
        high += 5.0
    low = high
    while excess(low) > 0:
        low -= 5.0
    return float(np.exp(optimize.bisect(excess, low, high, xtol=1e-15, rtol=1e-15)))


def test_the_power_solve_equals_bisection():
    for _ in range(500):
        snr = 10 ** RNG.uniform(4, 8)
        bits, bandwidth = 10 ** RNG.uniform(6, 8), 15e3
        limit = bits * np.log(2) / (bandwidth * snr)
        energy = limit * (1 + 10 ** RNG.uniform(-2, 4))
        root = edges.largest_power(
            bits,
            np.array(energy),
            np.array(snr),
            bandwidth_hz=bandwidth,
            max_power_w=1e30,
        )
        plain = bisect_power(bits, energy, snr, bandwidth)
        assert root == pytest.approx(plain, rel=1e-12)


@pytest.mark.parametrize("distance", [1e-3, 1e-5, 1e-7, 1e-9, 1e-12])
def test_the_power_solve_near_the_branch_point(distance):
    """Just enough energy to send at all: ln(1 + x) = c x with c = 1 - distance."""
    c = 1 - distance
    x = edges._growth(np.array(c))
    # Series at the branch point, to its third term.
    u = 1 - c
    series = 2 * u + 8 / 3 * u**2 + 28 / 9 * u**3
    assert x == pytest.approx(
        series, rel=max(1e-8, 10 * distance**2) + 1e-16 / distance
    )
    assert np.isnan(edges._growth(np.array(1.0)))


def test_the_largest_power_meets_the_energy_or_the_cap():
    problem = random_problem(1, energy_j=120.0)
    bits = problem.bits_fixed + problem.bits_per_rate * 0.6
    power = edges.largest_power(
        bits,
        problem.energy_j[:, None],
        problem.snr_per_w,
        bandwidth_hz=problem.bandwidth_hz,
        max_power_w=1.0,
    )
    rate = problem.bandwidth_hz * np.log2(1 + power * problem.snr_per_w)
    energy = power * bits / rate
    capped = power == 1.0
    assert capped.any()
    assert not capped.all()
    limit = np.broadcast_to(problem.energy_j[:, None], energy.shape)
    np.testing.assert_allclose(energy[~capped], limit[~capped], rtol=1e-9)
    assert np.all(energy[capped] <= limit[capped])


def test_too_little_energy_has_no_power():
    snr, bandwidth, bits = np.array(1e6), 15e3, 1e7
    least = bits * np.log(2) / (bandwidth * snr)
    settings = {"bandwidth_hz": bandwidth, "max_power_w": 1.0}
    assert edges.largest_power(bits, 0.999 * least, snr, **settings) == 0
    assert edges.largest_power(bits, 1.001 * least, snr, **settings) > 0
    assert edges.largest_power(bits, np.array(-1.0), snr, **settings) == 0
    assert edges.largest_power(bits, np.array(1.0), np.array(0.0), **settings) == 0


@pytest.mark.parametrize("energy_j", [24.0, 2.5])
def test_keep_rates_are_concave_and_start_and_end_where_they_should(energy_j):
    problem = random_problem(2, energy_j=energy_j)
    made = edges.make_edges(problem)
    times = np.linspace(40, 400, 300)
    keep = np.array([edges.keep_rate_at(problem, made, d) for d in times])
    assert np.all(np.diff(keep, axis=0) >= -1e-12)
    assert np.all(np.diff(keep, n=2, axis=0) <= 1e-9)
    for i, j in np.ndindex(4, 5):
        if np.isfinite(made.first_s[i, j]):
            at = edges.keep_rate_at(problem, made, made.first_s[i, j])[i, j]
            assert at == pytest.approx(problem.keep_min, rel=1e-9)
        last = edges.last_deadline(problem, made, np.array([i]), np.array([j]))[0]
        if np.isfinite(last):
            at = edges.keep_rate_at(problem, made, last)[i, j]
            assert at == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("energy_j", [24.0, 2.5])
@pytest.mark.parametrize("aware", [False, True])
def test_slopes_are_derivatives(energy_j, aware):
    problem = random_problem(4, energy_j=energy_j, aware=aware)
    made = edges.make_edges(problem)
    client, channel = np.array([0, 3, 7, 11, 15]), np.arange(5)
    chosen = deadline.choose(problem, made, client, channel)
    for d in np.linspace(np.max(chosen.first_s) + 1, 300, 7):
        step = 1e-5
        rise = deadline.value_at(problem, chosen, d + step)
        rise -= deadline.value_at(problem, chosen, d - step)
        slope = deadline.slope(problem, chosen, d, right=True)
        assert slope == pytest.approx(rise / (2 * step), abs=1e-5)


def random_step(seed):
    """Five clients with fixed rates, as the paper's keep-rate step sees them."""
    problem = random_problem(seed)
    rng = np.random.default_rng([seed, 5])
    client = rng.choice(20, 5, replace=False)
    rate = rng.uniform(1e5, 4e5, 5)
    price = 10 ** rng.uniform(-2, 0.5)
    return problem._replace(delay_price=price), client, rate


def step_value(problem, client, rate, keep):
    bits = problem.bits_fixed + problem.bits_per_rate * keep
    delay = problem.base_delay_s[client] + bits / rate
    return problem.delay_price * np.max(delay) - np.sum(problem.reward[client] * keep)


def subproblem(problem, client, rate, b):
    """The paper's subproblem b: client b is slowest; its keep rate sweeps [.., 1]."""
    base, n0, n1 = (
        problem.base_delay_s[client],
        problem.bits_fixed,
        problem.bits_per_rate,
    )
    least = np.max(base + (n0 + n1 * problem.keep_min) / rate)
    full = base + (n0 + n1) / rate
    best = np.inf
    for d in [least, *full[(full > least) & (full <= full[b])]]:
        keep = np.clip((rate * (d - base) - n0) / n1, problem.keep_min, 1.0)
        best = min(best, step_value(problem, client, rate, keep))
    return best


@pytest.mark.parametrize("seed", range(60))
def test_the_keep_rate_step_equals_the_subproblems_and_a_linear_program(seed):
    problem, client, rate = random_step(seed)
    keep = alternating.keep_rate_step(problem, client, rate, np.ones(5))
    ours = step_value(problem, client, rate, keep)
    subproblems = min(subproblem(problem, client, rate, b) for b in range(5))
    assert ours == pytest.approx(subproblems, abs=1e-9)
    # Variables (s_1 .. s_5, d): minimise -r s + q d with c + (n0 + n1 s) / R <= d.
    cost = np.append(-problem.reward[client], problem.delay_price)
    matrix = np.hstack([np.diag(problem.bits_per_rate / rate), -np.ones((5, 1))])
    limit = -problem.base_delay_s[client] - problem.bits_fixed / rate
    bounds = [(problem.keep_min, 1.0)] * 5 + [(0, None)]
    program = optimize.linprog(cost, matrix, limit, bounds=bounds, method="highs")
    assert ours == pytest.approx(program.fun, abs=1e-6)


@pytest.mark.parametrize("latest", [np.inf, 150.0])
@pytest.mark.parametrize("seed", range(20))
def test_the_keep_rate_step_counts_curvature_and_limits(seed, latest):
    """Against a fine scan of deadlines; ignoring curvature would be worse."""
    problem, client, rate = random_step(seed)
    rng = np.random.default_rng(seed)
    cap = rng.uniform(0.4, 1.0, 5)
    curvature = np.zeros(problem.num_clients)
    curvature[client] = 1 / cap
    problem = problem._replace(curvature=curvature, keep_max=np.ones_like(curvature))
    first = np.max(
        problem.base_delay_s[client]
        + (problem.bits_fixed + problem.bits_per_rate * problem.keep_min) / rate
    )
    problem = problem._replace(latest_s=max(latest, first))

    def value(keep):
        delay = problem.base_delay_s[client] + (
            (problem.bits_fixed + problem.bits_per_rate * keep) / rate
        )
        return value_of(problem, client, keep, delay)

    keep = alternating.keep_rate_step(problem, client, rate, cap)
    deadlines = np.linspace(first, min(problem.latest_s, first + 1000), 20_000)
    scanned = []
    for d in deadlines:
        bits = rate * (d - problem.base_delay_s[client]) - problem.bits_fixed
        scanned.append(
            value(np.clip(bits / problem.bits_per_rate, problem.keep_min, cap))
        )
    assert value(keep) <= min(scanned) + 1e-9
    assert value(keep) == pytest.approx(min(scanned), abs=1e-4)
    flat = problem._replace(curvature=np.zeros_like(curvature))
    linear = alternating.keep_rate_step(flat, client, rate, cap)
    assert value(keep) <= value(linear) + 1e-9


def test_matchings():
    cost = RNG.normal(size=(6, 3))
    allowed = RNG.random((6, 3)) < 0.5
    found = matching.cheapest(cost, allowed)
    assert len(found.client) == matching.largest_size(allowed)
    assert allowed[found.client, found.channel].all()
    assert matching.largest_size(np.zeros((3, 3), bool)) == 0


@pytest.mark.parametrize("seed", range(20))
def test_short_cuts_of_large_matchings(seed, monkeypatch):
    """Fewer rows, and prices that prove a matching cheapest."""
    rng = np.random.default_rng(seed)
    cost = rng.normal(size=(40, 1)) + 0.3 * rng.normal(size=(40, 8))
    everything = np.ones_like(cost, bool)
    plain = matching.cheapest(cost, everything)
    monkeypatch.setattr(matching, "SMALL", 1)
    quick = matching.cheapest(cost, everything)
    assert quick.cost == pytest.approx(plain.cost)
    price = matching.potentials(cost, quick)
    bounds = matching.dual_bounds(cost, price)
    assert np.min(bounds) == pytest.approx(plain.cost)
    for row in range(0, 40, 7):  # every matching that must use `row`
        forced = cost.copy()
        forced[row] -= 100
        used = matching.cheapest(forced, everything)
        assert row in used.client
        assert bounds[row] <= used.cost + 100 + 1e-9
    other = rng.normal(size=8)  # any prices bound from below
    assert np.min(matching.dual_bounds(cost, other)) <= plain.cost + 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_bottleneck(seed):
    rng = np.random.default_rng(seed)
    delay = rng.uniform(1, 9, (6, 3))
    delay[rng.random(delay.shape) < 0.3] = np.inf
    size = matching.largest_size(np.isfinite(delay))
    least = matching.bottleneck(delay, size)
    assert matching.largest_size(delay <= least) == size
    assert matching.largest_size(delay < least) < size
