"""Units against hand values; host streams by name."""

import jax
import numpy as np
import pytest

from dpsparfl_jax import rng, units
from dpsparfl_jax.training import keys


def test_decibels():
    assert units.dbm_to_w(30.0) == pytest.approx(1.0)
    assert units.dbm_to_w(23.0) == pytest.approx(0.1995, rel=1e-3)
    assert units.dbm_to_w(-107.0) == pytest.approx(1.995e-14, rel=1e-3)
    assert units.db_to_ratio(3.0) == pytest.approx(1.9953, rel=1e-4)
    levels = np.array([-107.0, 0.0, 23.0])
    np.testing.assert_allclose(units.w_to_dbm(units.dbm_to_w(levels)), levels)
    np.testing.assert_allclose(units.ratio_to_db(units.db_to_ratio(levels)), levels)


def test_streams_depend_on_seed_name_and_index_only():
    def draw(*arguments):
        return rng.host_stream(*arguments).random(4).tolist()

    assert draw(1, "fading", 3) == draw(1, "fading", 3)
    different = [(1, "fading", 3), (2, "fading", 3), (1, "policy", 3), (1, "fading", 4)]
    different += [(1, "fading"), (1, "fading", 0), (1, "fading", 0, 0), (0, "fading")]
    assert len({tuple(draw(*arguments)) for arguments in different}) == 8


def test_root_words_are_those_of_a_jax_key():
    seeds = [0, 7, 2**31 + 5]
    words = keys.root_key_words(seeds)
    for row, seed in zip(words, seeds, strict=True):
        key = jax.random.key(seed, impl="threefry2x32")
        np.testing.assert_array_equal(row, jax.random.key_data(key))
    assert keys.root_key_words(2**40 + 1).tolist() == [[256, 1]]


def test_keys_differ_by_round_client_and_purpose():
    root = jax.numpy.asarray(keys.root_key_words(3)[0])
    found = [keys.init_key(3), *jax.random.split(keys.init_key(3), 5)]
    for purpose in (rng.Purpose.MASK, rng.Purpose.SAMPLING, rng.Purpose.NOISE):
        for round_index in range(3):
            for client in range(3):
                numbers = jax.numpy.int32(round_index), jax.numpy.int32(client)
                found.append(keys.task_key(root, purpose, *numbers))
    data = {tuple(jax.random.key_data(key).tolist()) for key in found}
    assert len(data) == len(found) == 6 + 27
