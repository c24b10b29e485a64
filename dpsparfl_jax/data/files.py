"""Image sets from npz, npy and idx files, checked before use."""

import gzip
import math
import pathlib
import zipfile
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.data import mapped
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.storage import UNREADABLE
from dpsparfl_jax.types import ImageSet

_ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")
# What Keras calls them, whose mnist.npz has images without an axis of channels.
_KERAS = dict(zip(_ARRAYS, ("x_train", "y_train", "x_test", "y_test"), strict=True))
# The original files in the order of _ARRAYS, and how many axes each has.
_IDX = (
    ("train-images", 3),
    ("train-labels", 1),
    ("t10k-images", 3),
    ("t10k-labels", 1),
)
_IDX_BYTES = 0x08  # type code of unsigned bytes
_GZIP = b"\x1f\x8b"


class Counts(NamedTuple):
    """How many images a set has."""

    train: int
    test: int


class LabelledSets(NamedTuple):
    """A training and a test set with the same classes."""

    train: ImageSet
    test: ImageSet
    num_classes: int


def wanted(name: str) -> str:
    """The file of a set in words, for whoever has none yet."""
    arrays = ", ".join(_KERAS.values())
    return f"{name}.npz (Keras' own file, or any npz with the arrays {arrays})"


def load_npz(name: str, directory: str | pathlib.Path) -> LabelledSets:
    """Reads `<directory>/<name>.npz` with train/test images and labels."""
    path = pathlib.Path(directory).expanduser() / f"{name}.npz"
    if not path.is_file():
        raise InputError(
            f"no file {path}: point data.dir at a folder that holds {name}.npz."
        )
    return join_sets(_read_npz(path, _ARRAYS), name, str(path))


def _read_npz(path: pathlib.Path, keys: Sequence[str]) -> list[NDArray[np.generic]]:
    try:
        with zipfile.ZipFile(path) as archive:
            if not _is_of_keras(archive):
                return [_read_member(path, archive, f"{key}.npy") for key in keys]
            return [
                _as_ours(_read_member(path, archive, f"{_KERAS[key]}.npy"), key)
                for key in keys
            ]
    except UNREADABLE as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise InputError(
            f"{path} is not readable as an npz of {', '.join(_ARRAYS)}, or of "
            f"{', '.join(_KERAS.values())} ({reason})."
        ) from error


def _is_of_keras(archive: zipfile.ZipFile) -> bool:
    """Whether an npz has any array that is called as in Keras, and none as here."""
    names = {name.removesuffix(".npy") for name in archive.namelist()}
    return bool(names & {*_KERAS.values()}) and not names & {*_ARRAYS}


def _as_ours(array: NDArray[np.generic], key: str) -> NDArray[np.generic]:
    """Images [n, h, w, c] and labels [n] where Keras has [n, h, w] and [n, 1]."""
    if "images" in key:
        return array[..., None] if array.ndim == 3 else array
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def _read_member(
    path: pathlib.Path, archive: zipfile.ZipFile, name: str
) -> NDArray[np.generic]:
    array = mapped.map_member(path, archive, name)
    if array is not None:
        return array
    with archive.open(name) as member:
        return np.lib.format.read_array(member, allow_pickle=False)


def join_sets(
    arrays: list[NDArray[np.generic]], name: str, place: str, classes: int = 0
) -> LabelledSets:
    """Both sets from train images and labels, test images and labels.

    There are `classes` classes, or as many as the largest label asks for.
    """
    train = check_images(arrays[0], arrays[1], name=f"{name} train")
    test = check_images(arrays[2], arrays[3], name=f"{name} test")
    if train.images.shape[1:] != test.images.shape[1:]:
        raise InputError(f"{place} has train and test images of different shapes.")
    labelled = int(train.labels.max()) + 1
    if labelled > max(classes, len(train.labels)):
        raise InputError(
            f"{place} has labels up to {labelled - 1} on {len(train.labels)} training "
            "images: number the classes from 0 on, without gaps."
        )
    unseen = np.setdiff1d(test.labels, train.labels)
    if unseen.size:
        raise InputError(
            f"{place} has test images of class {unseen[0]}, which no training image "
            "has: leave them out, or add training images of that class."
        )
    return LabelledSets(train, test, max(classes, labelled))


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
    if labels.max() > np.iinfo(np.int32).max:
        raise InputError(f"{name}: labels must be class numbers, not {labels.max()}.")
    return ImageSet(images, labels.astype(np.int32))


def read_idx(path: pathlib.Path, axes: int) -> NDArray[np.uint8]:
    """The bytes of one idx file, packed with gzip or not, with so many axes."""
    try:
        content = path.read_bytes()
        if content[:2] == _GZIP:
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} is not readable ({error}): fetch it anew.") from error
    start = 4 + 4 * axes
    if len(content) < start or content[:4] != bytes([0, 0, _IDX_BYTES, axes]):
        raise InputError(
            f"{path} is not an idx file of bytes with {axes} axes: fetch it anew."
        )
    shape = [int(size) for size in np.frombuffer(content[4:start], ">u4")]
    if len(content) - start != math.prod(shape):
        raise InputError(
            f"{path} should hold {math.prod(shape)} values but holds "
            f"{len(content) - start}: fetch it anew."
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def load_idx(name: str, folder: pathlib.Path) -> LabelledSets:
    """Reads the four original idx files of a folder."""
    paths = _all_idx_files(folder)
    arrays: list[NDArray[np.generic]] = []
    for stem, axes in _IDX:
        content = read_idx(paths[stem], axes)
        arrays.append(content[..., None] if axes == 3 else content)
    return join_sets(arrays, name, str(folder))


def _all_idx_files(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """The four original files of a folder."""
    paths = _idx_files(folder)
    missing = [stem for stem, _ in _IDX if stem not in paths]
    if missing:
        raise InputError(
            f"{folder} has only some of the four idx files: add {', '.join(missing)}."
        )
    return paths


def _idx_files(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Which of the original files a folder has, in any of their spellings."""
    paths: dict[str, pathlib.Path] = {}
    for stem, axes in _IDX:
        for ending in ("", ".gz"):
            for sign in "-.":
                path = folder / f"{stem}{sign}idx{axes}-ubyte{ending}"
                if path.is_file():
                    paths.setdefault(stem, path)
    return paths


def has_idx(folder: pathlib.Path) -> bool:
    """Whether a folder has any of the original idx files."""
    return bool(_idx_files(folder))


def set_names(directory: pathlib.Path) -> tuple[str, ...]:
    """Names of the sets that a folder holds, as npz files or in their own folders."""
    names = {path.stem for path in directory.glob("*.npz")}
    names |= {
        path.name for path in directory.iterdir() if _has_npy(path) or has_idx(path)
    }
    return tuple(sorted(names))


def _locate(name: str, directory: str | pathlib.Path) -> pathlib.Path:
    """The npz file of the named set in a folder, or the folder of its other files.

    Looks for `<name>.npz`, then for npy and idx files in `<name>/`, then for idx files
    in the folder itself.
    """
    root = pathlib.Path(directory).expanduser()
    if not root.is_dir():
        raise InputError(
            f"no folder {root}: point data.dir at one that holds {wanted(name)} or the "
            "four idx files."
        )
    if (root / f"{name}.npz").is_file():
        return root / f"{name}.npz"
    if _has_npy(root / name):
        return root / name
    for folder in (root / name, root):
        if has_idx(folder):
            return folder
    if there := ", ".join(set_names(root)):
        what = f"{there}: change data.name or data.dir."
    else:
        what = f"no image set: change data.dir, or put {wanted(name)} there."
    raise InputError(
        f"{root} has neither {name}.npz nor the four idx files "
        f"(train-images-idx3-ubyte and so on, here or in {name}/), but {what}"
    )


def load_folder(name: str, directory: str | pathlib.Path) -> tuple[LabelledSets, str]:
    """The named set of a folder and where exactly it was found."""
    place = _locate(name, directory)
    if place.suffix == ".npz" and place.is_file():
        return load_npz(name, directory), str(place)
    if _has_npy(place):
        arrays = _read_npy(place, _ARRAYS)
        return join_sets(arrays, name, str(place)), f"the npy files in {place}"
    return load_idx(name, place), f"the idx files in {place}"


def count_folder(name: str, directory: str | pathlib.Path) -> Counts:
    """How many images the named set of a folder has, by its labels alone."""
    place = _locate(name, directory)
    names = [key for key in _ARRAYS if "labels" in key]
    if place.suffix == ".npz" and place.is_file():
        return Counts(*(array.size for array in _read_npz(place, names)))
    if _has_npy(place):
        return Counts(*(array.size for array in _read_npy(place, names)))
    return count_idx(place)


def _has_npy(folder: pathlib.Path) -> bool:
    """Whether a folder has any of the four arrays as a file of its own."""
    return any((folder / f"{key}.npy").is_file() for key in _ARRAYS)


def _read_npy(folder: pathlib.Path, keys: Sequence[str]) -> list[NDArray[np.generic]]:
    arrays = []
    for key in keys:
        path = folder / f"{key}.npy"
        try:
            arrays.append(mapped.map_file(path))
        except FileNotFoundError:
            raise InputError(
                f"{folder} has only some of {', '.join(_ARRAYS)} as npy files: add "
                f"{path.name}."
            ) from None
        except UNREADABLE as error:
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise InputError(f"{path} is not readable as npy ({reason}).") from error
    return arrays


def count_idx(folder: pathlib.Path) -> Counts:
    """How many images the idx files of a folder have, by its labels alone."""
    paths = _all_idx_files(folder)
    return Counts(*(read_idx(paths[s], axes).size for s, axes in _IDX if axes == 1))
