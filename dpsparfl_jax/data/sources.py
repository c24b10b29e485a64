"""Image sets by name, from the first source that has them.

With `dir`, only that folder is looked at: `<name>.npz`, then the four original idx
files in `<dir>/<name>/`, then in `<dir>` itself. Without it:

1. `glyphs` is drawn on the spot;
2. `fashion_mnist` comes from Debian's package dataset-fashion-mnist if installed;
3. everything else, and `fashion_mnist` otherwise, comes from TensorFlow Datasets.

A real set that is not found is refused, never replaced by another. What `features` asks
for is then computed of its images, or read from where it is kept.
"""

import pathlib
from typing import NamedTuple

from dpsparfl_jax.config import DataConfig
from dpsparfl_jax.data import (
    features,
    files,
    glyphs,
    partition,
    scattering,
    tfds_sets,
)
from dpsparfl_jax.data.files import LabelledSets
from dpsparfl_jax.errors import InputError

DEBIAN_FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")
_MOST_GLYPHS = 1_000_000
# Image shape and classes of the sets that are known by name.
KNOWN = {
    "glyphs": ((28, 28, 1), 10),
    "mnist": ((28, 28, 1), 10),
    "fashion_mnist": ((28, 28, 1), 10),
    "cifar10": ((32, 32, 3), 10),
}


class Loaded(NamedTuple):
    """An image set and, in words, where it came from."""

    sets: LabelledSets
    source: str


def load(settings: DataConfig, cache_dir: str = "") -> Loaded:
    """The named set from the first source that has it, as pixels or as features.

    Features of sets that are read, not drawn, are kept in `cache_dir`, unless empty.
    """
    loaded = _load_pixels(settings)
    if settings.features == "pixels":
        return loaded
    drawn = settings.name == "glyphs" and not settings.dir
    folder = pathlib.Path(cache_dir) / "features" if cache_dir and not drawn else ""
    sets = features.scattering_sets(loaded.sets, folder)
    return Loaded(sets, f"scattering features of {loaded.source}")


def _load_pixels(settings: DataConfig) -> Loaded:
    if not settings.name:
        raise InputError(f"data.name is empty: use one of {', '.join(KNOWN)}.")
    loaded = _find(settings)
    if settings.name not in KNOWN:
        return loaded
    shape, classes = KNOWN[settings.name]
    got = loaded.sets.train.images.shape[1:]
    if got != shape or loaded.sets.num_classes > classes:
        raise InputError(
            f"{loaded.source} has images of shape {list(got)} in "
            f"{loaded.sets.num_classes} classes, but {settings.name} has {list(shape)} "
            f"in {classes}: give it another name."
        )
    return loaded._replace(sets=loaded.sets._replace(num_classes=classes))


def _find(settings: DataConfig) -> Loaded:
    name = settings.name
    if settings.dir:
        return Loaded(*files.load_folder(name, settings.dir))
    if name == "glyphs":
        return _draw(settings)
    if name == "fashion_mnist" and files.has_idx(DEBIAN_FASHION_MNIST):
        sets = files.load_idx(name, DEBIAN_FASHION_MNIST)
        return Loaded(sets, f"the idx files in {DEBIAN_FASHION_MNIST}")
    directory = tfds_sets.folder(settings.tfds_dir)
    if name not in KNOWN and not tfds_sets.is_known(name, directory):
        raise InputError(
            f"unknown image set {name!r}: use {', '.join(KNOWN)} or a set of "
            f"TensorFlow Datasets, or point data.dir at a folder with {name}.npz."
        )
    return Loaded(*tfds_sets.load_tfds(name, directory))


def _draw(settings: DataConfig) -> Loaded:
    """Glyphs, at least as many as the clients own."""
    train = max(glyphs.TRAIN, int(partition.client_sizes(settings).sum()))
    test = max(glyphs.TEST, settings.num_clients * settings.test_examples)
    if train + test > _MOST_GLYPHS:
        raise InputError(
            f"the clients ask for {train + test} glyphs, but at most {_MOST_GLYPHS} "
            "are drawn: lower num_clients or the images of a client."
        )
    sets = glyphs.glyphs(settings.glyphs_seed, train, test)
    return Loaded(sets, f"glyphs drawn with seed {settings.glyphs_seed}")


def describe(settings: DataConfig) -> tuple[tuple[int, int, int], int]:
    """Image shape and number of classes, without reading a set known by name.

    The shape is that of the features if there are any; none is computed for it.
    """
    if settings.name in KNOWN:
        shape, classes = KNOWN[settings.name]
    else:
        sets = _load_pixels(settings).sets
        height, width, channels = sets.train.images.shape[1:]
        shape, classes = (height, width, channels), sets.num_classes
    if settings.features == "scattering":
        shape = scattering.shape_of(shape)
    return shape, classes
