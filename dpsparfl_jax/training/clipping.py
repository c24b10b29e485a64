"""Sum of masked, clipped per-example gradients, by two methods that agree.

`vmap` is the textbook: one gradient per example, any model. `ghost` never forms the
gradient of a dense layer for one example: with input a, output cotangent d and mask M,
    || M * (a d^T) ||^2 = (a*a)^T M (d*d)        and
    sum_m c_m M * (a_m d_m^T) = M * (A^T diag(c) D)
are exact, and two matrix products serve a whole batch. A convolution's kernel is small,
so its per-example gradient is formed from patches.
"""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.training import layers as layers_lib
from dpsparfl_jax.types import Params

METHODS = ("ghost", "vmap")
_LOG = logging.getLogger(__name__)
_ZERO = np.float32(0)

# Accelerators round the inputs of a default matrix product to 10 bits or fewer. A norm
# and the sum it bounds must not be rounded apart, so these products are full float32.
_EXACT = jax.lax.Precision.HIGHEST


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision=_EXACT)


class ClippedSum(NamedTuple):
    """Sum over a batch whose one-record sensitivity is the clip bound."""

    total: Params  # sum over examples of mask * gradient * min(1, bound / norm)
    norms: jax.Array  # [B] masked norms before clipping; 0 for padding
    losses: jax.Array  # [B] 0 for padding
    finite: jax.Array  # [B] False where an example was left out (or is padding)


class ClippedSumFn(Protocol):
    """How a method is called: mask leaves are 0/1, `real` marks non-padding."""

    def __call__(
        self,
        params: Params,
        mask: Params,
        images: jax.Array,
        labels: jax.Array,
        real: jax.Array,
        bound: jax.Array,
    ) -> ClippedSum:
        """The clipped sum of one padded batch."""


def example_losses(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Cross-entropy of every example: [B, classes], [B] -> [B]."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def clip_factors(
    norms: jax.Array, losses: jax.Array, real: jax.Array, bound: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """min(1, bound / norm) for usable examples, 0 for the others, and which are usable.

    A gradient that is not finite cannot be scaled to the bound, so the example adds
    nothing: that keeps the sensitivity for any data whatever. A loss that is not finite
    (a label that the model does not have) disqualifies an example too.
    Departs: BUILD_NOTES "clip factor" (the paper prints its inverse).
    """
    usable = real & jnp.isfinite(norms) & jnp.isfinite(losses)
    tiny = np.finfo(np.float32).tiny
    factors = jnp.minimum(np.float32(1), bound / jnp.maximum(norms, tiny))
    return jnp.where(usable, factors, _ZERO), usable


def make_clipped_sum(
    model: nn.Module, params: Params, image_shape: tuple[int, ...], method: str
) -> ClippedSumFn:
    """The clipped-sum function of a model; of `params` only the shapes matter."""
    if method not in METHODS:
        raise InputError(
            f"unknown clipping method {method!r}: choose one of {', '.join(METHODS)}."
        )
    if method == "ghost":
        try:
            opened = layers_lib.opened_layers(model, params, image_shape)
        except layers_lib.UnsupportedLayer as reason:
            _LOG.warning(
                "clipping method 'ghost' does not fit this model (%s); using 'vmap', "
                "which is slower and equal.",
                reason,
            )
        else:
            return _ghost(model, opened)
    return _textbook(model)


def _textbook(model: nn.Module) -> ClippedSumFn:
    def one_loss(params: Params, image: jax.Array, label: jax.Array) -> jax.Array:
        logits: Any = model.apply({"params": params}, image[None])
        return example_losses(logits, label[None])[0]

    per_example = jax.vmap(jax.value_and_grad(one_loss), in_axes=(None, 0, 0))

    def clipped_sum(
        params: Params,
        mask: Params,
        images: jax.Array,
        labels: jax.Array,
        real: jax.Array,
        bound: jax.Array,
    ) -> ClippedSum:
        losses, grads = per_example(params, images, labels)
        grads = jax.tree.map(lambda g, m: jnp.where(m[None] > 0, g, _ZERO), grads, mask)
        squares = [
            jnp.sum(g * g, axis=range(1, g.ndim)) for g in jax.tree.leaves(grads)
        ]
        norms = jnp.sqrt(sum(squares))
        factors, usable = clip_factors(norms, losses, real, bound)

        def weighted_sum(g: jax.Array) -> jax.Array:
            keep = usable.reshape(-1, *[1] * (g.ndim - 1))
            clean = jnp.where(keep, g, _ZERO)
            return jnp.tensordot(factors, clean, axes=1, precision=_EXACT)

        total = jax.tree.map(weighted_sum, grads)
        return ClippedSum(
            total, jnp.where(real, norms, _ZERO), jnp.where(real, losses, _ZERO), usable
        )

    return clipped_sum


def _ghost(model: nn.Module, opened: tuple[layers_lib.Layer, ...]) -> ClippedSumFn:
    def clipped_sum(
        params: Params,
        mask: Params,
        images: jax.Array,
        labels: jax.Array,
        real: jax.Array,
        bound: jax.Array,
    ) -> ClippedSum:
        def total_loss(taps: Any) -> tuple[jax.Array, Any]:
            logits, inputs = layers_lib.run_each(model, params, images, taps)
            losses = jnp.where(real, example_losses(logits, labels), _ZERO)
            return jnp.sum(losses), (losses, inputs)

        taps = layers_lib.zero_taps(opened, images.shape[0])
        cotangents, (losses, inputs) = jax.grad(total_loss, has_aux=True)(taps)
        parts = [
            _open_gradient(
                layers_lib.layer_params(mask, layer.path),
                inputs[layer.path],
                cotangents[layer.path],
            )
            for layer in opened
        ]
        norms = jnp.sqrt(sum(part.squared_norms for part in parts))
        factors, usable = clip_factors(norms, losses, real, bound)
        total: dict[str, Any] = {}
        for layer, part in zip(opened, parts, strict=True):
            _put(total, layer.path, part.weighted_sum(factors, usable))
        return ClippedSum(total, jnp.where(real, norms, _ZERO), losses, usable)

    return clipped_sum


def _put(tree: dict[str, Any], path: layers_lib.Path, value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


class _LayerGradient(NamedTuple):
    """A layer's per-example gradients, known by their norms and weighted sums."""

    squared_norms: jax.Array  # [B]
    weighted_sum: Callable[[jax.Array, jax.Array], dict[str, jax.Array]]


def _open_gradient(mask: Any, x: jax.Array, d: jax.Array) -> _LayerGradient:
    kernel = _row_kernel if layers_lib.is_row(x) else _patch_kernel
    weights = kernel(mask["kernel"], x, d)
    if "bias" not in mask:
        return weights
    sums = jnp.sum(layers_lib.positions(d), axis=1)  # [B, out]
    sums = jnp.where(mask["bias"][None] > 0, sums, _ZERO)

    def weighted_sum(factors: jax.Array, usable: jax.Array) -> dict[str, jax.Array]:
        bias = _dot(factors, jnp.where(usable[:, None], sums, _ZERO))
        return {**weights.weighted_sum(factors, usable), "bias": bias}

    return _LayerGradient(
        weights.squared_norms + jnp.sum(sums * sums, axis=-1), weighted_sum
    )


def _row_kernel(mask: jax.Array, x: jax.Array, d: jax.Array) -> _LayerGradient:
    """Kernel of a layer with one position per example: the product formulas."""
    x, d = x.reshape(x.shape[0], -1), d.reshape(d.shape[0], -1)
    shape, mask = mask.shape, mask.reshape(x.shape[-1], -1)
    # Rows are scaled to a largest entry of 1 before squaring, so that a tiny input and
    # a huge cotangent cannot underflow and overflow apart from each other.
    x_scale, d_scale = _row_scale(x), _row_scale(d)
    x_unit, d_unit = x / x_scale, d / d_scale
    unit = jnp.sum(_dot(x_unit * x_unit, mask) * (d_unit * d_unit), axis=-1)
    scale = (x_scale * d_scale)[:, 0]

    def weighted_sum(factors: jax.Array, usable: jax.Array) -> dict[str, jax.Array]:
        clean_x = jnp.where(usable[:, None], x, _ZERO)
        clean_d = jnp.where(usable[:, None], d, _ZERO) * factors[:, None]
        total = jnp.where(mask > 0, _dot(clean_x.T, clean_d), _ZERO)
        return {"kernel": total.reshape(shape)}

    return _LayerGradient(unit * scale * scale, weighted_sum)


def _row_scale(x: jax.Array) -> jax.Array:
    largest = jnp.max(jnp.abs(x), axis=-1, keepdims=True)
    return jnp.maximum(largest, np.finfo(np.float32).tiny)


def _patch_kernel(mask: jax.Array, x: jax.Array, d: jax.Array) -> _LayerGradient:
    """Kernel of a layer with many positions per example: its gradient is formed."""
    grads = jnp.einsum(
        "bpi,bpo->bio",
        layers_lib.positions(x),
        layers_lib.positions(d),
        precision=_EXACT,
    )
    grads = grads.reshape(grads.shape[0], -1)
    grads = jnp.where(mask.reshape(1, -1) > 0, grads, _ZERO)

    def weighted_sum(factors: jax.Array, usable: jax.Array) -> dict[str, jax.Array]:
        total = _dot(factors, jnp.where(usable[:, None], grads, _ZERO))
        return {"kernel": total.reshape(mask.shape)}

    return _LayerGradient(jnp.sum(grads * grads, axis=-1), weighted_sum)
