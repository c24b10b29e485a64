"""Are canaries planted and scored as the theorem asks, and is missing noise noticed?"""

import dataclasses

import numpy as np
import pytest

from dpsparfl_jax import config
from dpsparfl_jax.runner import programs
from dpsparfl_jax.runner.run import Run, load_images
from experiments.auditing import one_run, probes
from tests.broken_mechanisms import scale_noise

# Little is claimed of it, so that little must be proved if the noise is not there.
PLAN = one_run.Plan(
    model="logistic",
    clients=2,
    records=100,
    batch_size=20.0,
    steps=5,
    participations=4,
    noise_multiplier=8.0,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Images of noise: their gradients have next to nothing in common."""
    folder = tmp_path_factory.mktemp("noise")
    stream = np.random.default_rng(0)
    parts = {}
    for part, count in (("train", 300), ("test", 20)):
        parts[f"{part}_images"] = stream.integers(0, 256, (count, 16, 16, 1), np.uint8)
        parts[f"{part}_labels"] = np.arange(count) % 10
    np.savez(folder / "noise.npz", **parts)
    return config.DataConfig(name="noise", dir=str(folder))


def audit(data, plan=PLAN):
    pytest.importorskip("jax_privacy")
    return one_run.audit(plan, data, delta=1e-5, significance=1e-3)


def test_coins_decide_who_is_in_and_nothing_else(data):
    settings = one_run.run_settings(PLAN, data, 1e-5, seed=3)
    run = Run("audit", settings).outlined().planned()
    images = load_images(settings)
    planted, coins = one_run.plant(run, images, seed=3)
    train = planted.data.images.sets.train
    assert coins.rows.shape == coins.present.shape == (2, 100)
    assert 60 < coins.present.sum() < 140  # by chance: 1e-8
    there = train.labels[coins.rows]
    assert np.all(there[~coins.present] == probes.NOBODYS_LABEL)
    wanted = coins.records.labels[coins.rows]
    assert np.array_equal(there[coins.present], wanted[coins.present])
    assert np.all(wanted < 10)
    others = np.setdiff1d(np.arange(len(train.labels)), coins.rows)
    assert np.array_equal(train.labels[others], images.sets.train.labels[others])
    assert np.array_equal(
        coins.rows, np.stack(planted.data.clients.train)
    )  # the same owners as without canaries
    assert np.all(run.schedule.participations == PLAN.participations)
    assert run.schedule.client.shape[1] == 1  # a round shows one client's update


def test_missing_noise_is_noticed_and_good_noise_passes(data, monkeypatch):
    """By chance for one choice of keys in a thousand."""
    good = audit(data)
    assert [each.who for each in good] == ["client 0", "client 1", "all clients"]
    assert not any(each.is_broken for each in good)
    programs.get_program.cache_clear()
    scale_noise(0.005, monkeypatch)
    bad = audit(data)
    programs.get_program.cache_clear()
    assert bad[-1].is_broken
    assert bad[-1].auroc > 0.9 > 0.7 > good[-1].auroc


@pytest.mark.slow
def test_more_noise_proves_less(data):
    loud = dataclasses.replace(PLAN, noise_multiplier=0.4)
    assert audit(data, loud)[-1].auroc > audit(data)[-1].auroc
