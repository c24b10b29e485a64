r"""Image sets from a folder of npz or idx files, made into TensorFlow Datasets.

    dpsparfl prepare_data --from=DIR --to=TFDS_DIR

writes every set found in DIR (or the one of --name) as array_record, which any program
reads with `tfds.data_source(name, data_dir=TFDS_DIR)` and a run of this project with
`--data.tfds_dir=TFDS_DIR`, both without TensorFlow. A set appears when it is complete.
"""

import os
import pathlib
import time

from absl import flags
from tqdm import tqdm

from dpsparfl_jax.data import files, tfds_sets
from dpsparfl_jax.errors import InputError

from . import cli

_FROM = flags.DEFINE_string("from", "", "folder with <name>.npz or idx files")
_TO = flags.DEFINE_string("to", "", "folder of TensorFlow Datasets to write to")
_NAME = flags.DEFINE_string("name", "", "the set to prepare; empty prepares all found")


def find_names(source: pathlib.Path) -> tuple[str, ...]:
    """Sets to prepare."""
    if _NAME.value:
        return (_NAME.value,)
    names = files.set_names(source)
    if not names:
        hint = (
            "its idx files need --name" if files.has_idx(source) else "look elsewhere"
        )
        raise InputError(f"--from={source} has no set that can be named: {hint}.")
    return names


def make_target(path: str) -> pathlib.Path:
    """The folder to write to, made if its parent is there."""
    target = pathlib.Path(path).expanduser()
    try:
        target.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(
            f"--to={path} cannot be made ({error.strerror}): choose another folder."
        ) from error
    if not os.access(target, os.W_OK | os.X_OK):
        raise InputError(f"--to={path} is not writable: choose another folder.")
    return target


def prepare(name: str, source: pathlib.Path, target: pathlib.Path) -> None:
    """Writes one set and prints what was written."""
    begin = time.perf_counter()
    sets, place = files.load_folder(name, source)
    train, test = len(sets.train.labels), len(sets.test.labels)
    with tqdm(total=train + test, desc=name, disable=None, leave=False) as bar:
        written = tfds_sets.write_tfds(sets, name, target, bar.update)
    seconds = time.perf_counter() - begin
    print(
        f"{name}: {train} training and {test} test images from {place} to {written} "
        f"in {seconds:.1f} s"
    )


def main() -> None:
    """Prepares the sets, after checking that none is there already."""
    for flag, value in (("from", _FROM.value), ("to", _TO.value)):
        if not value:
            raise InputError(f"--{flag} is missing: give a folder.")
    source = pathlib.Path(_FROM.value).expanduser()
    if not source.is_dir():
        raise InputError(f"--from={_FROM.value} is no folder: give one with images.")
    names = find_names(source)
    target = make_target(_TO.value)
    for name in names:
        tfds_sets.check_absent(name, target)
    for name in names:
        prepare(name, source, target)


if __name__ == "__main__":
    cli.run(main)
