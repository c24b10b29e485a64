"""Sum of masked, clipped per-example gradients, by two methods that agree.

`vmap` is the textbook: one gradient per example, any model. `ghost` never forms the
gradient of a dense layer for one example: with input a, output cotangent d and mask M,
    || M * (a d^T) ||^2 = (a*a)^T M (d*d)        and
    sum_m c_m M * (a_m d_m^T) = M * (A^T diag(c) D)
are exact, and two matrix products serve a whole batch. A convolution's kernel is small,
so its per-example gradient is formed from windows. `layer_rules` lists all such layers.
"""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.training import norm_errors, opened_layers
from dpsparfl_jax.training.convolution import EXACT
from dpsparfl_jax.training.layer_rules import UnsupportedLayer
from dpsparfl_jax.training.norm_errors import TINY
from dpsparfl_jax.types import Params

METHODS = ("ghost", "vmap")
_LOG = logging.getLogger(__name__)
_ZERO = np.float32(0)


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
    safe_norms: jax.Array, losses: jax.Array, real: jax.Array, bound: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """min(1, bound / norm) for usable examples, 0 for the others, and which are usable.

    Norms are safe: not below the true ones, whatever float32 lost. A gradient that is
    not finite cannot be scaled to the bound, so the example adds nothing: that keeps
    the sensitivity for any data whatever. A loss that is not finite (a label that the
    model does not have) disqualifies an example too.
    Departs: BUILD_NOTES "clip factor" (the paper prints its inverse).
    """
    usable = real & jnp.isfinite(losses)
    factors = jnp.minimum(np.float32(1), bound / jnp.maximum(safe_norms, TINY))
    # So small a factor has too few digits to hold the bound; where a norm is infinite
    # or no number, the factor is 0 or no number.
    usable &= factors > np.float32(2.0**-100)
    return jnp.where(usable, factors, _ZERO), usable


def _norms(
    params: Params, squares: Sequence[jax.Array], lost: Sequence[jax.Array | float]
) -> tuple[jax.Array, jax.Array]:
    """Norms [B] from the squares of a model's parts, and upper bounds on them."""
    total: Any = sum(squares)
    most = total + sum(lost) + np.float32(norm_errors.lost_squares(params))
    share = np.float32(1 + norm_errors.lost_share(params))
    return jnp.sqrt(total), jnp.sqrt(most * share)


def make_clipped_sum(
    model: nn.Module,
    params: Params,
    image_shape: tuple[int, ...],
    method: str,
    *,
    drop: bool = True,
) -> ClippedSumFn:
    """The clipped-sum function of a model; of `params` only the shapes matter.

    Without `drop` the sum may hold anything at coordinates that the mask drops: for a
    caller who drops them in a pass of its own, as `noise.add_noise` does.
    """
    if method not in METHODS:
        raise InputError(
            f"unknown clipping method {method!r}: choose one of {', '.join(METHODS)}."
        )
    if method == "ghost":
        try:
            opened = opened_layers.find_layers(model, params, image_shape)
        except UnsupportedLayer as reason:
            _LOG.warning(
                "clipping method 'ghost' does not fit this model (%s); using 'vmap', "
                "which is slower and equal.",
                reason,
            )
        else:
            return _ghost(model, opened, drop)
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
        squares = [norm_errors.sum_of_squares(g * g) for g in jax.tree.leaves(grads)]
        norms, safe = _norms(params, squares, [])
        factors, usable = clip_factors(safe, losses, real, bound)

        def weighted_sum(g: jax.Array) -> jax.Array:
            keep = usable.reshape(-1, *[1] * (g.ndim - 1))
            clean = jnp.where(keep, g, _ZERO)
            return jnp.tensordot(factors, clean, axes=1, precision=EXACT)

        total = jax.tree.map(weighted_sum, grads)
        return ClippedSum(
            total, jnp.where(real, norms, _ZERO), jnp.where(real, losses, _ZERO), usable
        )

    return clipped_sum


def keep_masked(tree: Params, mask: Params) -> Params:
    """Zero at every coordinate that the mask drops."""
    return jax.tree.map(lambda leaf, m: jnp.where(m > 0, leaf, _ZERO), tree, mask)


def _ghost(
    model: nn.Module, opened: tuple[opened_layers.Layer, ...], drop: bool
) -> ClippedSumFn:
    def clipped_sum(
        params: Params,
        mask: Params,
        images: jax.Array,
        labels: jax.Array,
        real: jax.Array,
        bound: jax.Array,
    ) -> ClippedSum:
        def total_loss(taps: Any) -> tuple[jax.Array, Any]:
            logits, inputs = opened_layers.run_each(model, params, images, taps)
            losses = jnp.where(real, example_losses(logits, labels), _ZERO)
            return jnp.sum(losses), (losses, inputs)

        taps = opened_layers.zero_taps(opened, images.shape[0])
        cotangents, (losses, inputs) = jax.grad(total_loss, has_aux=True)(taps)
        with jax.named_scope("norms"):
            parts = [
                layer.rule.gradient(
                    opened_layers.layer_params(mask, layer.path),
                    inputs[layer.path],
                    cotangents[layer.path],
                )
                for layer in opened
            ]
            norms, safe = _norms(
                params,
                [part.squared_norms for part in parts],
                [part.lost_squares for part in parts],
            )
            factors, usable = clip_factors(safe, losses, real, bound)
        total: dict[str, Any] = {}
        with jax.named_scope("sums"):
            for layer, part in zip(opened, parts, strict=True):
                _put(total, layer.path, part.weighted_sum(factors, usable))
            if drop:
                total = keep_masked(total, mask)
        return ClippedSum(total, jnp.where(real, norms, _ZERO), losses, usable)

    return clipped_sum


def _put(tree: dict[str, Any], path: opened_layers.Path, value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value
