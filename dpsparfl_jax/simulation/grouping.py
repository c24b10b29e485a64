"""Which runs of a grid train together in one program."""

import collections
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.simulation import programs
from dpsparfl_jax.simulation.inputs import Outline
from dpsparfl_jax.training import cohort

_COPIES = 5  # of the parameters: server, sums, new server, snapshot, host
_COPIES_IN_TRAINING = 4  # of a task: local parameters, mask, gradient, update


def batch_key(settings: RunConfig, known: Outline) -> tuple[Any, ...]:
    """Runs with equal keys can share a batch."""
    data, perf = settings.data, settings.perf
    return (
        programs.program_key(settings, known),
        data.image_set,
        (len(known.sizes), data.test_examples, data.partition_file),
        perf.batch_memory_mb,
    )


def run_bytes(settings: RunConfig, known: Outline) -> int:
    """About what one more run of a batch takes on the device."""
    execution = cohort.resolve_execution(settings.perf.execution, jax.default_backend())
    at_once = {"map": 0, "vmap": settings.wireless.num_channels, "chunked": 0}
    copies = _COPIES + _COPIES_IN_TRAINING * at_once[execution]
    tables = 4 * len(known.sizes) * int(np.max(known.sizes))
    return 4 * known.num_parameters * copies + tables


def group_runs(
    runs: Sequence[RunConfig], outlines: Sequence[Outline]
) -> list[list[int]]:
    """Numbers of runs that train together: equal shapes, bounded memory."""
    groups: dict[Any, list[int]] = collections.defaultdict(list)
    for number, (settings, known) in enumerate(zip(runs, outlines, strict=True)):
        groups[batch_key(settings, known)].append(number)
    batches = []
    for members in groups.values():
        first = members[0]
        room = runs[first].perf.batch_memory_mb * 1e6
        most = max(1, int(room // run_bytes(runs[first], outlines[first])))
        batches += [members[i : i + most] for i in range(0, len(members), most)]
    return batches
