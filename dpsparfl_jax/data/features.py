"""Image sets as fixed features of their images, computed once.

Features take the place of images: bytes of shape [height, width, channels], so that all
that follows treats them alike. They cost no privacy, because those of an image depend
on that image alone: wavelets that nobody trained, and means and variances over its own
coefficients. (Means and variances over the data, which others use, would have to be
paid for.)

Sets are kept in memory (the last one) and, if a folder is given, in an npz file each,
whose name is a hash of every input that matters. A folder that cannot be used, or a
file in it that is damaged, costs time and a line in the log, never a result.
"""

import concurrent.futures
import hashlib
import logging
import os
import pathlib

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from dpsparfl_jax import storage
from dpsparfl_jax.data import files, scattering
from dpsparfl_jax.data.files import LabelledSets
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.types import ImageSet

_VERSION = 1  # of what is computed: a file of another one is not read
_BOUND = 4.0  # standard deviations beyond which coefficients are cut off
_LEAST_VARIANCE = 1e-8  # of a group of coefficients: less is rounding
_CHUNK = 20_000  # values of images transformed at once: what is between fits a cache
_LOG = logging.getLogger(__name__)
_last: dict[str, LabelledSets] = {}


def scattering_sets(
    sets: LabelledSets, folder: str | os.PathLike[str] = ""
) -> LabelledSets:
    """The same sets with scattering features in place of images.

    Args:
        sets: labelled images of any sizes that `scattering.shape_of` allows.
        folder: where features are kept; empty keeps them on no disk.
    """
    scattering.shape_of(sets.train.images.shape[1:])
    name = _digest(sets)
    if name not in _last:
        made = _read(name, folder)
        if made is None:
            images = _transform(sets)
            made = sets._replace(
                train=ImageSet(images[0], sets.train.labels),
                test=ImageSet(images[1], sets.test.labels),
            )
            _write(name, folder, made)
        _last.clear()
        _last[name] = made._replace(num_classes=sets.num_classes)
    return _last[name]


def _transform(sets: LabelledSets) -> list[NDArray[np.uint8]]:
    """Features of both sets, with all cores: NumPy and the FFT let threads run."""
    made, jobs = [], []
    for images in (sets.train.images, sets.test.images):
        shape = scattering.shape_of(images.shape[1:])
        out = np.empty((len(images), *shape), np.uint8)
        made.append(out)
        size = max(1, _CHUNK // images[0].size)
        jobs += [(images, out, start, size) for start in range(0, len(images), size)]
    with (
        concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool,
        tqdm(
            total=sum(map(len, made)),
            desc="scattering features",
            unit="image",
            disable=None,
            leave=False,
        ) as bar,
    ):
        for count in pool.map(lambda job: _fill(*job), jobs):
            bar.update(count)
    return made


def _fill(
    images: NDArray[np.uint8], out: NDArray[np.uint8], start: int, size: int
) -> int:
    part = scattering_bytes(images[start : start + size])
    out[start : start + size] = part
    return len(part)


def scattering_bytes(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Features [n, H/4, W/4, 81 C] of images [n, H, W, C]; 0..255 is -4..4.

    The coefficients of each order and colour of an image have mean 0 and variance 1, as
    a group norm makes them, and are cut off at four standard deviations.
    """
    count, height, width, colours = images.shape
    pictures = np.moveaxis(images, 3, 1).reshape(-1, height, width)
    values = scattering.scatter(pictures.astype(np.float32) / np.float32(255))
    end = 0
    for paths in scattering.ORDERS:
        group = values[:, end : end + paths]
        group -= group.mean((1, 2, 3), keepdims=True)
        spread = np.square(group).mean((1, 2, 3), keepdims=True)
        group /= np.sqrt(spread + np.float32(_LEAST_VARIANCE))
        end += paths
    np.clip(values, -_BOUND, _BOUND, out=values)
    levels = np.rint((values + np.float32(_BOUND)) * np.float32(255 / (2 * _BOUND)))
    steps = levels.shape[2:]
    tables = levels.astype(np.uint8).reshape(count, colours * scattering.PATHS, *steps)
    return np.ascontiguousarray(np.moveaxis(tables, 1, 3))


def _digest(sets: LabelledSets) -> str:
    """Every input that matters."""
    total = hashlib.sha256(f"scattering {_VERSION}".encode())
    for part in (sets.train, sets.test):
        for array in part:
            total.update(f"{array.shape};".encode())
            total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()[:32]


def _read(name: str, folder: str | os.PathLike[str]) -> LabelledSets | None:
    if not folder:
        return None
    path = pathlib.Path(folder).expanduser()
    if not (path / f"{name}.npz").is_file():
        return None
    try:
        return files.load_npz(name, path)
    except InputError as reason:
        _LOG.warning("%s Computing it again.", reason)
        return None


def _write(name: str, folder: str | os.PathLike[str], sets: LabelledSets) -> None:
    """Writes the file as a whole, so that no reader sees half of it."""
    if not folder:
        return
    path = pathlib.Path(folder).expanduser()
    try:
        path.mkdir(parents=True, exist_ok=True)
        with storage.replacing(path / f"{name}.npz") as part, open(part, "wb") as file:
            np.savez(
                file,
                train_images=sets.train.images,
                train_labels=sets.train.labels,
                test_images=sets.test.images,
                test_labels=sets.test.labels,
            )
    except (OSError, ValueError) as reason:
        _LOG.warning(
            "features are not kept on disk (%s): they will be computed anew next time.",
            reason,
        )
