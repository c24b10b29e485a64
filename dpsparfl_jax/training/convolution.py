"""Convolutions that are fast with one kernel, and with a kernel for every client.

With one kernel the library's own convolution is fastest on accelerators, and kernels of
our own (`cpu_kernels`) on most CPUs. Under a vmap over clients it would turn into a
grouped convolution, which is slow; there, windows of the input times the kernel stay
matrix products. Which of them is run is decided here, by the platform and by whether
the kernel has an axis of clients, and the results are equal up to rounding.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from dpsparfl_jax.training import cpu_kernels

# Accelerators round the inputs of a default matrix product to 10 bits or fewer. A norm
# and the sum it bounds must not be rounded apart, so these products are full float32.
EXACT = jax.lax.Precision.HIGHEST


Convolution = Callable[[jax.Array, jax.Array], jax.Array]  # of images and a kernel


class Geometry(NamedTuple):
    """How a plain convolution (no groups, no dilation) moves over its input."""

    kernel_size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]  # before and after, for every axis of space


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["x"], meta_fields=["geometry"]
)
class ConvInput:
    """What a convolution works on: its input, and its geometry, which is no array."""

    def __init__(self, x: Any, geometry: Geometry) -> None:
        """Shapes: x [..., *space, C]."""
        self.x, self.geometry = x, geometry


def as_tuple(value: Any, length: int) -> tuple[int, ...]:
    """A convolution's setting for every axis of space; None means 1."""
    if value is None:
        return (1,) * length
    return (int(value),) * length if isinstance(value, int) else tuple(value)


def geometry_of(module: nn.Conv, space: tuple[int, ...]) -> Geometry:
    """Geometry of a plain Flax convolution on an input of this size."""
    kernel_size = as_tuple(module.kernel_size, 1)
    strides = as_tuple(module.strides, len(kernel_size))
    padding: Any = module.padding
    if isinstance(padding, str):
        padding = jax.lax.padtype_to_pads(space, kernel_size, strides, padding)
    elif isinstance(padding, int):
        padding = [padding] * len(kernel_size)
    pairs = tuple((p, p) if isinstance(p, int) else (p[0], p[1]) for p in padding)
    return Geometry(kernel_size, strides, pairs)


@jax.named_scope("windows")
def row_windows(x: jax.Array, geometry: Geometry) -> jax.Array:
    """All windows of x, one row of each at a time: rows of windows come first.

    The first axis of space gives whole blocks of memory, copied as they are; only the
    others are gathered, one axis at a time, offset-major and channel-minor.
    Shapes: [B, *space, C] -> [B, K, *out_space, F], K the kernel's first size and F the
    product of its other sizes and C.
    """
    x = jnp.pad(x, ((0, 0), *geometry.padding, (0, 0)))
    for axis in reversed(range(2, len(geometry.kernel_size) + 1)):
        x = jnp.concatenate(_shifted(x, geometry, axis), axis=-1)
    return jnp.stack(_shifted(x, geometry, 1), axis=1)


def _shifted(x: jax.Array, geometry: Geometry, axis: int) -> list[jax.Array]:
    """The input as each place of the kernel along one axis sees it."""
    kernel, stride = geometry.kernel_size[axis - 1], geometry.strides[axis - 1]
    span = (x.shape[axis] - kernel) // stride * stride + 1
    return [
        jax.lax.slice_in_dim(x, start, start + span, stride, axis)
        for start in range(kernel)
    ]


def convolve(x: jax.Array, kernel: jax.Array, geometry: Geometry) -> jax.Array:
    """The convolution: [B, *space, C], [*kernel_size, C, O] -> [B, *out_space, O]."""
    own = cpu_kernels.can_convolve(kernel.shape, geometry.strides)
    return _convolution(geometry, x.shape[1:], own)(x, kernel)


def kernel_gradients(x: jax.Array, d: jax.Array, geometry: Geometry) -> jax.Array:
    """The gradient of a convolution's kernel for every example of a batch.

    Shapes: x [B, *space, C], d [B, *out_space, O] -> [B, *kernel_size, C, O].
    """
    windows = row_windows(x, geometry)
    rows = windows.reshape(*windows.shape[:2], -1, windows.shape[-1])
    positions = d.reshape(d.shape[0], -1, d.shape[-1])
    kernels = jnp.einsum("bkpi,bpo->bkio", rows, positions, precision=EXACT)
    return kernels.reshape(-1, *geometry.kernel_size, x.shape[-1], d.shape[-1])


@functools.cache
def _convolution(
    geometry: Geometry, image_shape: tuple[int, ...], own_kernels: bool
) -> Convolution:
    """`convolve` for images [*space, C], with rules for gradients and for clients."""
    layout = _channels_last(len(geometry.kernel_size))
    before = tuple(first for first, _ in geometry.padding)
    out_space = _out_space(geometry, image_shape)

    def native(x: jax.Array, kernel: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(
            x, kernel, geometry.strides, geometry.padding, dimension_numbers=layout
        )

    def own(x: jax.Array, kernel: jax.Array) -> jax.Array:
        return cpu_kernels.convolve(x, kernel, out_space, before)

    def own_back(cotangent: jax.Array, kernel: jax.Array) -> jax.Array:
        after = tuple(
            size - 1 - first
            for size, first in zip(geometry.kernel_size, before, strict=True)
        )
        space = image_shape[:-1]
        return cpu_kernels.convolve(cotangent, kernel, space, after, turned=True)

    def by_windows(x: jax.Array, kernel: jax.Array) -> jax.Array:
        windows = row_windows(x, geometry)
        rows = kernel.reshape(kernel.shape[0], -1, kernel.shape[-1])
        products = [windows[:, k] @ rows[k] for k in range(rows.shape[0])]
        return functools.reduce(jnp.add, products)

    def native_back(cotangent: jax.Array, kernel: jax.Array) -> jax.Array:
        if set(geometry.strides) != {1}:
            return transposed(native, cotangent, kernel)
        # An ordinary convolution with the kernel turned round: written out, because
        # XLA's own transpose asks for a layout that its fast CPU kernels do not take.
        space = tuple(range(len(geometry.kernel_size)))
        turned = jnp.swapaxes(jnp.flip(kernel, space), -1, -2)
        margins = tuple(
            (size - 1 - before, size - 1 - after)
            for size, (before, after) in zip(
                geometry.kernel_size, geometry.padding, strict=True
            )
        )
        return jax.lax.conv_general_dilated(
            cotangent,
            jax.lax.optimization_barrier(turned),
            geometry.strides,
            margins,
            dimension_numbers=layout,
        )

    def transposed(
        forward: Convolution,
        cotangent: jax.Array,
        kernel: jax.Array,
    ) -> jax.Array:
        image = jax.ShapeDtypeStruct((len(cotangent), *image_shape), cotangent.dtype)
        transpose = jax.linear_transpose(lambda x: forward(x, kernel), image)
        return transpose(cotangent)[0]

    def on_platform(fast: Convolution, library: Convolution) -> Convolution:
        if not own_kernels:
            return library
        return functools.partial(jax.lax.platform_dependent, cpu=fast, default=library)

    output = _for_any_kernel(on_platform(own, native), by_windows)
    input_cotangent = _for_any_kernel(
        on_platform(own_back, native_back), functools.partial(transposed, by_windows)
    )

    @jax.custom_vjp
    def convolution(x: jax.Array, kernel: jax.Array) -> jax.Array:
        return output(x, kernel)

    def forward(x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, Any]:
        return output(x, kernel), (x, kernel)

    def backward(saved: Any, cotangent: jax.Array) -> tuple[jax.Array, jax.Array]:
        x, kernel = saved
        _, of_kernel = jax.vjp(lambda k: native(x, k), kernel)
        return input_cotangent(cotangent, kernel), of_kernel(cotangent)[0]

    convolution.defvjp(forward, backward)
    return convolution


def _out_space(geometry: Geometry, image_shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(
        (size + before + after - kernel) // stride + 1
        for size, (before, after), kernel, stride in zip(
            image_shape[:-1],
            geometry.padding,
            geometry.kernel_size,
            geometry.strides,
            strict=True,
        )
    )


def _channels_last(rank: int) -> jax.lax.ConvDimensionNumbers:
    """Images [B, *space, C] and kernels [*kernel_size, C, O]."""
    images = (0, rank + 1, *range(1, rank + 1))
    return jax.lax.ConvDimensionNumbers(images, (rank + 1, rank, *range(rank)), images)


def _for_any_kernel(one_kernel: Convolution, many_kernels: Convolution) -> Convolution:
    """A function of (batch [B, ...], kernel) that is told apart under vmap.

    An axis over batches alone joins the axis B; one over kernels too is left to
    `many_kernels`.
    """

    @custom_vmap
    def function(batch: jax.Array, kernel: jax.Array) -> jax.Array:
        return one_kernel(batch, kernel)

    @function.def_vmap
    def rule(
        size: int, batched: Any, batch: jax.Array, kernel: jax.Array
    ) -> tuple[jax.Array, bool]:
        axes = tuple(0 if is_batched else None for is_batched in batched)
        if batched[1]:
            return jax.vmap(many_kernels, axes)(batch, kernel), True
        joined = batch.reshape(math.prod(batch.shape[:2]), *batch.shape[2:])
        result = function(joined, kernel)
        return result.reshape(*batch.shape[:2], *result.shape[1:]), True

    return function
