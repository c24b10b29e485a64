"""Which runs of a sweep travel together: those that share a compiled program."""

import collections
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from dpsparfl_jax import config_values
from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.data import partition


class Batch(NamedTuple):
    """What a worker needs to know; plain values, so that it can be sent anywhere.

    Attributes:
        number: its place in the sweep, from 0.
        settings: those of its runs, as plain values by the names of their folders.
        out: the sweep's folder, in which every run has its own.
        launch: the folder in which this launch keeps what workers tell.
        cores: that the worker may use; 0 are all of its machine.
        plugins: Python files or modules that register what the settings name.
        notes: on the settings, to be recorded.
        at: the folder in which relative paths begin.
        version: of this package, which the worker must have too.
        log: services that get the rounds too.
    """

    number: int
    settings: dict[str, dict[str, Any]]
    out: str
    launch: str
    cores: int = 0
    plugins: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    at: str = "."
    version: str = ""
    log: tuple[str, ...] = ()


class Result(NamedTuple):
    """What became of a batch's runs, by name."""

    finished: list[str]
    skipped: list[str]
    stopped: list[str]
    failed: dict[str, str]  # and why


def deal(
    settings: Mapping[str, RunConfig], workers: int, *, each: int = 1, most: int = 0
) -> list[list[str]]:
    """Names of runs, batch by batch, the largest batch first.

    Args:
        settings: the runs by name.
        workers: how many batches can be trained at the same time.
        each: about how many batches every worker is to have. With several of them a
            worker that is done early takes another one.
        most: runs of one batch at the most; 0 is no limit.

    Returns:
        Batches whose runs share a program. Batches of one program have the same number
        of runs (or one less), because that number is compiled in.
    """
    groups: dict[Hashable, list[str]] = collections.defaultdict(list)
    sizes: dict[Hashable, Hashable] = {}
    for name, one in settings.items():
        groups[_shape(one, sizes)].append(name)
    wanted = -(-len(settings) // (workers * each))
    size = min(wanted, most) if most else wanted
    dealt = []
    for names in groups.values():
        count = -(-len(names) // size)
        dealt += [names[first::count] for first in range(count)]
    return sorted(dealt, key=len, reverse=True)


def _shape(settings: RunConfig, sizes: dict[Hashable, Hashable]) -> Hashable:
    """What runs of one program have in common, as far as settings tell.

    Whoever trains a batch looks more closely, and may still need two programs for it.
    """
    data = settings.data
    if data not in sizes:
        sizes[data] = partition.client_sizes(data).tobytes()
    return (
        tuple(config_values.static(settings).items()),
        (data.image_set, data.test_examples, data.partition_file, sizes[data]),
        settings.training.batch_size,
        settings.privacy.overflow_probability,
        settings.wireless.num_channels,
        settings.length.eval_on,
        (settings.perf.devices, settings.perf.batch_memory_mb),
    )
