"""Windows of a convolution's input, so that it becomes a matrix product.

A convolution with one kernel per client would turn into a grouped convolution, which is
slow on CPU; patches times a matrix stay matrix products.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp


def as_tuple(value: Any, length: int) -> tuple[int, ...]:
    """A convolution's setting for every axis of space; None means 1."""
    if value is None:
        return (1,) * length
    return (int(value),) * length if isinstance(value, int) else tuple(value)


def conv_patches(module: nn.Conv, x: jax.Array) -> jax.Array:
    """Patches of a plain convolution's input (no groups, no dilation).

    Shapes: [B, *space, C] -> [B, *out_space, prod(kernel_size) * C].
    """
    kernel_size = as_tuple(module.kernel_size, 1)
    rank = len(kernel_size)
    strides = as_tuple(module.strides, rank)
    padding: Any = module.padding
    if isinstance(padding, str):
        padding = jax.lax.padtype_to_pads(x.shape[1:-1], kernel_size, strides, padding)
    elif isinstance(padding, int):
        padding = [padding] * rank
    pairs = tuple((p, p) if isinstance(p, int) else (p[0], p[1]) for p in padding)
    return extract_patches(x, kernel_size, strides, pairs)


def extract_patches(
    x: jax.Array,
    kernel_size: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
) -> jax.Array:
    """All windows of x, offset-major and channel-minor on the last axis.

    One axis at a time: 5 + 5 slices for a 5x5 kernel instead of 25, which is what XLA
    fuses well forwards and, above all, backwards.
    Shapes: [B, *space, C] -> [B, *out_space, prod(kernel_size) * C].
    """
    x = jnp.pad(x, ((0, 0), *padding, (0, 0)))
    for axis in reversed(range(1, len(kernel_size) + 1)):
        kernel, stride = kernel_size[axis - 1], strides[axis - 1]
        span = (x.shape[axis] - kernel) // stride * stride + 1
        windows = [
            jax.lax.slice_in_dim(x, start, start + span, stride, axis)
            for start in range(kernel)
        ]
        x = jnp.concatenate(windows, axis=-1)
    return x
