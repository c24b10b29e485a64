"""Gaussian noise addressed by coordinate: draw j of a key does not depend on shapes.

For a simulator only: float32 samples of a 32-bit hash are not a defence against an
attacker who inspects low-order bits (Mironov 2012); do not deploy them.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpsparfl_jax import rng
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.training import cpu_kernels, threefry

# Rounds of Threefry-2x32. Twenty is the published default with a safety margin, and
# what jax.random uses; thirteen is the cheaper choice.
GENERATORS = {"threefry": 20, "threefry13": 13}

# Odd Taylor coefficients of sin(pi x / 2): accurate to 6e-8 on [-1, 1].
_SINE = [
    (-1) ** k * (math.pi / 2) ** (2 * k + 1) / math.factorial(2 * k + 1)
    for k in range(7)
]


def generator_rounds(name: str) -> int:
    """Hash rounds of a named generator."""
    if name not in GENERATORS:
        names = ", ".join(GENERATORS)
        raise InputError(f"unknown noise generator {name!r}: choose one of {names}.")
    return GENERATORS[name]


def _sine_of_quarter_turns(x: jax.Array) -> jax.Array:
    square = x * x
    value = jnp.full(x.shape, np.float32(_SINE[-1]))
    for coefficient in _SINE[-2::-1]:
        value = value * square + np.float32(coefficient)
    return value * x


@functools.partial(jax.jit, inline=True)
def words_to_normal(radius_word: jax.Array, angle_word: jax.Array) -> jax.Array:
    """Standard normal from two random words (Box-Muller, one branch).

    z = sqrt(-2 ln u) sin(pi v / 2), u uniform in (0, 1] and v uniform in [-1, 1): the
    sine of an angle on a half circle is distributed as the cosine on a full one. An
    angle needs no more than 24 bits; the other 8 of its word extend the radius, so that
    u >= 2^-40 and |z| <= 7.45. The privacy ledger charges what lies beyond.
    """
    positive = (radius_word >> np.uint32(1)).astype(jnp.int32)
    finer = (angle_word & np.uint32(0xFF)).astype(jnp.int32).astype(jnp.float32)
    u = positive.astype(jnp.float32) * np.float32(2**-31) + (
        finer * np.float32(2**-39) + np.float32(2**-rng.RADIUS_BITS)
    )
    signed = jax.lax.bitcast_convert_type(angle_word, jnp.int32) >> np.int32(8)
    v = signed.astype(jnp.float32) * np.float32(2**-23)
    return jnp.sqrt(np.float32(-2.0) * jnp.log(u)) * _sine_of_quarter_turns(v)


def standard_normal(key: jax.Array, numbers: jax.Array, rounds: int = 20) -> jax.Array:
    """The normal field of a key at these coordinate numbers (uint32)."""
    words = jax.random.key_data(key)
    return words_to_normal(*threefry.hash_counter(words, numbers, rounds))


def add_noise(
    key: jax.Array, total: Any, mask: Any, noise_std: jax.Array, rounds: int = 20
) -> Any:
    """Adds N(0, noise_std^2) to the coordinates that the mask keeps; drops the others.

    Noise goes on the sum, before any division (paper, Algorithm 1, step 4).
    """

    def everywhere(words: Any, total: Any, mask: Any, noise_std: Any) -> Any:
        def draw(numbers: jax.Array) -> jax.Array:
            hashed = threefry.hash_counter(words, numbers, rounds)
            return noise_std * words_to_normal(*hashed)

        return jax.tree.map(
            lambda leaf, kept, noise: jnp.where(kept > 0, leaf + noise, np.float32(0)),
            total,
            mask,
            threefry.map_coordinates(draw, total),
        )

    def where_kept(words: Any, total: Any, mask: Any, noise_std: Any) -> Any:
        def one(leaf: jax.Array, kept: jax.Array, first: int) -> jax.Array:
            flat = (leaf.reshape(-1), kept.reshape(-1), words, noise_std)
            noisy = cpu_kernels.add_noise(*flat, first=first, rounds=rounds)
            return noisy.reshape(leaf.shape)

        return jax.tree.map(one, total, mask, threefry.leaf_offsets(total))

    function = everywhere
    if cpu_kernels.can_add_noise(rounds):
        function = cpu_kernels.on_cpu(where_kept, everywhere)
    return function(jax.random.key_data(key), total, mask, noise_std)
