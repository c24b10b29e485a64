"""Image sets by name, from the first source that has them.

With `dir`, only that folder is looked at: `<name>.npz`, then four npy files or the four
original idx files in `<dir>/<name>/`, then idx files in `<dir>` itself. Without it:

1. `glyphs` is drawn on the spot;
2. `fashion_mnist` comes from Debian's package dataset-fashion-mnist if installed;
3. everything else, and `fashion_mnist` otherwise, comes from TensorFlow Datasets.

A real set that is not found is refused, never replaced by another. What `features` asks
for is then computed of its images, or read from where it is kept.
"""

import pathlib
from collections.abc import Callable
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
from dpsparfl_jax.data.files import Counts, LabelledSets
from dpsparfl_jax.errors import InputError

DEBIAN_FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")
_MOST_GLYPHS = 5_000_000
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
    loaded = Loaded(*_find(settings).load())
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


class _Source(NamedTuple):
    """Where a set is: how to read it, and how to count its images without."""

    load: Callable[[], tuple[LabelledSets, str]]
    counted: Callable[[], Counts | None]  # None: known once read


def count(settings: DataConfig) -> Counts | None:
    """Images of the named set, if they can be counted without being read.

    Refuses a set that no source has.
    """
    return _find(settings).counted()


def _find(settings: DataConfig) -> _Source:
    """The first source that has the named set."""
    name = settings.name
    if not name:
        raise InputError(f"data.name is empty: use one of {', '.join(KNOWN)}.")
    if settings.dir:
        return _Source(
            lambda: files.load_folder(name, settings.dir),
            lambda: files.count_folder(name, settings.dir),
        )
    if name == "glyphs":
        return _Source(lambda: _draw(settings), lambda: _glyphs_needed(settings))
    if name == "fashion_mnist" and files.has_idx(DEBIAN_FASHION_MNIST):
        words = f"the idx files in {DEBIAN_FASHION_MNIST}"
        return _Source(
            lambda: (files.load_idx(name, DEBIAN_FASHION_MNIST), words),
            lambda: files.count_idx(DEBIAN_FASHION_MNIST),
        )
    directory = tfds_sets.folder(settings.tfds_dir)
    if name not in KNOWN and not tfds_sets.is_known(name, directory):
        raise InputError(
            f"unknown image set {name!r}: use {', '.join(KNOWN)} or a set of "
            "TensorFlow Datasets, or point data.dir at a folder with "
            f"{files.wanted(name)}."
        )
    return _Source(
        lambda: tfds_sets.load_tfds(name, directory),
        lambda: tfds_sets.count(name, directory),
    )


def _glyphs_needed(settings: DataConfig) -> Counts:
    """At least as many glyphs as the clients own."""
    train = max(glyphs.TRAIN, int(partition.client_sizes(settings).sum()))
    test = max(glyphs.TEST, settings.num_clients * settings.test_examples)
    if train + test > _MOST_GLYPHS:
        raise InputError(
            f"the clients ask for {train + test} glyphs, but at most {_MOST_GLYPHS} "
            "are drawn: lower num_clients or the images of a client."
        )
    return Counts(train, test)


def _draw(settings: DataConfig) -> tuple[LabelledSets, str]:
    sets = glyphs.glyphs(settings.glyphs_seed, *_glyphs_needed(settings))
    return sets, f"glyphs drawn with seed {settings.glyphs_seed}"


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
