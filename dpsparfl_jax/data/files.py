"""Image sets from npz and idx files, checked before use."""

import gzip
import math
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
# The original files in the order of _ARRAYS, and how many axes each has.
_IDX = (
    ("train-images", 3),
    ("train-labels", 1),
    ("t10k-images", 3),
    ("t10k-labels", 1),
)
_IDX_BYTES = 0x08  # type code of unsigned bytes
_GZIP = b"\x1f\x8b"


class LabelledSets(NamedTuple):
    """A training and a test set with the same classes."""

    train: ImageSet
    test: ImageSet
    num_classes: int


def load_npz(name: str, directory: str | pathlib.Path) -> LabelledSets:
    """Reads `<directory>/<name>.npz` with train/test images and labels."""
    path = pathlib.Path(directory).expanduser() / f"{name}.npz"
    if not path.is_file():
        raise InputError(
            f"no file {path}: point data.dir at a folder that holds {name}.npz."
        )
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = [_read_member(archive, f"{key}.npy") for key in _ARRAYS]
    except _UNREADABLE as error:
        raise InputError(
            f"{path} is not readable as an npz of {', '.join(_ARRAYS)} ({error})."
        ) from error
    return join_sets(arrays, name, str(path))


def _read_member(archive: zipfile.ZipFile, name: str) -> NDArray[np.generic]:
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
    labelled = int(max(train.labels.max(), test.labels.max())) + 1
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
    paths = _idx_files(folder)
    missing = [stem for stem, _ in _IDX if stem not in paths]
    if missing:
        raise InputError(
            f"{folder} has only some of the four idx files: add {', '.join(missing)}."
        )
    arrays: list[NDArray[np.generic]] = []
    for stem, axes in _IDX:
        content = read_idx(paths[stem], axes)
        arrays.append(content[..., None] if axes == 3 else content)
    return join_sets(arrays, name, str(folder))


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
    """Names of the sets that a folder holds as npz or in folders of idx files."""
    names = {path.stem for path in directory.glob("*.npz")}
    names |= {path.name for path in directory.iterdir() if has_idx(path)}
    return tuple(sorted(names))


def load_folder(name: str, directory: str | pathlib.Path) -> tuple[LabelledSets, str]:
    """The named set of a folder and where exactly it was found.

    Looks for `<name>.npz`, then for idx files in `<name>/`, then in the folder itself.
    """
    root = pathlib.Path(directory).expanduser()
    if not root.is_dir():
        raise InputError(
            f"no folder {root}: point data.dir at one that holds {name}.npz or the "
            "four idx files."
        )
    if (root / f"{name}.npz").is_file():
        return load_npz(name, root), str(root / f"{name}.npz")
    for folder in (root / name, root):
        if has_idx(folder):
            return load_idx(name, folder), f"the idx files in {folder}"
    has = ", ".join(set_names(root)) or "no image set"
    raise InputError(
        f"{root} has neither {name}.npz nor the four idx files "
        f"(train-images-idx3-ubyte and so on, here or in {name}/), but {has}: change "
        "data.name or data.dir."
    )
