"""Ten drawn characters, for runs that need images but no files.

Each image is one of ten letters: strokes, bent by a smooth random displacement, then
rotated, sheared, scaled and shifted, and drawn with a brush of random width on a
noisy ground of random contrast. A linear model does not get far; a small network does.
"""

import math

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax import rng
from dpsparfl_jax.data.files import LabelledSets
from dpsparfl_jax.types import ImageSet

Floats = NDArray[np.float32]

SIDE = 28
TRAIN, TEST = 20_000, 5_000
_BLOCK = 500  # images drawn at once, from a stream of their own
_POINTS = 72  # dots of the brush along a character
_WAVES = 3  # sine waves that bend a character

# Strokes in the square -1..1, x to the right and y down. A line is its corners; an arc
# is centre, radii, and first and last angle in degrees (clockwise from the right).
_Line = tuple[tuple[float, float], ...]
_Arc = tuple[float, float, float, float, float, float]
_LETTERS: dict[str, tuple[tuple[_Line, ...], tuple[_Arc, ...]]] = {
    "A": ((((-0.8, 1), (0, -1), (0.8, 1)), ((-0.48, 0.2), (0.48, 0.2))), ()),
    "B": (
        (((-0.6, -1), (-0.6, 1)),),
        ((-0.6, -0.5, 1.1, 0.5, -90, 90), (-0.6, 0.5, 1.3, 0.5, -90, 90)),
    ),
    "C": ((), ((0.1, 0, 0.85, 1, 50, 310),)),
    "E": ((((0.6, -1), (-0.6, -1), (-0.6, 1), (0.6, 1)), ((-0.6, 0), (0.4, 0))), ()),
    "H": ((((-0.7, -1), (-0.7, 1)), ((0.7, -1), (0.7, 1)), ((-0.7, 0), (0.7, 0))), ()),
    "K": ((((-0.6, -1), (-0.6, 1)), ((0.7, -1), (-0.6, 0.1), (0.7, 1))), ()),
    "P": ((((-0.6, -1), (-0.6, 1)),), ((-0.6, -0.45, 1.2, 0.55, -90, 90),)),
    "S": (
        (),
        ((0, -0.5, 0.65, 0.5, -20, -270), (0, 0.5, 0.65, 0.5, -90, 160)),
    ),
    "T": ((((-0.8, -1), (0.8, -1)), ((0, -1), (0, 1))), ()),
    "X": ((((-0.7, -1), (0.7, 1)), ((0.7, -1), (-0.7, 1))), ()),
}


def glyphs(seed: int, train: int = TRAIN, test: int = TEST) -> LabelledSets:
    """A training and a test set of uint8 images [n, 28, 28, 1] in ten classes.

    Image i of a set depends on the seed, the set and i alone, and shows letter i mod
    10: a larger set begins with the smaller one.
    """
    return LabelledSets(_draw_set(seed, 0, train), _draw_set(seed, 1, test), 10)


def _draw_set(seed: int, which: int, count: int) -> ImageSet:
    labels = (np.arange(count) % len(_LETTERS)).astype(np.int32)
    shapes = np.stack([_dots(*letter) for letter in _LETTERS.values()])
    images = np.empty((count, SIDE, SIDE, 1), np.uint8)
    for block, start in enumerate(range(0, count, _BLOCK)):
        stream = rng.host_stream(seed, "glyphs", which, block)
        letters = np.arange(start, start + _BLOCK) % len(_LETTERS)
        drawn = _paint(_move(shapes[letters], stream), stream)
        images[start : start + _BLOCK, ..., 0] = drawn[: count - start]
    return ImageSet(images, labels)


def _dots(lines: tuple[_Line, ...], arcs: tuple[_Arc, ...]) -> Floats:
    """Points at even steps along all strokes of a letter: [points, 2]."""
    strokes = [np.array(line) for line in lines]
    for x, y, wide, high, first, last in arcs:
        angle = np.radians(np.linspace(first, last, 40))
        strokes.append(
            np.stack([x + wide * np.cos(angle), y + high * np.sin(angle)], axis=1)
        )
    starts = np.concatenate([stroke[:-1] for stroke in strokes])
    ends = np.concatenate([stroke[1:] for stroke in strokes])
    travelled = np.cumsum(np.hypot(*(ends - starts).T))
    steps = (np.arange(_POINTS) + 0.5) / _POINTS * travelled[-1]
    piece = np.searchsorted(travelled, steps)
    length = np.diff(travelled, prepend=0.0)[piece]
    share = 1 - (travelled[piece] - steps) / length
    points = starts[piece] + share[:, None] * (ends - starts)[piece]
    return points.astype(np.float32)


def _move(points: Floats, stream: np.random.Generator) -> Floats:
    """Bends, turns, shears, scales and shifts each letter: [B, P, 2], in pixels."""
    count = len(points)

    def draw(low: float, high: float, *shape: int) -> Floats:
        return stream.uniform(low, high, (count, *shape)).astype(np.float32)

    slope = draw(-2.5, 2.5, 2, _WAVES)
    phase = points @ slope + draw(0, 2 * math.pi, 1, _WAVES)
    bent = points + np.sin(phase) @ draw(-0.14, 0.14, _WAVES, 2)
    angle, shear = draw(-0.45, 0.45), draw(-0.3, 0.3)
    wide, high = draw(5.5, 9.0), draw(6.0, 9.5)
    cos, sin = np.cos(angle), np.sin(angle)
    matrix = np.stack(
        [
            np.stack([wide * cos, wide * sin], axis=1),
            np.stack([high * (shear * cos - sin), high * (shear * sin + cos)], axis=1),
        ],
        axis=1,
    )
    shift = draw(-3.0, 3.0, 1, 2)
    return bent @ matrix + shift + np.float32((SIDE - 1) / 2)


def _paint(points: Floats, stream: np.random.Generator) -> NDArray[np.uint8]:
    """Images [B, 28, 28] of dots [B, P, 2]; dots are round and overlap into strokes."""
    count = len(points)

    def draw(low: float, high: float) -> Floats:
        return stream.uniform(low, high, (count, 1, 1)).astype(np.float32)

    width = draw(0.65, 1.15)
    grid = np.arange(SIDE, dtype=np.float32)
    across = np.exp(-0.5 * ((grid - points[..., :1]) / width) ** 2)
    down = np.exp(-0.5 * ((grid - points[..., 1:]) / width) ** 2)
    ink = 1 - np.exp(-2 * (down.transpose(0, 2, 1) @ across))
    ground, contrast, noise = draw(0, 60), draw(90, 195), draw(5, 25)
    grain = stream.standard_normal(ink.shape, np.float32)
    pixels = ground + contrast * ink + noise * grain
    return np.clip(pixels, 0, 255).astype(np.uint8)
