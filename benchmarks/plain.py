"""The programs that the engine is measured against, as one would write them in Flax."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from dpsparfl_jax.training.models import ConvNet

# What every contender trains with.
RATE, CLIP, NOISE = 0.002, 1.0, 0.6


class PlainConvNet(nn.Module):
    """The network of `ConvNet` in everyday Flax: native convolution and max-pool."""

    like: ConvNet

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Logits of a batch of images."""
        for features in self.like.channels:
            x = nn.Conv(features, (self.like.kernel_size,) * 2)(x)
            x = nn.relu(nn.max_pool(x, (2, 2), (2, 2)))
        x = x.reshape(x.shape[0], -1)
        for features in self.like.hidden:
            x = nn.relu(nn.Dense(features)(x))
        return nn.Dense(self.like.num_classes)(x)


def sgd_step(model: nn.Module, rate: float) -> Callable[..., Any]:
    """Non-private SGD on one batch, one compiled step (a scan would be slower here)."""

    @jax.jit
    def step(params: Any, images: jax.Array, labels: jax.Array) -> Any:
        def loss(params: Any) -> jax.Array:
            logits = model.apply({"params": params}, images)
            return optax.softmax_cross_entropy_with_integer_labels(
                logits, labels
            ).mean()

        return jax.tree.map(lambda p, g: p - rate * g, params, jax.grad(loss)(params))

    return step


def private_step(
    model: nn.Module,
    *,
    keep_rate: float,
    clip: float,
    noise: float,
    rate: float,
    expected: int,
) -> Callable[..., Any]:
    """Textbook sparse DP-SGD step of one client: vmap(grad), mask, clip, noise.

    `real` marks the examples of a padded batch that count; `expected` is the divisor.
    """
    bound = keep_rate**0.5 * clip

    def one_loss(params: Any, image: jax.Array, label: jax.Array) -> jax.Array:
        logits = model.apply({"params": params}, image[None])
        return optax.softmax_cross_entropy_with_integer_labels(logits, label[None])[0]

    def step(
        params: Any,
        mask: Any,
        key: jax.Array,
        images: jax.Array,
        labels: jax.Array,
        real: jax.Array,
    ) -> Any:
        grads = jax.vmap(jax.grad(one_loss), (None, 0, 0))(params, images, labels)
        grads = jax.tree.map(lambda g, m: g * m, grads, mask)
        norms = jax.vmap(optax.tree.norm)(grads)
        factors = jnp.where(real, jnp.minimum(1.0, bound / norms), 0.0)
        total = jax.tree.map(lambda g: jnp.tensordot(factors, g, 1), grads)
        leaves, structure = jax.tree.flatten(total)
        keys = jax.tree.unflatten(structure, jax.random.split(key, len(leaves)))
        noisy = jax.tree.map(
            lambda t, m, k: t + m * noise * bound * jax.random.normal(k, t.shape),
            total,
            mask,
            keys,
        )
        return jax.tree.map(lambda p, g: p - rate * g / expected, params, noisy)

    return step
