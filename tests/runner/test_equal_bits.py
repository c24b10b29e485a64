"""Are whole runs the same to the bit on any number of devices, as documents say?

Compiled as users' programs are. `python -m benchmarks.equal_bits` compares more runs,
with convolutions; test_cohort has eight devices, test_distributed several processes.
"""

import jax
import numpy as np
import pytest

from dpsparfl_jax.runner.batch import Batch
from tests import toy

KEPT = {"optimizer": "momentum", "optimizer_state": "kept"}
WAYS = {
    "map": ({}, {"execution": "map"}, (1, 2, 4)),
    "chunked": (
        KEPT,
        {"execution": "chunked", "chunk_size": 2, "ordered_sums": True},
        (1, 2),
    ),
}


def outputs(training, perf):
    """Bits of every round: state of the server, what tasks told, evaluation."""
    settings = toy.settings(
        training=training,
        wireless={"num_channels": 5},  # one is left over on two and on four devices
        length={"rounds": 4},
        perf={"eval_batch_size": 16, "padded_sizes": 1, **perf},
    )
    rounds = Batch([toy.prepare(settings)]).train(snapshot_every=1)
    return [
        [
            *map(np.asarray, jax.tree.leaves((one.state, one.diagnostics))),
            *map(np.float64, (one.accuracy, one.loss)),
        ]
        for outputs in rounds
        for one in outputs
    ]


@pytest.mark.parametrize("way", WAYS)
def test_the_number_of_devices_moves_no_bit_of_a_run(way):
    training, perf, numbers = WAYS[way]
    expected, *others = (
        outputs(training, {**perf, "devices": devices}) for devices in numbers
    )
    assert len(expected) == 4
    for got in others:
        for theirs, ours in zip(expected, got, strict=True):
            for a, b in zip(theirs, ours, strict=True):
                assert a.tobytes() == b.tobytes()
