"""A small image set on disk and settings to run it with, for whole-run tests."""

import dataclasses
import functools
import pathlib
import tempfile

import numpy as np

from dpsparfl_jax import config
from dpsparfl_jax.runner.run import Run, load_images

SHAPE = (8, 8, 1)


@functools.cache
def folder() -> str:
    """A folder with toy.npz: ten classes of noisy 8x8 patterns, easily learned."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="toy_"))
    write(path / "toy.npz", SHAPE)
    return str(path)


@functools.cache
def curves() -> str:
    """A folder for the epsilon curves of toy runs, which many share."""
    return tempfile.mkdtemp(prefix="toy_curves_")


def write(path, shape, train=1200, test=400):
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 256, (10, *shape))

    def draw(count):
        labels = np.arange(count) % 10
        noisy = patterns[labels] * 0.7 + rng.normal(0, 40, (count, *shape)) + 30
        return np.clip(noisy, 0, 255).astype(np.uint8), labels

    (train_images, train_labels), (test_images, test_labels) = draw(train), draw(test)
    np.savez(
        path,
        train_images=train_images,
        train_labels=train_labels,
        test_images=test_images,
        test_labels=test_labels,
    )


def settings(seed=0, **changes) -> config.RunConfig:
    """A private run of a few rounds; `section={...}` changes settings of a section."""
    base = config.RunConfig(
        data=config.DataConfig(
            name="toy",
            dir=folder(),
            num_clients=6,
            train_examples=60,
            test_examples=20,
            group_sizes="30,60,90",
        ),
        model=config.ModelConfig(name="logistic"),
        training=config.TrainingConfig(
            local_steps=4, batch_size=6, learning_rate=0.1, clip_norm=2.0
        ),
        # Tests compare runs that differ in one setting, draw by draw.
        privacy=config.PrivacyConfig(
            noise_multiplier=1.0, epsilon_lo=3.0, noise_key="paired"
        ),
        wireless=config.WirelessConfig(num_channels=2, cycles_per_sample=1e6),
        schedule=config.ScheduleConfig(delay_target_s=0.2, energy_budget_j=1.0),
        length=config.LengthConfig(rounds=6),
        perf=config.PerfConfig(
            cache_dir=curves(), devices=1, padded_sizes=2, tensorboard=False
        ),
        seed=seed,
    )
    sections = {
        name: dataclasses.replace(getattr(base, name), **values)
        for name, values in changes.items()
    }
    return dataclasses.replace(base, **sections)


def prepare(each: config.RunConfig, name="run") -> Run:
    """A run with all that training needs."""
    run = Run(name, each).outlined().planned()
    return run.with_images(load_images(each))
