"""Image sets of TensorFlow Datasets, read and written without TensorFlow.

A set prepared as array_record needs no TensorFlow. One that is not prepared, or only
as tfrecord, does: the extra `tf` installs it. The package is imported when used.
"""

import contextlib
import importlib.util
import io
import json
import logging
import pathlib
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.data.files import Counts, LabelledSets, join_sets, wanted
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.types import ImageSet

FORMAT = "array_record"
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_FIRST_VERSION = "1.0.0"
_BATCH = 1000  # records decoded at once
_SPLITS = ("train", "test")


def folder(tfds_dir: str) -> pathlib.Path:
    """The folder of prepared sets; empty is TensorFlow Datasets' own default."""
    return pathlib.Path(tfds_dir or "~/tensorflow_datasets").expanduser()


@contextlib.contextmanager
def _quiet() -> Iterator[Any]:
    """The package with its progress bars, log lines and warnings switched off."""
    logger = logging.getLogger("absl")
    level = logger.level
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            import tensorflow_datasets as tfds
        except ImportError as error:
            raise InputError(
                f"TensorFlow Datasets is not usable ({error}): pip install "
                "tensorflow-datasets, or use data.dir."
            ) from error
        tfds.disable_progress_bar()
        logger.setLevel(logging.ERROR)
        try:
            yield tfds
        finally:
            logger.setLevel(level)


def prepared(name: str, directory: pathlib.Path) -> dict[str, pathlib.Path]:
    """Newest prepared version of a set in each file format."""
    formats = {}
    for path in sorted((directory / name).glob("*/dataset_info.json"), key=_version):
        if not _VERSION.fullmatch(path.parent.name):
            continue  # what an interrupted preparation leaves
        try:
            info = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        formats[str(info.get("fileFormat", "tfrecord"))] = path.parent
    return formats


def _version(path: pathlib.Path) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", path.parent.name)]


def is_known(name: str, directory: pathlib.Path) -> bool:
    """Whether the set is prepared here, or one that the package can prepare."""
    return bool(prepared(name, directory)) or _registered(name) is not None


def _registered(name: str) -> str | None:
    """The version that the package itself gives a set; None if it has no such set."""
    with _quiet() as tfds:
        try:
            return str(tfds.builder_cls(name.partition("/")[0]).VERSION)
        except ValueError:
            return None


def load_tfds(name: str, directory: pathlib.Path) -> tuple[LabelledSets, str]:
    """The named set of a folder of TensorFlow Datasets, and where it was found."""
    formats = prepared(name, directory)
    _check_readable(name, directory, formats)
    if FORMAT in formats:
        sets = _guarded(
            name, directory, lambda tfds: _read(tfds, name, formats[FORMAT])
        )
        return sets, _phrase(name, directory, FORMAT)
    if formats:
        kind, path = next(iter(formats.items()))
        sets = _guarded(name, directory, lambda tfds: _read_tensors(tfds, name, path))
        return sets, _phrase(name, directory, kind)
    sets = _guarded(name, directory, lambda tfds: _prepare(tfds, name, directory))
    return sets, _phrase(name, directory, FORMAT)


def _check_readable(
    name: str, directory: pathlib.Path, formats: Mapping[str, pathlib.Path]
) -> None:
    """Refuses a set that needs TensorFlow where there is none."""
    if FORMAT in formats or importlib.util.find_spec("tensorflow") is not None:
        return
    what = (
        f"has {name} only as {', '.join(formats)}, which needs TensorFlow"
        if formats
        else f"has no {name}, and preparing it needs TensorFlow"
    )
    raise InputError(
        f"{directory} {what}: pip install 'dpsparfl_jax[tf]' lets TensorFlow "
        "Datasets prepare it, dpsparfl prepare_data makes it from npz or idx files; or "
        f"point data.dir at a folder with {wanted(name)}."
    )


def count(name: str, directory: pathlib.Path) -> Counts | None:
    """How many images a set has that is prepared; None if it cannot be told.

    Refuses a set that is not prepared and cannot be.
    """
    formats = prepared(name, directory)
    _check_readable(name, directory, formats)
    if not formats:
        return None
    path = formats.get(FORMAT) or next(iter(formats.values()))
    try:
        info = json.loads((path / "dataset_info.json").read_text())
        lengths = {
            split["name"]: sum(map(int, split["shardLengths"]))
            for split in info["splits"]
        }
        return Counts(*(lengths[split] for split in _SPLITS))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # reading the set says what is wrong with it


def _phrase(name: str, directory: pathlib.Path, kind: str) -> str:
    return f"TensorFlow Datasets in {directory} ({name}, {kind})"


def _guarded(
    name: str, directory: pathlib.Path, action: Callable[[Any], LabelledSets]
) -> LabelledSets:
    """Does `action` with the package; whatever goes wrong there is one sentence."""
    with _quiet() as tfds:
        try:
            return action(tfds)
        except InputError:
            raise
        except Exception as error:  # downloads, protocol buffers, C++ readers
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise InputError(
                f"TensorFlow Datasets could not give {name} from {directory} "
                f"({reason}): repair it, or point data.dir at a folder with "
                f"{name}.npz."
            ) from error


def _read(tfds: Any, name: str, path: pathlib.Path) -> LabelledSets:
    builder = _open(tfds, name, path)
    arrays: list[NDArray[np.generic]] = []
    for split in _SPLITS:
        source = builder.as_data_source(split=split)
        images, labels = [], []
        for start in range(0, len(source), _BATCH):
            numbers = list(range(start, min(start + _BATCH, len(source))))
            records = source.__getitems__(numbers)
            images.append(np.stack([record["image"] for record in records]))
            labels.append(np.array([record["label"] for record in records]))
        arrays += [np.concatenate(images), np.concatenate(labels)]
    classes = builder.info.features["label"].num_classes or 0
    return join_sets(arrays, name, str(path), classes)


def _read_tensors(tfds: Any, name: str, path: pathlib.Path) -> LabelledSets:
    """Reads a format that only TensorFlow can."""
    builder = _open(tfds, name, path)
    arrays: list[NDArray[np.generic]] = []
    for split in _SPLITS:
        whole = tfds.as_numpy(builder.as_dataset(split=split, batch_size=-1))
        arrays += [whole["image"], whole["label"]]
    classes = builder.info.features["label"].num_classes or 0
    return join_sets(arrays, name, str(path), classes)


def _open(tfds: Any, name: str, path: pathlib.Path) -> Any:
    builder = tfds.builder_from_directory(path)
    features = builder.info.features
    if not {"image", "label"} <= set(features) or not set(_SPLITS) <= set(
        builder.info.splits
    ):
        raise InputError(
            f"{name} in {path} is not a set of labelled images with splits train and "
            "test: choose another."
        )
    return builder


def _prepare(tfds: Any, name: str, directory: pathlib.Path) -> LabelledSets:
    """Lets the package download a set and write it as array_record."""
    tfds.enable_progress_bar()  # a download may take minutes
    builder = tfds.builder(name, data_dir=directory, file_format=FORMAT)
    builder.download_and_prepare()
    return _read(tfds, name, pathlib.Path(builder.data_dir))


def write_tfds(
    sets: LabelledSets,
    name: str,
    directory: str | pathlib.Path,
    progress: Callable[[int], Any] = lambda count: None,
) -> pathlib.Path:
    """Writes a set as array_record that `tfds.data_source(name)` reads; its folder.

    A set that the package knows gets the package's version, so that it is taken for
    prepared. The folder appears when everything is written. `progress` is told of every
    image written.
    """
    target, version = check_absent(name, directory)
    with _quiet() as tfds, tempfile.TemporaryDirectory() as scratch:
        try:
            builder = _writer(tfds, sets, name, version, progress)(
                data_dir=folder(str(directory)), file_format=FORMAT
            )
            builder.download_and_prepare(download_dir=scratch)
        except OSError as error:
            raise InputError(
                f"{target} cannot be written ({error}): choose another folder."
            ) from error
    return target


def check_absent(name: str, directory: str | pathlib.Path) -> tuple[pathlib.Path, str]:
    """Where a set would be written, and its version; refuses one that is there."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot name a set of TensorFlow Datasets: use small letters, "
            "digits and underscores."
        )
    version = _registered(name) or _FIRST_VERSION
    target = folder(str(directory)) / name / version
    if target.exists():
        raise InputError(f"{name} is there already: remove {target} to write it anew.")
    return target, version


def _writer(
    tfds: Any,
    sets: LabelledSets,
    name: str,
    version: str,
    progress: Callable[[int], Any],
) -> Any:
    """A builder class of one set; it stays out of the package's registry."""
    shape = sets.train.images.shape[1:]
    members: dict[str, Any] = {
        "name": name,
        "VERSION": tfds.core.Version(version),
        "_info": lambda self: tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=shape, encoding_format="png"),
                    "label": tfds.features.ClassLabel(num_classes=sets.num_classes),
                }
            ),
            supervised_keys=("image", "label"),
            disable_shuffling=True,
        ),
        "_split_generators": lambda self, _: {
            "train": _examples(sets.train, progress),
            "test": _examples(sets.test, progress),
        },
        "_generate_examples": lambda self: None,
    }
    base = tfds.core.GeneratorBasedBuilder
    return type(base)("Writer", (base,), members, skip_registration=True)


def _examples(
    content: ImageSet, progress: Callable[[int], Any]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Numbered examples; packed here, since the package would use TensorFlow."""
    from PIL import Image

    for number, (image, label) in enumerate(
        zip(content.images, content.labels, strict=True)
    ):
        packed = io.BytesIO()
        plain = image[..., 0] if image.shape[-1] == 1 else image
        Image.fromarray(plain).save(packed, "png", compress_level=1)
        packed.seek(0)
        progress(1)
        yield number, {"image": packed, "label": int(label)}
