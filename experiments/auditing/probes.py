"""Models and records of an auditor: what they do to a gradient is known exactly.

Images are bytes, so an auditor's model reads every pixel as the number of a value in a
table, `VALUES`: ordinary numbers, and those that break careless code (1e38, the least
denormal, infinity, nan). All else is the product's: layers, clipping, sampling, noise.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import dpsparfl_jax as fl
from dpsparfl_jax.types import ImageSet

SHAPE = (4, 4, 1)
CLASSES = 2
NOBODYS_LABEL = 99  # of a class that no model has: such a record adds nothing

# Code 0 is the value 0, so that an image of zeros has no gradient without a bias.
_PLAIN = np.linspace(-2, 2, 65)
_POWERS = 10.0 ** np.arange(-45, 39)
_STEEP = np.exp(45 * np.linspace(-1, 1, 33))
_ODD = np.array([np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, 1e-45, -1e-45])
VALUES = np.concatenate([[0.0], _PLAIN, _POWERS, _STEEP, _ODD])
VALUES = np.concatenate([VALUES, np.zeros(256 - VALUES.size)]).astype(np.float32)
PLAIN = np.arange(1, 1 + _PLAIN.size)  # codes of ordinary values
POWERS = PLAIN[-1] + 1 + np.arange(_POWERS.size)  # of 1e-45 ... 1e38
STEEP = POWERS[-1] + 1 + np.arange(_STEEP.size)  # of exp(-45) ... exp(45)
ODD = STEEP[-1] + 1 + np.arange(_ODD.size)  # of what is hardly a number


def power_code(exponent: int) -> int:
    """The code of 10 to this power."""
    return int(POWERS[exponent + 45])


def decode(x: jax.Array) -> jax.Array:
    """Values of normalised pixels, (pixel / 255 - 1/2) / (1/2)."""
    codes = jnp.round((x + np.float32(1)) * np.float32(127.5)).astype(jnp.int32)
    return jnp.asarray(VALUES)[codes]


class Linear(nn.Module):
    """A linear model of coded values, with or without a bias."""

    num_classes: int
    use_bias: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Logits of a batch of coded images."""
        x = decode(x).reshape(x.shape[0], -1)
        return nn.Dense(self.num_classes, use_bias=self.use_bias)(x)


class Convolutional(nn.Module):
    """A convolution of coded values, and a dense layer on top."""

    num_classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Logits of a batch of coded images."""
        x = nn.relu(nn.Conv(3, (3, 3))(decode(x)))
        return nn.Dense(self.num_classes)(x.reshape(x.shape[0], -1))


@fl.register_model("audit_linear")
def audit_linear(num_classes: int) -> nn.Module:
    """Without a bias: a record of zeros has no gradient."""
    return Linear(num_classes, use_bias=False)


@fl.register_model("audit_dense")
def audit_dense(num_classes: int) -> nn.Module:
    """With a bias."""
    return Linear(num_classes, use_bias=True)


@fl.register_model("audit_conv")
def audit_conv(num_classes: int) -> nn.Module:
    """With a convolution."""
    return Convolutional(num_classes)


def loud_records() -> ImageSet:
    """Three records: a canary, its opposite, and nothing.

    All pixels of the canary are 100, so that its gradient is far above every clip bound
    whatever a mask leaves of it; the opposite has the other label, hence (at parameters
    of zero, with two classes) the negative gradient.
    """
    images = np.zeros((3, *SHAPE), np.uint8)
    images[:2] = power_code(2)
    return ImageSet(images, np.array([0, 1, 0], np.int32))


CANARY, OPPOSITE, NOTHING = 0, 1, 2  # rows of `loud_records`


def null_record() -> tuple[NDArray[np.uint8], int]:
    """An image and a label that add exactly nothing to a sum, whatever the model."""
    return np.zeros(SHAPE, np.uint8), NOBODYS_LABEL


Family = Callable[
    [np.random.Generator, int], tuple[NDArray[np.uint8], NDArray[np.int32]]
]


def _images(codes: NDArray[np.integer]) -> NDArray[np.uint8]:
    return codes.reshape(-1, *SHAPE).astype(np.uint8)


def _labels(stream: np.random.Generator, count: int) -> NDArray[np.int32]:
    return stream.integers(0, CLASSES, count).astype(np.int32)


def _from(codes: NDArray[np.integer]) -> Family:
    """Every pixel at random from these codes."""

    def draw(
        stream: np.random.Generator, count: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
        chosen = stream.choice(codes, (count, *SHAPE))
        return _images(chosen), _labels(stream, count)

    return draw


def _one_above_others(gap: int) -> Family:
    """One pixel is 10^gap times the others: where a mask drops it, they remain."""

    def draw(
        stream: np.random.Generator, count: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
        high = stream.integers(max(-30, gap - 36), 36, count)
        codes = np.repeat((high - gap + 45)[:, None], 16, axis=1)
        codes[np.arange(count), stream.integers(0, 16, count)] = high + 45
        return _images(POWERS[np.clip(codes, 0, len(POWERS) - 1)]), _labels(
            stream, count
        )

    return draw


def _one_pixel(
    stream: np.random.Generator, count: int
) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """A single pixel that is not zero, of any size."""
    codes = np.zeros((count, 16), np.int64)
    codes[np.arange(count), stream.integers(0, 16, count)] = stream.choice(
        np.concatenate([PLAIN, POWERS]), count
    )
    return _images(codes), _labels(stream, count)


def _foreign_labels(
    stream: np.random.Generator, count: int
) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Labels that the model does not have, negative and huge ones among them."""
    labels = np.array([-1, -7, CLASSES, 2**31 - 1, -(2**31)], np.int64)
    chosen = stream.choice(labels, count).astype(np.int32)
    return _images(stream.choice(PLAIN, (count, 16))), chosen


# Records that try to move a sum by more than the clip bound.
FAMILIES: dict[str, Family] = {
    "ordinary": _from(PLAIN),
    "huge": _from(POWERS[-4:]),
    "tiny": _from(POWERS[:8]),
    "all sizes": _from(np.concatenate([PLAIN, POWERS])),
    "exp(45 x)": _from(STEEP),
    "one pixel": _one_pixel,
    "one 1e10 above": _one_above_others(10),
    "one 1e19 above": _one_above_others(19),
    "one 1e23 above": _one_above_others(23),
    "nan and infinity": _from(np.concatenate([PLAIN[:5], ODD])),
    "foreign labels": _foreign_labels,
}
