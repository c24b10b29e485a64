"""Does `perf.ordered_sums` make runs in chunks equal to the bit on several devices?

Where tasks go one by one they are so by themselves: four devices are in test_batch,
eight in test_cohort, two processes in test_distributed, and convolutions, for all ways,
in `python -m benchmarks.equal_bits`.
"""

import jax
import numpy as np

from dpsparfl_jax.runner.batch import Batch
from tests import toy


def outputs(devices):
    """Bits of every round: state of the server, what tasks told, evaluation."""
    settings = toy.settings(
        training={"optimizer": "momentum", "optimizer_state": "kept"},
        wireless={"num_channels": 5},  # in chunks of two: one slot is idle
        length={"rounds": 4},
        perf={
            "devices": devices,
            "execution": "chunked",
            "chunk_size": 2,
            "ordered_sums": True,
            "eval_batch_size": 16,
            "padded_sizes": 1,
        },
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


def test_the_number_of_devices_moves_no_bit_of_a_run_in_chunks():
    expected, got = outputs(1), outputs(4)
    assert len(expected) == len(got) == 4
    for ours, theirs in zip(expected, got, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert a.tobytes() == b.tobytes()
