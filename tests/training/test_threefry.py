"""Is the hash the one that jax.random uses, and is it addressed by coordinate?"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsparfl_jax.training import threefry


def words(key, shape, offset=0):
    x0, x1 = threefry.hash_counter(
        jax.random.key_data(key), threefry.coordinates(shape, offset)
    )
    return np.asarray(x0 ^ x1)


def test_equals_jax_random_bit_for_bit():
    for seed in (0, 5, 2**31):
        key = jax.random.key(seed, impl="threefry2x32")
        np.testing.assert_array_equal(
            words(key, (1001,)), jax.random.bits(key, (1001,))
        )


def test_a_coordinate_does_not_depend_on_the_shape_around_it():
    key = jax.random.key(3)
    flat = words(key, (60,))
    np.testing.assert_array_equal(words(key, (3, 4, 5)).ravel(), flat)
    np.testing.assert_array_equal(words(key, (7,), offset=20), flat[20:27])
    np.testing.assert_array_equal(words(key, ()), flat[0])


def test_offsets_number_all_leaves_without_overlap():
    tree = {"b": jnp.zeros((2, 3)), "a": jnp.zeros(4), "c": jnp.zeros(())}
    assert threefry.leaf_offsets(tree) == {"a": 0, "b": 4, "c": 10}


def test_more_coordinates_than_counters_are_refused():
    with pytest.raises(ValueError, match="2\\*\\*32"):
        threefry.coordinates((10,), 2**32 - 5)
