"""Is the clip norm what it says, and is its private choice really private?"""

import numpy as np
import pytest
from scipy import stats

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy import clip_norm
from dpsparfl_jax.privacy.clip_norm import QuantileQuery
from dpsparfl_jax.privacy.mechanism import Release


def test_the_median_says_that_it_is_not_private():
    chosen = clip_norm.median_clip_norm([1.0, 5.0, 3.0])
    assert chosen.value == 3
    assert not chosen.private
    assert "NOT private" in chosen.statement
    public = clip_norm.median_clip_norm([1.0, 5.0, 3.0], public=True)
    assert public.private
    assert "public" in public.statement


@pytest.mark.parametrize(
    ("norms", "message"),
    [([], "non-empty"), ([1.0, np.nan], "not finite"), ([0.0, 0.0], "not positive")],
)
def test_bad_norms_are_refused(norms, message):
    with pytest.raises(InputError, match=message):
        clip_norm.median_clip_norm(norms)


def clients(rng, count=20, size=1000, median=12.0):
    return [median * np.exp(rng.normal(0, 0.6, size)) for _ in range(count)]


@pytest.mark.parametrize("quantile", [0.25, 0.5, 0.9])
@pytest.mark.parametrize("first", [0.5, 60.0])
def test_the_private_quantile_is_near_the_true_one(quantile, first):
    """20,000 records: each round's fraction has a standard deviation of 0.025."""
    norms = clients(np.random.default_rng(0))
    query = QuantileQuery(quantile=quantile, start=first)
    chosen, path = clip_norm.private_clip_norm(norms, query, seed=1)
    reached = np.mean(np.concatenate(norms) <= chosen.value)
    assert abs(reached - quantile) < 0.06
    assert chosen.private
    assert len(path) == query.rounds
    assert query.release == Release(0.1, 20.0, 40)


def first_move(norms, seed, **changes):
    """The noisy count of one round, read back from how log C moved."""
    query = QuantileQuery(rounds=1, start=1.0, learning_rate=0.01, **changes)
    _, path = clip_norm.private_clip_norm([norms], query, seed)
    fraction = query.quantile - np.log(path[0]) / query.learning_rate
    return (fraction - 0.5) * query.sampling_rate * len(norms)


def test_the_noise_is_that_of_the_release():
    """KS at the claimed scale passes (false alarm 1e-3), 10% off on either side fails.

    All records are sampled and half of them lie below C, so the count is noise alone.
    """
    norms = np.repeat([0.5, 2.0], 50)
    counts = [
        first_move(norms, seed, sampling_rate=1.0, noise_multiplier=8.0)
        for seed in range(6000)
    ]
    scale = 8.0 / 2  # noise multiplier times the sensitivity of 1/2
    assert stats.kstest(counts, stats.norm(scale=scale).cdf).pvalue > 1e-3
    for wrong in (0.9, 1.1):
        assert stats.kstest(counts, stats.norm(scale=scale * wrong).cdf).pvalue < 1e-3


def test_one_record_moves_the_count_by_a_half():
    """Against a null record, which is not there; next to no noise is added."""
    many = np.full(99, 0.5)
    settings = {"sampling_rate": 1.0, "noise_multiplier": 1e-9}
    null = first_move(many, 0, **settings)
    below, above, broken = (
        first_move(np.append(many, norm), 0, **settings) for norm in (0.5, 2.0, np.nan)
    )
    assert null == pytest.approx(99 / 2)
    assert below == pytest.approx(null + 1 / 2)
    assert above == pytest.approx(null - 1 / 2)
    assert broken == pytest.approx(above)


def test_records_are_sampled_at_the_rate():
    """Mean and variance of the count are those of Poisson sampling, within 6 sigma.

    240 records below C and 160 above, q = 0.1: mean 4, variance 400 q (1-q) / 4 = 9.
    A rate 10% off moves the mean by 0.4, the tolerance is 0.23.
    """
    norms = np.repeat([0.5, 2.0], [240, 160])
    counts = np.array(
        [
            first_move(norms, seed, sampling_rate=0.1, noise_multiplier=1e-9)
            for seed in range(6000)
        ]
    )
    assert abs(counts.mean() - 4) < 6 * np.sqrt(9 / 6000)
    assert abs(counts.var() / 9 - 1) < 6 * np.sqrt(2 / 6000)


def test_a_query_that_would_drown_in_noise_is_refused():
    with pytest.raises(InputError, match="too few against noise"):
        clip_norm.private_clip_norm([np.ones(10)] * 3, QuantileQuery(), 0)


def test_the_quantile_stays_within_reach_of_its_start():
    query = QuantileQuery(rounds=400, start=2.0)
    chosen, path = clip_norm.private_clip_norm([np.zeros(1000)] * 5, query, 0)
    assert chosen.value == pytest.approx(2e-6, rel=1e-6)
    assert np.all(path >= 2e-6 * (1 - 1e-9))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quantile": 1.0}, "quantile must lie"),
        ({"start": 0.0}, "positive start"),
        ({"noise_multiplier": 0.0}, "epsilon is infinite"),
        ({"sampling_rate": 1.5}, "sampling rate"),
        ({"rounds": 0}, "at least one step"),
    ],
)
def test_bad_queries_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        QuantileQuery(**changes)


def test_somebody_must_answer():
    with pytest.raises(InputError, match="no client answers"):
        clip_norm.private_clip_norm([], QuantileQuery(), 0)
