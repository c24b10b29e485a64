"""Is the noise Gaussian at the right scale, where it should be, and independent?

Keys are fixed, so results are too. Thresholds are chosen so that a right mechanism
would fail with probability below 1e-4 under a random key, a wrong one almost surely.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.rng import LARGEST_NOISE, Purpose
from dpsparfl_jax.training import keys, local, masks, noise
from dpsparfl_jax.types import LocalResult
from tests import worlds

ALARM = 1e-4


def numbers(n):
    return np.arange(n, dtype=np.uint32)


@pytest.mark.parametrize("generator", noise.GENERATORS)
def test_normal_by_kolmogorov_smirnov_moments_and_tails(generator):
    rounds = noise.generator_rounds(generator)
    z = np.asarray(noise.standard_normal(jax.random.key(1), numbers(1_000_000), rounds))
    assert stats.kstest(z, "norm").pvalue > ALARM
    assert stats.kstest(z / 1.1, "norm").pvalue < ALARM
    assert stats.kstest(z * 1.1, "norm").pvalue < ALARM
    four = 4.0  # standard errors
    for power, mean, deviation in [
        (1, 0, 1),
        (2, 1, 2**0.5),
        (3, 0, 15**0.5),
        (4, 3, 96**0.5),
    ]:
        assert abs((z**power).mean() - mean) < four * deviation / 1000
    for limit in (3.0, 4.0, 4.5):
        expected = 1e6 * 2 * stats.norm.sf(limit)
        assert abs((abs(z) > limit).sum() - expected) < four * expected**0.5 + 1
    assert abs(z).max() <= LARGEST_NOISE * (1 + 1e-6)


def test_forty_bits_of_radius_reach_as_far_as_the_ledger_assumes():
    """Every radius is right to float rounding, down to the smallest of 2^-40."""
    radius = np.concatenate([2 ** np.arange(33.0) - 1, [12345, 2.0**31]])
    finer = np.arange(256)
    grid_radius, grid_finer = np.meshgrid(radius.astype(np.uint64), finer)
    word = grid_radius.astype(np.uint32)
    angle = grid_finer.astype(np.uint32) | np.uint32(0x80000000)  # v = -1: sine is -1
    z = np.asarray(noise.words_to_normal(word, angle))
    u = (grid_radius // 2 * 2**8 + grid_finer + 0.5) * 2.0**-39
    expected = -np.sqrt(-2 * np.log(u))
    close = u < 0.99  # float32 has few digits of 1 - u
    np.testing.assert_allclose(z[close], expected[close], rtol=3e-6)
    assert LARGEST_NOISE == pytest.approx(7.4466, abs=1e-4)
    assert abs(z).max() == pytest.approx(LARGEST_NOISE, rel=1e-6)


def test_noise_is_added_where_the_mask_keeps_and_nowhere_else():
    total = {"a": np.full((40, 50), 3.0, np.float32), "b": np.ones(7, np.float32)}
    mask = jax.tree.map(lambda leaf: (np.arange(leaf.size) % 3 == 0) * 1.0, total)
    mask = jax.tree.map(lambda m, t: m.reshape(t.shape), mask, total)
    noisy = noise.add_noise(jax.random.key(0), total, mask, jnp.float32(0.5))
    for name, kept in mask.items():
        assert (np.asarray(noisy[name])[kept == 0] == 0).all()
        moved = np.asarray(noisy[name] - total[name])[kept > 0]
        assert (moved != 0).all()
        assert 0.3 < moved.std() < 0.7


def test_bits_that_extend_the_radius_do_not_turn_the_angle():
    word = np.full(256, 0x9E3779B9, np.uint32)
    for turn in (0, 0x12345600, 0x7FFFFF00, 0x80000000):
        angle = np.arange(256, dtype=np.uint32) | np.uint32(turn)
        z = np.asarray(noise.words_to_normal(word, angle))
        assert np.ptp(z) < 1e-6 * max(1, abs(z).max())


@pytest.mark.parametrize("generator", noise.GENERATORS)
def test_fields_of_different_keys_and_neighbouring_coordinates_are_independent(
    generator,
):
    rounds, n = noise.generator_rounds(generator), 200_000
    roots = [jax.random.key(seed) for seed in range(6)]
    roots += [jax.random.fold_in(roots[0], step) for step in range(6)]
    fields = np.stack([noise.standard_normal(key, numbers(n), rounds) for key in roots])
    for values in (fields, fields**2, abs(fields) ** 0.5):
        correlation = np.corrcoef(values)
        assert abs(correlation - np.eye(12)).max() < 5 / n**0.5
        for lag in (1, 2, 7, 512):
            shifted = np.corrcoef(values[0, lag:], values[0, :-lag])[0, 1]
            assert abs(shifted) < 5 / n**0.5


@functools.cache
def trainer(steps):
    """A world and the compiled local training of one of its clients."""
    world = worlds.make_world("logistic")
    spec = worlds.make_spec(world, steps=steps)
    params = jax.tree.map(jnp.asarray, worlds.first_params(world))

    @jax.jit
    def train(records, row, root):
        mask_key = keys.task_key(root, Purpose.MASK, row.round, row.client)
        mask = masks.bernoulli_mask(mask_key, params, row.keep)
        result = local.train_client(spec, params, records, row, root, choose_size=True)
        return mask, result

    return world, train


def pure_noise(
    client=0, round_index=0, steps=1, keep_rate=0.3, seed=0, **changes
) -> tuple[np.ndarray, LocalResult]:
    """Mask and result of a client that samples nobody: its update is noise alone."""
    world, train = trainer(steps)
    rows = worlds.make_tasks(
        world,
        client=[client],
        round_index=round_index,
        keep_rate=keep_rate,
        clip_norm=2.0,
        noise_multiplier=0.7,
        learning_rate=0.5,
        batch_size=4,
    )
    row = jax.tree.map(lambda leaf: leaf[0], rows)
    row = row._replace(inclusion=np.uint32(0), **changes)
    records = jax.tree.map(jnp.asarray, worlds.records(world))
    mask, result = train(records, row, keys.root_key_words(seed)[0])
    return flatten(mask), result


def flatten(tree):
    return np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(tree)])


def test_a_clients_noise_has_the_stated_scale_on_kept_coordinates_only():
    kept, dropped = [], []
    for client in range(6):
        for round_index in range(20):
            mask, result = pure_noise(client, round_index)
            update = flatten(result.update)
            assert int(result.diagnostics.examples) == 0  # an empty batch is legal
            kept.append(update[mask > 0])
            dropped.append(update[mask == 0])
    z = np.concatenate(kept)
    scale = 0.5 / 4 * 0.7 * np.sqrt(0.3) * 2.0  # rate / b * sigma * sqrt(s) * C
    assert z.size > 20_000
    assert stats.kstest(z / scale, "norm").pvalue > ALARM
    assert stats.kstest(z / (1.1 * scale), "norm").pvalue < ALARM
    assert stats.kstest(z / (0.9 * scale), "norm").pvalue < ALARM
    assert (np.concatenate(dropped) == 0).all()


def test_noise_is_independent_across_steps_clients_rounds_and_seeds():
    def update(**changes):
        return flatten(pure_noise(keep_rate=1.0, **changes)[1].update)

    base = update()
    second_step = update(steps=2) - base
    for other in (update(client=1), update(round_index=1), update(seed=1), second_step):
        assert abs(np.corrcoef(base, other)[0, 1]) < 4 / base.size**0.5
        assert abs(other.std() / base.std() - 1) < 4 / base.size**0.5


def test_sensitivity_travels_with_the_sum_and_no_noise_means_none():
    result = pure_noise()[1]
    assert float(result.sensitivity) == pytest.approx(2.0 * 0.3**0.5)
    silent = pure_noise(noise_multiplier=np.float32(0), clip_bound=np.float32(np.inf))[
        1
    ]
    assert (flatten(silent.update) == 0).all()
    assert np.isinf(silent.diagnostics.gradient_to_noise)


def test_unknown_generator_is_refused():
    with pytest.raises(InputError, match="unknown noise generator 'mersenne'"):
        noise.generator_rounds("mersenne")
