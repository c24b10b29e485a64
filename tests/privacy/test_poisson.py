"""Is the size of a padded batch what it claims, and is no probability exceeded?"""

import itertools

import numpy as np
import pytest
from scipy import stats

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy import poisson


@pytest.mark.parametrize(
    ("batch", "capacity"),
    [(2, 16), (4, 22), (8, 32), (10, 36), (16, 47), (24, 61), (32, 73)],
)
def test_capacity_for_12000_steps_at_one_in_a_million(batch, capacity):
    got = poisson.batch_capacity([1000], [batch / 1000], 1e-6 / 12_000)
    assert got == capacity
    assert poisson.overflow_probability(1000, batch / 1000, got) <= 1e-6 / 12_000
    assert poisson.overflow_probability(1000, batch / 1000, got - 1) > 1e-6 / 12_000


def test_capacity_serves_every_client_and_no_more_than_all_examples():
    sizes, rates = np.array([300, 2100]), np.array([10 / 300, 10 / 2100])
    got = poisson.batch_capacity(sizes, rates, 1e-9)
    assert (poisson.overflow_probability(sizes, rates, got) <= 1e-9).all()
    assert poisson.batch_capacity([12], [1.0], 1e-9) == 12
    assert poisson.overflow_probability(12, 1.0, 12) == 0
    for bad in (0.0, 1.0):
        with pytest.raises(InputError, match="overflow probability"):
            poisson.batch_capacity([12], [0.5], bad)


def expected_size(sizes, size, rate, capacity):
    n = np.arange(capacity + 1)
    padded = np.array([min(s for s in sizes if s >= k) for k in n])
    return (stats.binom.pmf(n, size, rate) * padded).sum()


@pytest.mark.parametrize("choices", [1, 2, 3])
def test_padded_sizes_waste_least(choices):
    size, rate, capacity = 100, 0.08, 21
    got = poisson.padded_sizes(size, rate, capacity, choices)
    best = min(
        expected_size((*rest, 21), size, rate, capacity)
        for rest in itertools.combinations(range(1, 21), choices - 1)
    )
    assert got[-1] == capacity
    assert len(got) == choices
    assert expected_size(got, size, rate, capacity) == pytest.approx(best)


def test_padded_sizes_of_a_tiny_batch():
    assert poisson.padded_sizes(10, 0.1, 1, 6) == (1,)
    assert poisson.padded_sizes(10, 0.1, 3, 6) == (1, 2, 3)


def test_padded_sizes_of_a_large_batch_are_found_among_some():
    sizes = poisson.padded_sizes(10_000, 0.1, 1300, 8)
    assert len(sizes) == 8
    assert sizes[-1] == 1300
    assert expected_size(sizes, 10_000, 0.1, 1300) < 1.02 * 1000


def test_a_probability_is_never_exceeded():
    rates = np.array([2**-32, 0.001, 1 / 3, 0.5, 0.999999, 1.0])
    words = poisson.probability_word(rates).astype(np.float64)
    effective = (words + 1) / 2**32
    assert (effective <= rates).all()
    assert (rates - effective < 2**-32).all()
    assert words[-1] == 2**32 - 1
    for bad in (1e-12, 0.0, 1.5):
        with pytest.raises(InputError, match=r"between 2\^-32 and 1"):
            poisson.probability_word(bad)


def test_sampling_rate_bounds():
    np.testing.assert_allclose(poisson.sampling_rate(8, [1000, 16]), [0.008, 0.5])
    with pytest.raises(InputError, match="exceeds the smallest client's 7 examples"):
        poisson.sampling_rate(8, [1000, 7])
    with pytest.raises(InputError, match="must be positive"):
        poisson.sampling_rate(0, [10])
