"""Batches, masks and the comparison of both clipping methods."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np

from dpsparfl_jax.privacy import poisson
from dpsparfl_jax.training import clipping, cpu_kernels, masks, models

_draw = jax.jit(masks.bernoulli_mask)
CLIPS = ("active", "inactive", "mixed")


def draw_mask(params, keep_rate):
    keep = jnp.asarray(poisson.probability_word(keep_rate))
    return _draw(jax.random.key(3), params, keep)


def relative_error(a, b):
    """Largest ||x - y|| / ||y|| over leaves; a leaf of zeros must be met exactly."""
    errors = []
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        size = np.linalg.norm(y.ravel()) or np.finfo(np.float32).tiny
        errors.append(np.linalg.norm((x - y).ravel()) / size)
    return max(errors)


def make_batch(shape, size=5, seed=1):
    images = jax.random.normal(jax.random.key(seed), (size, *shape))
    return images, jnp.arange(size, dtype=jnp.int32) % 10


@functools.cache
def both_methods(net, shape, kernels="xla"):
    """Initial parameters and the two compiled clipped sums of a model."""
    params = models.init_params(net, jax.random.key(0), shape)
    make = functools.partial(clipping.make_clipped_sum, net, params, shape)
    ghost = cpu_kernels.choosing(kernels, make("ghost"))
    return params, jax.jit(ghost), jax.jit(make("vmap"))


def check_agreement(net, shape, keep_rate, clip, kernels="xla"):
    """Asserts that both methods agree on a padded batch of four with this clipping.

    The textbook is computed by XLA. Kernels of our own round differently, and where a
    maximum of two nearly equal numbers turns over for it, gradients jump: networks
    with pools are compared by XLA's kernels, ours by networks without such places.
    """
    params, ghost, textbook = both_methods(net, shape, kernels)
    mask = draw_mask(params, keep_rate)
    images, labels = make_batch(shape)
    real = jnp.array([True, True, True, True, False])
    free = textbook(params, mask, images, labels, real, jnp.float32(np.inf))
    used = np.sort(np.asarray(free.norms[:4]))
    bound = {
        "active": 0.1 * used[0],
        "inactive": 2 * used[-1],
        "mixed": used[1:3].mean(),
    }
    arguments = (params, mask, images, labels, real, jnp.float32(bound[clip]))
    fast, slow = ghost(*arguments), textbook(*arguments)
    np.testing.assert_allclose(fast.norms, slow.norms, rtol=1e-5)
    np.testing.assert_allclose(fast.losses, slow.losses, rtol=1e-5)
    chex.assert_trees_all_equal(fast.finite, slow.finite)
    assert relative_error(fast.total, slow.total) < 1e-5
    expected = {"active": 4, "inactive": 0, "mixed": 2}[clip]
    assert int((slow.norms[:4] > bound[clip]).sum()) == expected
