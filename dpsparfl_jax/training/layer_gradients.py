"""Per-example gradients of one layer, known by their norms and their weighted sums.

Clipping needs two things of a layer: how long each example's masked gradient is, and
the sum of these gradients, each times its clip factor. Some layers give both without
forming a gradient for one example; `formed` serves all others.
"""

import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpsparfl_jax.training import cpu_kernels
from dpsparfl_jax.training.convolution import (
    EXACT,
    ConvInput,
    Geometry,
    kernel_gradients,
)
from dpsparfl_jax.training.norm_errors import TINY, sum_of_squares

_ZERO = np.float32(0)


class LayerGradient(NamedTuple):
    """A layer's masked per-example gradients, for a batch of B examples.

    Attributes:
        squared_norms: [B] squared L2 norms over all parameters of the layer. A norm
            that is not finite marks an example that cannot be used.
        weighted_sum: Maps (factors [B], usable [B] bool) to the sum over examples of
            factor times gradient, one array per parameter, each of the parameter's own
            shape; coordinates that the mask drops need not be zero, they are dropped
            later. An unusable example must add exactly nothing even where its values
            are not finite, and 0 * nan is nan: so values are replaced by `jnp.where`,
            not multiplied away.
        lost_squares: [B] what underflow may have lost of `squared_norms`, where that is
            more than the squares of numbers too small to be squared.
    """

    squared_norms: jax.Array
    weighted_sum: Callable[[jax.Array, jax.Array], dict[str, jax.Array]]
    lost_squares: jax.Array | float = 0.0


def dot(a: jax.Array, b: jax.Array) -> jax.Array:
    """Matrix product in full float32."""
    return jnp.matmul(a, b, precision=EXACT)


def positions(x: jax.Array) -> jax.Array:
    """[B, ..., F] as [B, positions, F]."""
    return x.reshape(x.shape[0], math.prod(x.shape[1:-1]), x.shape[-1])


def formed(
    mask: Mapping[str, jax.Array], gradients: Mapping[str, jax.Array]
) -> LayerGradient:
    """Norms and weighted sums of gradients that are there, one for each example.

    Args:
        mask: The layer's 0/1 mask, {parameter: [*shape]}.
        gradients: Unmasked gradients of every example, {parameter: [B, *shape]}.

    Returns:
        Norms and sums of the masked gradients of these parameters.
    """
    flat = {name: g.reshape(g.shape[0], -1) for name, g in gradients.items()}
    # Each is one pass over the gradients; a masked copy of them is never written.
    squares = []
    for name, g in flat.items():
        masked = jnp.where(mask[name].reshape(1, -1) > 0, g * g, _ZERO)
        squares.append(sum_of_squares(masked.reshape(-1, *mask[name].shape)))

    def weighted_sum(factors: jax.Array, usable: jax.Array) -> dict[str, jax.Array]:
        return {name: _add_up(factors, usable, g) for name, g in gradients.items()}

    return LayerGradient(functools.reduce(operator.add, squares), weighted_sum)


def _add_up(factors: jax.Array, usable: jax.Array, gradients: jax.Array) -> jax.Array:
    """The sum of usable gradients, each times its factor: [B], [B], [B, *shape]."""
    flat = gradients.reshape(gradients.shape[0], -1)
    clean = jnp.where(usable[:, None], flat, _ZERO)
    return dot(factors, clean).reshape(gradients.shape[1:])


def matrix_product(
    mask: Mapping[str, jax.Array], x: jax.Array, d: jax.Array
) -> LayerGradient:
    """Gradient of x @ kernel, and of a bias added to it if the mask has one.

    Shapes: x [B, ..., in], d [B, ..., out]; kernel [..., out] and bias [out].
    """
    if _is_row(x):
        return _with_bias(_row_kernel(mask["kernel"], x, d), mask, d)
    kernels = jnp.einsum("bpi,bpo->bio", positions(x), positions(d), precision=EXACT)
    return _with_bias(formed(mask, {"kernel": kernels}), mask, d)


def convolution_kernel(
    mask: Mapping[str, jax.Array], recorded: ConvInput, d: jax.Array
) -> LayerGradient:
    """Gradient of a convolution's kernel, and of its bias if the mask has one.

    Shapes: recorded x [B, 1, *space, C], d [B, 1, *out_space, O].
    """
    x = recorded.x.reshape(recorded.x.shape[0], *recorded.x.shape[2:])
    cotangent = d.reshape(d.shape[0], *d.shape[2:])
    strides = recorded.geometry.strides
    if cpu_kernels.can_form_gradients(mask["kernel"].shape, strides):
        kernel = _formed_on_cpu(mask["kernel"], x, cotangent, recorded.geometry)
    else:
        kernels = kernel_gradients(x, cotangent, recorded.geometry)
        kernel = formed({"kernel": mask["kernel"]}, {"kernel": kernels})
    return _with_bias(kernel, mask, d)


def _formed_on_cpu(
    mask: jax.Array, x: jax.Array, d: jax.Array, geometry: Geometry
) -> LayerGradient:
    """As `formed`, in two passes by kernels of our own where they can be had."""
    margins = tuple(before for before, _ in geometry.padding)

    def own(x: Any, d: Any, mask: Any) -> tuple[jax.Array, jax.Array]:
        return cpu_kernels.kernel_gradients(x, d, mask, margins)

    def plain(x: Any, d: Any, mask: Any) -> tuple[jax.Array, jax.Array]:
        kernels = kernel_gradients(x, d, geometry)
        return kernels, formed({"": mask}, {"": kernels}).squared_norms

    def own_sum(factors: Any, usable: Any, kernels: Any) -> jax.Array:
        flat = kernels.reshape(kernels.shape[0], -1)
        factors = jnp.where(usable, factors, _ZERO)
        return cpu_kernels.weighted_sum(factors, flat).reshape(kernels.shape[1:])

    kernels, squares = cpu_kernels.on_cpu(own, plain)(x, d, mask)

    def weighted_sum(factors: jax.Array, usable: jax.Array) -> dict[str, jax.Array]:
        total = cpu_kernels.on_cpu(own_sum, _add_up)
        return {"kernel": total(factors, usable, kernels)}

    return LayerGradient(squares, weighted_sum)


def _with_bias(
    weights: LayerGradient, mask: Mapping[str, jax.Array], d: jax.Array
) -> LayerGradient:
    """Adds the gradient of a bias, d summed over positions, if the mask has one."""
    if "bias" not in mask:
        return weights
    bias = formed(mask, {"bias": jnp.sum(positions(d), axis=1)})

    def weighted_sum(factors: jax.Array, usable: jax.Array) -> dict[str, jax.Array]:
        shift = bias.weighted_sum(factors, usable)
        return {**weights.weighted_sum(factors, usable), **shift}

    squares = weights.squared_norms + bias.squared_norms
    return LayerGradient(squares, weighted_sum, weights.lost_squares)


def _is_row(x: jax.Array) -> bool:
    """Whether a layer's input has one position per example (an ordinary dense one)."""
    return int(np.prod(x.shape[1:-1])) == 1


def _row_kernel(mask: jax.Array, x: jax.Array, d: jax.Array) -> LayerGradient:
    """Kernel of a layer with one position per example: the product formulas."""
    x, d = x.reshape(x.shape[0], -1), d.reshape(d.shape[0], -1)
    shape, mask = mask.shape, mask.reshape(x.shape[-1], -1)
    # Rows are scaled to a largest entry near 1 before squaring, so that a tiny input
    # and a huge cotangent cannot underflow and overflow apart from each other.
    x_scale, d_scale = _row_scale(x), _row_scale(d)
    x_unit, d_unit = x / x_scale, d / d_scale
    unit = jnp.sum(dot(x_unit * x_unit, mask) * (d_unit * d_unit), axis=-1)
    scale = (x_scale * d_scale)[:, 0]
    # The mask may drop a row's largest entry. Squares of those that are left, and their
    # products, may then be too small for a number and count as 0.
    most = [
        jnp.maximum(jnp.max(u * u, axis=-1), np.float32(1)) for u in (x_unit, d_unit)
    ]
    lost = np.float32(mask.size * TINY) * (most[0] + most[1] + np.float32(1))

    def weighted_sum(factors: jax.Array, usable: jax.Array) -> dict[str, jax.Array]:
        # Scaled as well: a factor times a cotangent too small for a full number, times
        # a huge input, would be rounded past the bound.
        clean_x = jnp.where(usable[:, None], x_unit, _ZERO)
        clean_d = jnp.where(usable[:, None], d, _ZERO) * (factors[:, None] * x_scale)
        return {"kernel": dot(clean_x.T, clean_d).reshape(shape)}

    return LayerGradient(unit * scale * scale, weighted_sum, lost * scale * scale)


def _row_scale(x: jax.Array) -> jax.Array:
    """A power of two near each row's largest entry: dividing by it rounds nothing.

    It stays away from the ends of float32, where its inverse, by which compilers like
    to multiply instead, would count as 0.
    """
    largest = jnp.max(jnp.abs(x), axis=-1, keepdims=True)
    bits = jax.lax.bitcast_convert_type(largest, jnp.uint32) & np.uint32(0x7F800000)
    power = jax.lax.bitcast_convert_type(bits, jnp.float32)
    return jnp.clip(power, np.float32(2.0**-100), np.float32(2.0**100))


def scale_and_shift(
    mask: Mapping[str, jax.Array], x: jax.Array, d: jax.Array
) -> LayerGradient:
    """Gradient of x * scale + bias over the last axis; the mask says which there are.

    Shapes: x and d [B, ..., F]; scale and bias [F].
    """
    gradients = {}
    if "scale" in mask:
        gradients["scale"] = jnp.sum(positions(x * d), axis=1)
    if "bias" in mask:
        gradients["bias"] = jnp.sum(positions(d), axis=1)
    return formed(mask, gradients)


def table_rows(mask: jax.Array, ids: jax.Array, d: jax.Array) -> LayerGradient:
    """Gradient of a look-up in the table "embedding": d, summed where ids are equal.

    An example touches no more rows than it has ids. If the table is longer than that,
    one example's row sums are kept at the first place of each id, so that memory grows
    with the cotangent and never with the table. The sums whose norm is taken are those
    that are added up: rounding cannot tell a norm and its gradient apart.

    Args:
        mask: [V, F] 0/1 mask of the table.
        ids: [B, ...] rows looked up, 0 to V - 1; V stands for no row at all.
        d: [B, ..., F] cotangents of what was found.

    Returns:
        Norms and sums of the table's masked gradients.
    """
    length = mask.shape[0]
    d = positions(d)
    ids = ids.reshape(d.shape[:2])
    if length <= ids.shape[1]:
        rows = _add_rows(ids, d, length)
        return formed({"embedding": mask}, {"embedding": rows})
    same = ids[:, :, None] == ids[:, None, :]
    rows = _add_rows(jnp.argmax(same, axis=-1), d, ids.shape[1])
    kept = mask.at[ids].get(mode="fill", fill_value=0) > 0
    rows = jnp.where(kept, rows, _ZERO)

    def weighted_sum(factors: jax.Array, usable: jax.Array) -> dict[str, jax.Array]:
        clean = jnp.where(usable[:, None, None], rows, _ZERO) * factors[:, None, None]
        total = jnp.zeros(mask.shape, clean.dtype).at[ids].add(clean, mode="drop")
        return {"embedding": total}

    return LayerGradient(sum_of_squares(rows * rows), weighted_sum)


def _add_rows(places: jax.Array, d: jax.Array, length: int) -> jax.Array:
    """Sums of d over equal places: [B, P], [B, P, F] -> [B, length, F]."""

    def one(places: jax.Array, d: jax.Array) -> jax.Array:
        empty = jnp.zeros((length, d.shape[-1]), d.dtype)
        return empty.at[places].add(d, mode="drop")

    return jax.vmap(one)(places, d)
