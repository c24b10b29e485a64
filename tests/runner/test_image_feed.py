"""Do runs find the same records, whether images are resident or streamed?"""

import jax
import numpy as np
import pytest

from dpsparfl_jax import memory
from dpsparfl_jax.runner import image_feed
from dpsparfl_jax.runner.batch import Batch
from dpsparfl_jax.training import placement
from dpsparfl_jax.types import ImageSet
from tests import toy


def outputs(runs, place, **perf):
    settings = [
        toy.settings(
            seed,
            data={"partition": "imbalanced"},
            length={"rounds": rounds, "eval_on": "validation"},
            wireless={"num_channels": 3},
            perf={"padded_sizes": 1, "images": place, **perf},
        )
        for seed, rounds in runs
    ]
    batch = Batch([toy.prepare(each) for each in settings])
    assert batch.images == place
    found = [out for outs in batch.train(snapshot_every=2) for out in outs]
    told = [
        (out.run, out.round_index, out.accuracy, out.loss, out.diagnostics, out.state)
        for out in found
    ]
    return jax.tree.leaves(told)


@pytest.mark.parametrize(("execution", "devices"), [("map", 2), ("chunked", 2)])
def test_streamed_images_give_the_same_bits_as_resident_ones(execution, devices):
    """Three channels on two devices: one task is shared by both."""
    several = execution == "chunked"
    runs = [(0, 4), (1, 3)] if several else [(0, 4)]
    perf = {"execution": execution, "devices": devices, "chunk_size": 2}
    perf["ordered_sums"] = several
    resident, streamed = (
        outputs(runs, place, **perf) for place in ("resident", "streamed")
    )
    for a, b in zip(resident, streamed, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("count", [1, 3, 5, 8])
@pytest.mark.parametrize(
    ("execution", "chunk", "ordered"),
    [
        ("map", 1, False),
        ("vmap", 1, False),
        ("chunked", 2, False),
        ("chunked", 2, True),
    ],
)
def test_every_device_has_the_records_of_its_tasks(count, execution, chunk, ordered):
    shares = placement.tasks_of_devices(
        count,
        devices=2,
        steps=4,
        execution=execution,
        chunk_size=chunk,
        ordered_sums=ordered,
    )
    assert set(np.concatenate(shares)) == set(range(count))
    sizes = np.array([3, 0, 5, 1, 2, 4, 7, 6][:count])
    first, used = image_feed.lay_out(shares, sizes)
    for share, filled in zip(shares, used, strict=True):
        taken = [place for t in share for place in range(first[t], first[t] + sizes[t])]
        assert len(set(taken)) == len(taken)
        assert max(taken, default=-1) < filled


def test_images_are_streamed_where_they_would_fill_the_memory(monkeypatch):
    run = toy.prepare(toy.settings())
    assert image_feed.choose_place(run) == "resident"
    images = run.data.images.sets.train
    needed = images.images.nbytes + images.labels.nbytes
    for total, place in ((16 * needed, "resident"), (15 * needed, "streamed")):
        monkeypatch.setattr(memory, "total_bytes", lambda total=total: float(total))
        assert image_feed.choose_place(run) == place


def test_a_device_gets_few_bytes_where_clients_are_many():
    """Of 6 clients 2 send: a third of what is owned, and nothing that nobody owns."""
    run = toy.prepare(toy.settings(perf={"images": "streamed"}))
    batch = Batch([run])
    (coming,) = batch._coming(np.array([5]))
    sent = ImageSet(*map(np.asarray, coming.records.data))
    assert len(sent.labels) == 120 == run.outline.sizes.sum() // 3
    own = [run.data.clients.train[c] for c in coming.tasks.client]
    expected = run.data.images.sets.train.labels[np.concatenate(own)]
    np.testing.assert_array_equal(np.sort(sent.labels), np.sort(expected))
