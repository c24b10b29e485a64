"""Does a mask keep what it should, and exactly as much as it says?"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy import poisson
from dpsparfl_jax.sparsifiers import make_sparsifier
from dpsparfl_jax.training import masks

TEMPLATE = {"a": jnp.zeros((301, 37)), "b": jnp.zeros(211), "c": jnp.zeros(())}
SIZE = 301 * 37 + 211 + 1


@functools.partial(jax.jit, static_argnums=0)
def draw(kind, key, keep):
    return make_sparsifier(kind).draw(key, TEMPLATE, keep)


def flat_mask(kind, seed, keep_rate):
    tree = draw(kind, jax.random.key(seed), poisson.probability_word(keep_rate))
    return np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(tree)])


@pytest.mark.parametrize("kind", ["bernoulli", "fixed_count"])
def test_values_shapes_and_full_rate(kind):
    tree = draw(kind, jax.random.key(0), poisson.probability_word(0.4))
    assert jax.tree.map(jnp.shape, tree) == jax.tree.map(jnp.shape, TEMPLATE)
    assert set(np.unique(flat_mask(kind, 0, 0.4))) == {0.0, 1.0}
    assert (flat_mask(kind, 0, 1.0) == 1).all()
    assert (flat_mask(kind, 0, 0.4) != flat_mask(kind, 1, 0.4)).any()


@pytest.mark.parametrize("keep_rate", [0.05, 0.3, 0.9])
def test_bernoulli_counts_and_coordinates(keep_rate):
    draws = np.stack([flat_mask("bernoulli", seed, keep_rate) for seed in range(200)])
    total = stats.binomtest(int(draws.sum()), draws.size, keep_rate)
    assert total.pvalue > 1e-4
    wrong = stats.binomtest(int(draws.sum()), draws.size, keep_rate * 1.01)
    assert wrong.pvalue < 1e-4
    counts = draws.sum(axis=1)  # variance of a binomial, not of a fixed count
    ratio = counts.var() / (SIZE * keep_rate * (1 - keep_rate))
    assert 0.6 < ratio < 1.5
    per_coordinate = stats.binom.cdf(draws.sum(axis=0), 200, keep_rate)
    assert 0.45 < per_coordinate.mean() < 0.56
    assert abs(np.corrcoef(draws[0], draws[1])[0, 1]) < 5 / SIZE**0.5


@pytest.mark.parametrize("keep_rate", [0.0001, 0.05, 0.3, 0.5, 0.999])
def test_fixed_count_is_exact_and_uniform(keep_rate):
    draws = np.stack([flat_mask("fixed_count", s, keep_rate) for s in range(40)])
    wanted = max(1, int(keep_rate * SIZE + 0.5))
    assert (draws.sum(axis=1) == wanted).all()
    halves = draws[:, : SIZE // 2].sum()
    low, high = stats.hypergeom.interval(
        0.9999, 40 * SIZE, 40 * wanted, 40 * (SIZE // 2)
    )
    assert low <= halves <= high


def test_fixed_count_splits_ties(monkeypatch):
    def all_equal(key, template):
        return jax.tree.map(lambda leaf: jnp.full(leaf.shape, np.uint32(7)), template)

    monkeypatch.setattr(masks, "_coordinate_words", all_equal)
    keep = jnp.asarray(poisson.probability_word(0.25))
    mask = masks.fixed_count_mask(jax.random.key(0), TEMPLATE, keep)
    kept = sum(float(leaf.sum()) for leaf in jax.tree.leaves(mask))
    assert kept == round(0.25 * SIZE)


@pytest.mark.parametrize("size", [1, 650, 930_826, 1_663_370, 2**24 + 1, 2**31 - 1])
def test_the_count_is_exact_for_any_size(size):
    rates = np.append(np.arange(1, 1000) / 1000, 1.0)
    words = poisson.probability_word(rates)
    got = masks._share(jnp.asarray(words), size)
    exact = [((int(w) + 1) * size + 2**31) >> 32 for w in words]
    np.testing.assert_array_equal(got, exact)
    assert got[-1] == size
    assert abs(np.asarray(got) - rates * size).max() <= 1.0


def test_unknown_kind_is_refused():
    with pytest.raises(InputError, match="unknown sparsifier 'topk'"):
        make_sparsifier("topk")
