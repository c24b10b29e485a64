"""Budgets, participation rates, and what bad ones are answered."""

import numpy as np
import pytest

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy import budgets
from dpsparfl_jax.privacy.accountants import make_accountant
from dpsparfl_jax.privacy.mechanism import Mechanism, Release, client_groups


def test_drawn_budgets_are_uniform_and_reproducible():
    drawn = budgets.draw_budgets(3, 20_000, 2.0, 10.0)
    np.testing.assert_array_equal(drawn, budgets.draw_budgets(3, 20_000, 2.0, 10.0))
    assert not np.array_equal(drawn, budgets.draw_budgets(4, 20_000, 2.0, 10.0))
    assert drawn.min() >= 2
    assert drawn.max() <= 10
    # Mean of 20,000 uniforms: standard deviation 0.016; 6 of them is 2e-9.
    assert abs(drawn.mean() - 6) < 0.1
    assert np.all(budgets.draw_budgets(3, 5, 4.0, 4.0) == 4)
    np.testing.assert_array_equal(drawn[:7], budgets.draw_budgets(3, 7, 2.0, 10.0))


@pytest.mark.parametrize(("low", "high"), [(5, 2), (0, 2), (-1, 2), (2, np.inf)])
def test_an_empty_range_is_refused(low, high):
    with pytest.raises(InputError, match="budgets are drawn between"):
        budgets.draw_budgets(0, 3, low, high)


def test_given_budgets_must_fit_the_clients():
    assert list(budgets.given_budgets([1, 2.5], 2)) == [1, 2.5]
    with pytest.raises(InputError, match="2 epsilons are given for 3 clients"):
        budgets.given_budgets([1, 2], 3)
    with pytest.raises(InputError, match="positive and finite"):
        budgets.given_budgets([1, 0], 2)
    with pytest.raises(InputError, match="separated by commas"):
        budgets.parse_budgets("2;5")
    assert budgets.parse_budgets("2, 5,10") == (2, 5, 10)


def test_at_the_rates_all_budgets_end_in_the_same_round():
    counts = np.array([3, 17, 19, 48, 60, 0])
    rates = budgets.participation_rates(counts, 2)
    assert rates.sum() == pytest.approx(2)
    ends = counts[:5] / rates[:5]
    np.testing.assert_allclose(ends, counts.sum() / 2)
    assert rates[5] == 0


def test_rates_example():
    """Twenty clients on five channels, from an independent calculation."""
    counts = [3, 17, 19, 21, 23, 23, 36, 39, 42, 48, 56, 56]
    counts += [74, 77, 77, 80, 87, 90, 103, 104]
    rates = budgets.participation_rates(counts, 5)
    shown = [0.014, 0.079, 0.088, 0.098, 0.107, 0.107, 0.167, 0.181, 0.195, 0.223]
    shown += [0.260, 0.260, 0.344, 0.358, 0.358, 0.372, 0.405, 0.419, 0.479, 0.484]
    np.testing.assert_allclose(rates, shown, atol=6e-4)


def test_spread_budgets_stand_for_drawn_ones():
    even = budgets.spread_budgets(2, 10, 40)
    drawn = np.sort(budgets.draw_budgets(3, 40_000, 2, 10)).reshape(40, -1)
    np.testing.assert_allclose(even, drawn.mean(axis=1), atol=0.1)
    assert list(budgets.spread_budgets(3, 3, 2)) == [3, 3]


@pytest.mark.parametrize(("low", "high"), [(0, 1), (2, 1), (1, np.inf)])
def test_a_range_of_budgets_that_is_none_is_refused(low, high):
    with pytest.raises(InputError, match="from a positive one to a larger one"):
        budgets.spread_budgets(low, high, 4)


def test_rates_are_cut_at_one_and_zero_if_nobody_can():
    assert list(budgets.participation_rates([90, 10], 2)) == [1.0, 0.2]
    assert list(budgets.participation_rates([0, 0], 2)) == [0.0, 0.0]
    with pytest.raises(InputError, match="at least one channel"):
        budgets.participation_rates([1], 0)


@pytest.mark.parametrize("q", [0.0, -0.1, 1.01, float("nan")])
def test_a_sampling_rate_outside_its_range_is_refused(q):
    with pytest.raises(InputError, match=r"sampling rate .* must lie in \(0, 1\]"):
        Release(q, 1.0, 1)


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("inf"), float("nan")])
def test_no_noise_means_infinite_epsilon_and_is_refused(sigma):
    with pytest.raises(InputError, match="epsilon is infinite"):
        Release(0.1, sigma, 1)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 2.0, float("nan")])
def test_a_delta_outside_its_range_is_refused(delta):
    with pytest.raises(InputError, match="delta must lie strictly between 0 and 1"):
        Mechanism(Release(0.1, 1.0, 1), delta)


def test_other_bad_numbers_are_refused():
    with pytest.raises(InputError, match="at least one step"):
        Release(0.1, 1.0, 0)
    with pytest.raises(InputError, match="overflow probability"):
        Mechanism(Release(0.1, 1.0, 1), 1e-3, 1.0)
    with pytest.raises(InputError, match="unknown accountant 'moments'"):
        make_accountant("moments")
    for sizes in ([], [5, 0]):
        with pytest.raises(InputError, match="number of records, at least 1, of every"):
            client_groups(sizes, batch_size=1, noise_multiplier=1.0, steps=1, delta=0.1)
    with pytest.raises(InputError, match="sampling rate above 1"):
        client_groups([5], batch_size=6, noise_multiplier=1.0, steps=1, delta=0.1)
