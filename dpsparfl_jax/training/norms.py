"""Norms of single records' gradients."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpsparfl_jax.training import clipping, cpu_kernels
from dpsparfl_jax.training.local import (
    check_images,
    check_pixel_statistics,
    normalise,
)
from dpsparfl_jax.types import ImageSet, Params

GradientNorms = Callable[[Params, ImageSet], jax.Array]


def make_gradient_norms(
    model: nn.Module,
    params: Params,
    image_shape: tuple[int, ...],
    *,
    pixel_mean: tuple[float, ...] = (0.5,),
    pixel_std: tuple[float, ...] = (0.5,),
    method: str = "ghost",
    kernels: str = "auto",
    batch_size: int = 50,
) -> GradientNorms:
    """Compiled `(params, images) -> [n]`: unmasked norms before any clipping.

    They are raw facts about records: not private, whatever is done to them later.
    """
    check_pixel_statistics(pixel_mean, pixel_std, image_shape[-1])
    clipped_sum = cpu_kernels.choosing(
        kernels, clipping.make_clipped_sum(model, params, image_shape, method)
    )

    @jax.jit
    def gradient_norms(params: Params, everything: Params, data: ImageSet) -> jax.Array:
        check_images(data, image_shape)
        total = data.labels.shape[0]

        def one_batch(start: jax.Array) -> jax.Array:
            rows = start + jnp.arange(batch_size)
            real = rows < total
            rows = jnp.minimum(rows, total - 1)
            images = normalise(data.images[rows], pixel_mean, pixel_std)
            # Only the norms are used: the compiler drops the sum.
            return clipped_sum(
                params, everything, images, data.labels[rows], real, jnp.float32(1)
            ).norms

        norms = jax.lax.map(one_batch, jnp.arange(0, total, batch_size))
        return norms.reshape(-1)[:total]

    # Ones are an argument, no constant: XLA's product of a large matrix with constant
    # ones reads memory that nobody wrote (JAX 0.10.2 on a CPU).
    ones = jax.jit(lambda params: jax.tree.map(jnp.ones_like, params))
    return lambda params, data: gradient_norms(params, ones(params), data)
