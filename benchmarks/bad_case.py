"""What a bad input is, and the small world that it is tried in."""

import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

Prepare = Callable[[pathlib.Path], None]
_WORLD = (
    "--data.name=toy",
    "--data.num_clients=4",
    "--data.train_examples=20",
    "--data.test_examples=5",
    "--model.name=logistic",
    "--training.local_steps=2",
    "--training.batch_size=4",
    "--privacy.noise_multiplier=2",
    "--wireless.num_channels=2",
    "--length.rounds=1",
    "--perf.devices=1",
    "--schedule.policy=random",
    "--perf.cache_dir={shared}",
)
SMALL = (*_WORLD, "--data.dir={shared}")  # where `write_toy` has put its file
FROM_FILE = (*SMALL, "--out={root}/out", "--data.partition=file")
OWN = (*_WORLD, "--data.dir={root}")


class Case(NamedTuple):
    """One bad input."""

    name: str
    program: str  # "python" calls `python` of the module that runs cases
    arguments: tuple[str, ...]
    prepare: Prepare | None = None
    needs_run: bool = False  # a finished run in {root}/run


def write_toy(folder: pathlib.Path, **changes: Any) -> None:
    """`toy.npz`, a small good image set, with some of its arrays changed."""
    np.savez(folder / "toy.npz", **toy_arrays(changes))


def toy_arrays(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays of a small good image set; None leaves one out."""
    draw = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "train_images": draw.integers(0, 256, (120, 4, 4, 1), np.uint8),
        "train_labels": np.arange(120) % 10,
        "test_images": draw.integers(0, 256, (40, 4, 4, 1), np.uint8),
        "test_labels": np.arange(40) % 10,
    }
    arrays.update(changes)
    return {name: array for name, array in arrays.items() if array is not None}


def run_case(name: str, *flags: str, prepare: Prepare | None = None) -> Case:
    """A run with these flags; with files of its own if `prepare` makes them."""
    where = OWN if prepare is not None else SMALL
    return Case(name, "run", (*where, "--out={root}/out", *flags), prepare)
