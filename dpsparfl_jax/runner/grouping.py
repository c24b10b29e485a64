"""Which runs of a grid train together in one program."""

import collections
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from dpsparfl_jax import memory
from dpsparfl_jax.runner import programs
from dpsparfl_jax.runner.run import Run
from dpsparfl_jax.training import cohort

_COPIES = 8  # of the parameters: server, average, both new; sums, snapshot, host
_COPIES_IN_TRAINING = 4  # of a task: local parameters, mask, gradient, update


def batch_key(run: Run) -> tuple[Any, ...]:
    """Runs with equal keys can share a batch: one program, one image set, one shape."""
    data = run.settings.data
    return (
        programs.program_key(run.settings, run.outline),
        data.image_set,
        (len(run.outline.sizes), data.test_examples, data.partition_file),
        run.settings.length.eval_on,
        run.settings.perf.batch_memory_mb,
    )


def run_bytes(run: Run) -> int:
    """About what one more run of a batch takes on the device."""
    settings, outline = run.settings, run.outline
    execution = cohort.resolve_execution(settings.perf.execution, jax.default_backend())
    at_once = {"map": 0, "vmap": settings.wireless.num_channels, "chunked": 0}
    copies = _COPIES + _COPIES_IN_TRAINING * at_once[execution]
    if settings.training.optimizer_state == "kept":
        copies += _COPIES * len(outline.sizes)
    tables = 4 * int(np.sum(outline.sizes))
    return 4 * outline.model.parameters * copies + tables


def check_memory(run: Run) -> None:
    """Refuses a model that this machine cannot train, for as many clients."""
    parameters, clients = run.outline.model.parameters, len(run.outline.sizes)
    memory.require(
        run_bytes(run),
        f"training {parameters:,} parameters for {clients:,} clients",
        "choose a smaller model, or lower data.num_clients",
    )


def group_runs(runs: Sequence[Run]) -> list[list[int]]:
    """Numbers of outlined runs that train together: equal shapes, bounded memory."""
    groups: dict[Any, list[int]] = collections.defaultdict(list)
    for number, run in enumerate(runs):
        groups[batch_key(run)].append(number)
    batches = []
    for members in groups.values():
        first = runs[members[0]]
        room = first.settings.perf.batch_memory_mb * 1e6
        most = max(1, int(room // run_bytes(first)))
        batches += [members[i : i + most] for i in range(0, len(members), most)]
    return batches
