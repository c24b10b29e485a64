"""Does the charge for the end of the noise cover what its end gives away?

The mechanism with an end is written out on a grid, density by density, with an end so
near that what it gives away is large.
"""

import itertools

import numpy as np
import pytest
from scipy import special, stats

from dpsparfl_jax.privacy import noise_edge
from dpsparfl_jax.privacy.accountants import all_accountants
from dpsparfl_jax.privacy.mechanism import Mechanism, Release, client_groups
from dpsparfl_jax.rng import LARGEST_NOISE

NEAR = 3.0  # standard deviations


@pytest.fixture
def near_end(monkeypatch):
    """The noise ends at three standard deviations."""
    noise_edge.escape_bound.cache_clear()
    monkeypatch.setattr(noise_edge, "LARGEST_NOISE", NEAR)
    monkeypatch.setattr(noise_edge, "_OUTSIDE", float(np.exp(-(NEAR**2) / 2)))
    yield
    noise_edge.escape_bound.cache_clear()


def ended_density(z, end):
    """Density of R sin(angle), R <= end: Gaussian times room for the other leg."""
    room = special.erf(np.sqrt(np.maximum(end**2 - z**2, 0) / 2))
    return stats.norm.pdf(z) * room / (1 - np.exp(-(end**2) / 2))


def hockey_stick(p, q, epsilon, cell):
    return float(np.sum(np.maximum(p - np.exp(epsilon) * q, 0)) * cell)


def test_escape_probability_is_that_of_a_shifted_disc(near_end):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2_000_000, 2))
    inside = np.sum(z**2, axis=1) <= NEAR**2
    for shift in (0.1, 0.5, 1.5, 2.5):
        moved_out = np.sum((z + np.array([shift, 0])) ** 2, axis=1) > NEAR**2
        counted = np.mean(inside & moved_out)
        error = 4 * np.sqrt(counted / len(z))  # false alarm 6e-5
        got = noise_edge.escape_probability(np.array([shift]))[0]
        assert abs(got - counted) < error
        assert abs(1.2 * got - counted) > error or shift == 0.1


@pytest.mark.parametrize("rate", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_one_coordinate_is_covered_in_both_directions(near_end, rate, sigma, epsilon):
    z = np.linspace(-8, 8, 160_001)
    cell = z[1] - z[0]
    charge = noise_edge.cost(rate, sigma, 1, 0.0)
    factor = 1 / (1 - np.exp(-(NEAR**2) / 2))
    ended = [ended_density(z - shift, NEAR) for shift in (0, 1 / sigma)]
    exact = [stats.norm.pdf(z - shift) for shift in (0, 1 / sigma)]

    def deltas(densities):
        absent, moved = densities
        present = (1 - rate) * absent + rate * moved
        return (
            hockey_stick(present, absent, epsilon, cell),
            hockey_stick(absent, present, epsilon, cell),
        )

    for real, ideal in zip(deltas(ended), deltas(exact), strict=True):
        assert real <= factor * ideal + charge + 1e-9
    # Without the charge, the exact mechanism would not cover it.
    if sigma <= 1 and epsilon == 3.0:
        assert deltas(ended)[0] > factor * deltas(exact)[0] * 1.05


def test_two_steps_compose_as_stated(near_end):
    z = np.linspace(-7, 8, 1501)
    cell = (z[1] - z[0]) ** 2
    rate, shift, epsilon = 0.3, 1.0, 1.5

    def pair(density):
        absent = density(z)
        present = (1 - rate) * absent + rate * density(z - shift)
        return np.multiply.outer(present, present), np.multiply.outer(absent, absent)

    real = hockey_stick(*pair(lambda x: ended_density(x, NEAR)), epsilon, cell)
    ideal = hockey_stick(*pair(stats.norm.pdf), epsilon, cell)
    charge = noise_edge.cost(rate, 1 / shift, 1, 0.0)
    factor = (1 - np.exp(-(NEAR**2) / 2)) ** -2
    assert ideal * factor < real <= ideal * factor + 2 * charge


def test_no_spreading_of_a_shift_over_coordinates_escapes_the_bound():
    """Random splits of a shift, even and uneven ones among them."""
    rng = np.random.default_rng(1)
    for shift, count in itertools.product((0.3, 1.0, 2.0), (1, 7, 1000, 30_000)):
        bound = noise_edge.escape_bound(shift, count)
        splits = [np.ones(count), np.eye(1, count)[0]]
        splits += [rng.pareto(power, count) for power in (0.3, 1.0, 3.0)]
        worst = 0.0
        for split in splits:
            parts = split * shift / np.linalg.norm(split)
            worst = max(worst, noise_edge.escape_probability(parts[parts > 0]).sum())
        assert worst <= bound <= 3 * worst


def test_the_charge_is_at_least_the_mass_beyond_the_end():
    """What only a present record can cause is the least that must be paid."""
    for sigma, rate in itertools.product((0.4, 0.5, 1.0, 2.0), (0.002, 0.06, 1.0)):
        beyond = rate * stats.norm.sf(LARGEST_NOISE - 1 / sigma)
        charge = noise_edge.cost(rate, sigma, 600_000, 1e-5)
        assert beyond < charge < 1e-6
    assert noise_edge.cost(0.01, 1.0, 0, 1e-5) == 0  # noise without an end
    assert noise_edge.cost(0.01, 0.1, 10, 1e-5) == 0.01 / 0.99 + 10 * 2.0**-40 * 1e-5
    assert noise_edge.escape_bound(1.0, 2**40) == 1


@pytest.mark.parametrize("name", ["pld", "rdp"])
def test_every_step_is_charged_to_delta(name):
    accountant = all_accountants()[name]
    step = Release(0.01, 0.4, 60)
    exact = Mechanism(step, 1e-5)
    generated = Mechanism(step, 1e-5, coordinates=600_000)
    per_step = noise_edge.cost(0.01, 0.4, 600_000, 1e-5)
    assert generated.failure_probability == per_step > 6e-9
    five = np.array([5])
    smaller = Mechanism(step, 1e-5 - 5 * 60 * per_step)
    spent = accountant.epsilon(generated, five)
    np.testing.assert_allclose(spent, accountant.epsilon(smaller, five), rtol=1e-12)
    assert spent > accountant.epsilon(exact, five)
    groups = client_groups(
        [1000],
        batch_size=10,
        noise_multiplier=0.4,
        steps=60,
        delta=1e-5,
        coordinates=600_000,
    )
    assert groups.mechanisms == (generated,)
