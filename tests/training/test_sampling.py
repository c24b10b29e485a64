"""Is the sampler the event that an accountant of Poisson sampling composes?

Fixed keys; a right sampler would raise a false alarm with probability below 1e-4.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpsparfl_jax.privacy import poisson
from dpsparfl_jax.training import sampling

SIZE, TABLE, STEPS = 200, 230, 5000


def draw(rate, seed=0, capacity=TABLE, steps=STEPS, size=SIZE, table=(TABLE,)):
    batches = jax.jit(
        sampling.poisson_batches,
        static_argnames=("steps", "table_lengths", "capacity"),
    )(
        jax.random.key(seed),
        jnp.uint32(poisson.probability_word(rate)),
        jnp.int32(size),
        steps=steps,
        table_lengths=table,
        capacity=capacity,
    )
    return jax.tree.map(np.asarray, batches)


def included(batches):
    """0/1 matrix [steps, TABLE] of who was drawn."""
    matrix = np.zeros((len(batches.counts), TABLE), int)
    for step, (positions, count) in enumerate(
        zip(batches.positions, batches.counts, strict=True)
    ):
        matrix[step, positions[:count]] = 1
    return matrix


def counts_pvalue(counts, rate):
    """Chi-square of batch sizes against Binomial(SIZE, rate), tails pooled."""
    values = np.arange(SIZE + 1)
    probability = stats.binom.pmf(values, SIZE, rate)
    common = values[len(counts) * probability >= 10]
    bins = np.clip(values, common[0], common[-1]) - common[0]
    expected = len(counts) * np.bincount(bins, probability)
    observed = np.bincount(bins[counts], minlength=len(common))
    return stats.chisquare(observed, expected).pvalue


@pytest.mark.parametrize("rate", [0.01, 0.04, 0.3])
def test_counts_and_inclusions_are_binomial(rate):
    batches = draw(rate)
    assert counts_pvalue(batches.counts, rate) > 1e-4
    assert counts_pvalue(batches.counts, 1.1 * rate) < 1e-4
    matrix = included(batches)
    assert (matrix[:, SIZE:] == 0).all()  # padding is never drawn
    frequency = matrix[:, :SIZE].sum(axis=0)
    spread = ((frequency - STEPS * rate) ** 2).sum() / (STEPS * rate * (1 - rate))
    assert 1e-4 < stats.chi2.sf(spread, SIZE) < 1 - 1e-4
    # Two records, and two steps, are drawn independently of each other.
    pairs = np.corrcoef(matrix[:, :40].T) - np.eye(40)
    assert abs(pairs).max() < 5.5 / STEPS**0.5
    lagged = np.corrcoef(batches.counts[1:], batches.counts[:-1])[0, 1]
    assert abs(lagged) < 4 / STEPS**0.5


def test_a_record_is_drawn_alike_whatever_the_table_is_padded_to():
    own = draw(0.04, steps=50)
    for table in ((2 * TABLE,), (SIZE, 2 * TABLE), (SIZE - 1, TABLE)):
        other = draw(0.04, steps=50, table=table)
        np.testing.assert_array_equal(own.counts, other.counts)
        for a, b, n in zip(own.positions, other.positions, own.counts, strict=True):
            np.testing.assert_array_equal(a[:n], b[:n])


def test_positions_are_distinct_and_full_rate_takes_everybody():
    batches = draw(1.0, steps=3)
    assert (batches.counts == SIZE).all()
    assert (included(batches)[:, :SIZE] == 1).all()
    for row in draw(0.3, steps=20).positions:
        assert len(set(row)) == TABLE


def test_included_examples_come_before_padding_even_with_the_largest_words(monkeypatch):
    def largest(key, counter):
        return jnp.full(counter.shape, 0xFFFFFFFF, jnp.uint32), jnp.zeros_like(counter)

    monkeypatch.setattr(sampling.threefry, "hash_counter", largest)
    batches = draw(1.0, steps=2, size=50, table=(77,))
    assert (batches.counts == 50).all()
    np.testing.assert_array_equal(batches.positions[:, :50], [range(50)] * 2)


def test_empty_batches_happen_as_often_as_they_should():
    empty = int((draw(0.01).counts == 0).sum())
    assert stats.binomtest(empty, STEPS, 0.99**SIZE).pvalue > 1e-4


def test_a_small_batch_cuts_off_at_random_and_says_how_much():
    capacity, rate = 8, 0.04
    whole, cut = draw(rate), draw(rate, capacity=capacity)
    assert cut.positions.shape == (STEPS, capacity)
    np.testing.assert_array_equal(cut.counts, np.minimum(whole.counts, capacity))
    np.testing.assert_array_equal(cut.overflow, np.maximum(whole.counts - capacity, 0))
    overflowed = int((cut.overflow > 0).sum())
    probability = float(poisson.overflow_probability(SIZE, rate, capacity))
    assert stats.binomtest(overflowed, STEPS, probability).pvalue > 1e-4
    kept = included(cut)[cut.overflow > 0][:, :SIZE].sum(axis=0)
    mean = capacity * overflowed / SIZE
    assert 1e-4 < stats.chi2.sf(((kept - mean) ** 2).sum() / mean, SIZE - 1)
