"""Models by name: the paper's networks, variants for privacy, small ones, and yours.

A model is any Flax module that maps images [B, H, W, C] to logits [B, classes] one
example at a time (no batch statistics). To add one:

    @register_model("mine")
    def mine(num_classes: int) -> nn.Module:
        return Mine(num_classes)
"""

import contextlib
import functools
import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.registry import MODELS
from dpsparfl_jax.training import masks
from dpsparfl_jax.types import ModelSize, Params

ModelFactory = Callable[[int], nn.Module]

register_model = MODELS.register

_LARGEST_SIDE = 65  # of images, up to which the smallest that a model takes is sought


class TooSmallError(InputError):
    """Images have too few pixels for a model's layers."""


def make_model(name: str, num_classes: int = 10) -> nn.Module:
    """The model registered under `name`."""
    factory: ModelFactory = MODELS.get(name)
    return factory(num_classes)


def init_params(
    model: nn.Module, key: jax.Array, image_shape: tuple[int, ...]
) -> Params:
    """Fresh parameters for images of this shape (H, W, C)."""
    images = jnp.zeros((1, *image_shape), jnp.float32)
    return jax.jit(model.init)(key, images)["params"]


def measure(name: str, num_classes: int, image_shape: tuple[int, ...]) -> ModelSize:
    """Size of a registered model for images of this shape; makes no parameters."""
    model = make_model(name, num_classes)
    try:
        return _measure_any(model, tuple(image_shape))
    except TooSmallError as reason:
        height, width, *channels = image_shape
        for side in range(2, _LARGEST_SIDE):
            with contextlib.suppress(TooSmallError):
                _measure_any(model, (side, side, *channels))
                raise InputError(
                    f"the images are too small for the model: {name} needs at least "
                    f"{side} x {side} pixels, but they have {height} x {width}; choose "
                    "larger images or another model."
                ) from None
        raise InputError(str(reason)) from None


def _measure_any(model: nn.Module, image_shape: tuple[int, ...]) -> ModelSize:
    try:
        return _measure(model, image_shape)
    except TypeError:  # settings of the model that have no hash
        return _measure.__wrapped__(model, image_shape)


@functools.lru_cache(maxsize=32)  # a grid has thousands of runs and few models
def _measure(model: nn.Module, image_shape: tuple[int, ...]) -> ModelSize:
    images = jax.ShapeDtypeStruct((1, *image_shape), jnp.float32)
    shapes = jax.eval_shape(model.init, jax.random.key(0), images)["params"]
    count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
    return ModelSize(count, masks.count_units(shapes))


def max_pool_2x2(x: jax.Array) -> jax.Array:
    """Non-overlapping 2x2 maximum of [B, H, W, C].

    A maximum of four strided slices: on CPU its gradient is some ten times faster than
    that of a window reduction. At ties the gradient is shared out, a valid subgradient.
    """
    if min(x.shape[1:3]) < 2:
        raise TooSmallError(
            "the images are too small for the model, which pools more often than their "
            "size allows: choose larger images or a model with fewer layers."
        )
    height, width = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
    x = x[:, :height, :width]
    top = jnp.maximum(x[:, ::2, ::2], x[:, ::2, 1::2])
    bottom = jnp.maximum(x[:, 1::2, ::2], x[:, 1::2, 1::2])
    return jnp.maximum(top, bottom)


class ConvNet(nn.Module):
    """Convolutions, each with a 2x2 max-pool and an activation, then dense layers.

    Pooling comes before the activation: with one that never falls, as ReLU and tanh,
    the two commute, and this order is cheaper.
    """

    channels: tuple[int, ...]
    kernel_size: int
    hidden: tuple[int, ...]
    num_classes: int
    activation: Callable[[jax.Array], jax.Array] = nn.relu

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Logits of a batch of images."""
        for features in self.channels:
            x = nn.Conv(features, (self.kernel_size, self.kernel_size))(x)
            x = self.activation(max_pool_2x2(x))
        x = x.reshape(x.shape[0], -1)
        for features in self.hidden:
            x = self.activation(nn.Dense(features)(x))
        return nn.Dense(self.num_classes)(x)


class NormedConvNet(nn.Module):
    """3x3 convolutions, each with a group norm, a 2x2 max-pool and ReLU; a dense layer.

    A group norm uses statistics of one example alone, so it mixes no records. It keeps
    activations and gradients of one size, which noise and clipping ask for (De et al.
    2022, "Unlocking high-accuracy differentially private image classification through
    scale", have one after every convolution).
    """

    channels: tuple[int, ...]
    groups: int
    num_classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Logits of a batch of images."""
        for features in self.channels:
            x = nn.GroupNorm(self.groups)(nn.Conv(features, (3, 3))(x))
            x = nn.relu(max_pool_2x2(x))
        return nn.Dense(self.num_classes)(x.reshape(x.shape[0], -1))


class Logistic(nn.Module):
    """Multinomial logistic regression on pixels, or on whatever features they are."""

    num_classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Logits of a batch of images."""
        return nn.Dense(self.num_classes)(x.reshape(x.shape[0], -1))


@register_model("mnist_cnn")
def mnist_cnn(num_classes: int) -> nn.Module:
    """The paper's network for 28x28 images: 1,663,370 parameters."""
    return ConvNet((32, 64), 5, (512,), num_classes)


@register_model("cifar_cnn")
def cifar_cnn(num_classes: int) -> nn.Module:
    """The paper's network for 32x32x3 images: 930,826 parameters."""
    return ConvNet((64, 128, 256), 3, (128, 256), num_classes)


@register_model("mnist_cnn_tanh")
def mnist_cnn_tanh(num_classes: int) -> nn.Module:
    """The paper's network for 28x28 images with bounded activations.

    Papernot et al. 2021, "Tempered sigmoid activations for deep learning with
    differential privacy": with tanh, gradients are smaller and clipping loses less.
    """
    return ConvNet((32, 64), 5, (512,), num_classes, jnp.tanh)


@register_model("cifar_cnn_tanh")
def cifar_cnn_tanh(num_classes: int) -> nn.Module:
    """The paper's network for 32x32x3 images with tanh, as `mnist_cnn_tanh`."""
    return ConvNet((64, 128, 256), 3, (128, 256), num_classes, jnp.tanh)


@register_model("norm_cnn")
def norm_cnn(num_classes: int) -> nn.Module:
    """A compact network with group norms (61,834 parameters at 28x28)."""
    return NormedConvNet((32, 64, 64), 8, num_classes)


@register_model("small_cnn")
def small_cnn(num_classes: int) -> nn.Module:
    """A small network for quick runs (about 8,000 parameters at 28x28)."""
    return ConvNet((8, 16), 3, (), num_classes)


@register_model("logistic")
def logistic(num_classes: int) -> nn.Module:
    """A linear model."""
    return Logistic(num_classes)
