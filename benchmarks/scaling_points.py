"""The points of one quantity, measured in a process of their own.

    python -m benchmarks.scaling_points --quantity=batch --values=2,4,8

prints a JSON object a point; `benchmarks.scaling` starts it. The number of CPU devices
is fixed when JAX starts, and the peak memory of a process never falls: so a process
measures one quantity, its points in ascending order. `peak_rss_mb` holds all points up
to this one and compilation too. Rounds of all points are timed by turns.
"""

import json
import math
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
from absl import flags

from benchmarks import rounds, timing
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.training import models
from experiments import cli

SHAPE = (28, 28, 1)
PARAMETERS = "parameters"
QUANTITIES = ("batch", "steps", "clients", PARAMETERS, "devices", "runs")

_QUANTITY = flags.DEFINE_enum("quantity", None, QUANTITIES, "what grows", required=True)
_VALUES = flags.DEFINE_list(
    "values", None, "its values; for parameters, widths of a dense layer", required=True
)
_MODEL = flags.DEFINE_string("model", "mnist_cnn", "name of the network")
_REPEATS = flags.DEFINE_integer("repeats", 3, "timed rounds of a point", 1)
_BATCH = flags.DEFINE_integer("batch", 16, "expected examples of a step", 1)
_STEPS = flags.DEFINE_integer("steps", 5, "local steps of a round", 1)
_CLIENTS = flags.DEFINE_integer("clients", 2, "clients of a round", 1)
_PADDED = flags.DEFINE_integer("padded_sizes", 6, "sizes of padded batches", 1)


def network(value: int) -> nn.Module:
    """The network of a point; of parameters, the MNIST network with another width."""
    if _QUANTITY.value == PARAMETERS:
        return models.ConvNet((32, 64), 5, (value,), 10)
    return models.make_model(_MODEL.value)


class Point(NamedTuple):
    """A round that is ready to be timed, and its row but for the time."""

    work: timing.Contender
    row: dict[str, Any]


def prepare(value: int) -> Point:
    """Compiles a point and runs it once."""
    size = rounds.Size(
        _BATCH.value, _STEPS.value, _CLIENTS.value, padded_sizes=_PADDED.value
    )
    if _QUANTITY.value != PARAMETERS:
        size = size._replace(**{_QUANTITY.value: value})
    made = rounds.make_round(network(value), SHAPE, size)
    made.work()
    count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(made.params))
    row = {
        "quantity": _QUANTITY.value,
        "value": count if _QUANTITY.value == PARAMETERS else value,
        "megabytes": rounds.planned_bytes(made.compiled) / 1e6,
        "peak_rss_mb": round(_peak_rss_mb(), 1),
        **size._asdict(),
        "parameters": count,
    }
    return Point(made.work, row)


def timed(points: Sequence[Point], repeats: int) -> list[dict[str, Any]]:
    """The rows of points that take turns, each with its fastest round."""
    best = [math.inf] * len(points)
    for _ in range(repeats):
        for place, point in enumerate(points):
            start = time.perf_counter()
            point.work()
            best[place] = min(best[place], time.perf_counter() - start)
    return [
        {
            **point.row,
            "seconds": seconds,
            "examples_per_s": round(_expected(point.row) / seconds, 1),
        }
        for point, seconds in zip(points, best, strict=True)
    ]


def _expected(row: Mapping[str, Any]) -> int:
    """Expected examples of a round."""
    return math.prod(row[name] for name in ("batch", "steps", "clients", "runs"))


def _peak_rss_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def main() -> None:
    """Prepares the points in ascending order, times them and prints their rows."""
    try:
        values = sorted(int(value) for value in _VALUES.value)
    except ValueError:
        raise InputError("--values are whole numbers, with commas between.") from None
    rounds.use_devices(values[-1] if _QUANTITY.value == "devices" else 1)
    points = [prepare(value) for value in values]
    for row in timed(points, _REPEATS.value):
        print(json.dumps(row))


if __name__ == "__main__":
    cli.run(main)
