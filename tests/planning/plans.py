"""Plans of the paper's cell, for tests of planning."""

import dataclasses

import numpy as np

from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.planning import planner as planning
from dpsparfl_jax.privacy import first_ledger
from dpsparfl_jax.types import ModelSize
from experiments import presets

PARAMETERS, UNITS = 1_663_370, 618  # of mnist_cnn
MODEL = ModelSize(PARAMETERS, UNITS)
SIZES = np.full(20, 1000)


def config(seed=0, rounds=0, epsilon_hi=6.0, wireless=None, **changes) -> RunConfig:
    base = presets.get_preset("paper_mnist").settings
    return dataclasses.replace(
        base,
        privacy=dataclasses.replace(
            base.privacy, epsilon_hi=epsilon_hi, accountant="rdp"
        ),
        schedule=dataclasses.replace(base.schedule, **changes),
        wireless=dataclasses.replace(base.wireless, **(wireless or {})),
        length=dataclasses.replace(base.length, rounds=rounds),
        perf=dataclasses.replace(base.perf, cache_dir=""),
        seed=seed,
    )


def plan(settings, sizes=SIZES):
    ledger, _ = first_ledger.start_ledger(settings, sizes, 60, 1000)
    return planning.plan(planning.Planner(settings, sizes, MODEL, ledger))


def same_schedules(left, right):
    for field in dataclasses.fields(left):
        ours, theirs = getattr(left, field.name), getattr(right, field.name)
        np.testing.assert_array_equal(ours, theirs, err_msg=field.name)
