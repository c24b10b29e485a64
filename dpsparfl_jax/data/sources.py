"""Image sets from files, checked before use."""

import pathlib
import tokenize
import zipfile
import zlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.types import ImageSet

# What zipfile and NumPy's header parser raise on damaged files.
_UNREADABLE = (
    KeyError,
    ValueError,
    OSError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    SyntaxError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
_ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")


class LabelledSets(NamedTuple):
    """A training and a test set with the same classes."""

    train: ImageSet
    test: ImageSet
    num_classes: int


def load_npz(name: str, directory: str | pathlib.Path) -> LabelledSets:
    """Reads `<directory>/<name>.npz` with train/test images and labels."""
    path = pathlib.Path(directory) / f"{name}.npz"
    if not path.is_file():
        raise InputError(
            f"no file {path}: point --data.dir at a folder that holds {name}.npz."
        )
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = [_read_member(archive, f"{key}.npy") for key in _ARRAYS]
    except _UNREADABLE as error:
        raise InputError(
            f"{path} is not readable as an npz of {', '.join(_ARRAYS)} ({error})."
        ) from error
    train = check_images(arrays[0], arrays[1], name=f"{name} train")
    test = check_images(arrays[2], arrays[3], name=f"{name} test")
    if train.images.shape[1:] != test.images.shape[1:]:
        raise InputError(f"{path} has train and test images of different shapes.")
    classes = int(max(train.labels.max(), test.labels.max())) + 1
    return LabelledSets(train, test, classes)


def _read_member(archive: zipfile.ZipFile, name: str) -> NDArray[np.generic]:
    with archive.open(name) as member:
        return np.lib.format.read_array(member, allow_pickle=False)


def check_images(
    images: NDArray[np.generic], labels: NDArray[np.generic], name: str = "the data"
) -> ImageSet:
    """An ImageSet of uint8 pixels [n, h, w, c] and labels [n], or a clear refusal.

    Pixels must be bytes: they are stored once on the device and normalised on the fly,
    and a byte cannot be nan.
    """
    images, labels = np.asarray(images), np.asarray(labels)
    if images.dtype != np.uint8:
        raise InputError(
            f"{name}: images must be uint8 in 0..255, not {images.dtype}: convert them."
        )
    if images.ndim != 4 or 0 in images.shape:
        raise InputError(
            f"{name}: images must have shape [n, height, width, channels], not "
            f"{list(images.shape)}."
        )
    if not np.issubdtype(labels.dtype, np.integer) or labels.shape != images.shape[:1]:
        raise InputError(
            f"{name}: labels must be {images.shape[0]} integers, not "
            f"{labels.dtype} of shape {list(labels.shape)}."
        )
    if labels.min() < 0:
        raise InputError(f"{name}: labels must not be negative.")
    return ImageSet(images, labels.astype(np.int32))
