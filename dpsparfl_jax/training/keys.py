"""Device keys folded from (seed, round, client, purpose)."""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsparfl_jax.rng import Purpose

# Masks and noise hash coordinates with Threefry-2x32 themselves (see `threefry.py`), so
# the key implementation is fixed rather than taken from the user's JAX settings.
_IMPLEMENTATION = "threefry2x32"


def root_key_words(seeds: ArrayLike) -> NDArray[np.uint32]:
    """Root keys of runs as plain words (seed >> 32, seed), `[R, 2]`, made on the host.

    For seeds below 2^32 this is what `jax.random.key(seed)` holds.
    """
    seeds = np.atleast_1d(np.asarray(seeds, np.uint64))
    low = seeds & np.uint64(0xFFFFFFFF)
    return np.stack([seeds >> np.uint64(32), low], axis=-1).astype(np.uint32)


def purpose_key(root: jax.Array, purpose: Purpose) -> jax.Array:
    """Key of one use within a run, from the words of its root key `[2]`."""
    key = jax.random.wrap_key_data(root, impl=_IMPLEMENTATION)
    return jax.random.fold_in(key, np.uint32(purpose))


def task_key(
    root: jax.Array, purpose: Purpose, round_index: jax.Array, client: jax.Array
) -> jax.Array:
    """Key of one use within one task; uses branch off before rounds and clients."""
    key = jax.random.fold_in(purpose_key(root, purpose), round_index.astype(jnp.uint32))
    return jax.random.fold_in(key, client.astype(jnp.uint32))


def init_key(seed: int) -> jax.Array:
    """Key that initialises the model of the run with this seed."""
    return purpose_key(jnp.asarray(root_key_words(seed)[0]), Purpose.MODEL_INIT)
