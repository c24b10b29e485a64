"""What is audited: the settings of the full form, and of the quick one."""

import dataclasses
from typing import NamedTuple

from .one_run import Plan
from .program import Setting

WHOLE = Setting(records=4, batch_size=4)
POISSON = Setting(records=8, batch_size=2)

# Names say what a setting adds to those before it.
WHITE_BOX: dict[str, Setting] = {
    "one Gaussian release": dataclasses.replace(WHOLE, noise_multiplier=1.0),
    "eight releases": dataclasses.replace(WHOLE, noise_multiplier=4.0, rounds=8),
    "Poisson batches": dataclasses.replace(POISSON, noise_multiplier=2.0, rounds=20),
    "masks that keep 20%": dataclasses.replace(
        POISSON, batch_size=4, noise_multiplier=2.0, rounds=8, keep_rate=0.2
    ),
    "the paper's noise": dataclasses.replace(
        POISSON, batch_size=1, noise_multiplier=0.6, rounds=10, keep_rate=0.5
    ),
    "textbook clipping, short hash": dataclasses.replace(
        POISSON,
        noise_multiplier=1.5,
        rounds=10,
        keep_rate=0.5,
        method="vmap",
        generator="threefry13",
    ),
    "masks of a fixed count": dataclasses.replace(
        POISSON,
        batch_size=4,
        noise_multiplier=3.0,
        rounds=12,
        keep_rate=0.3,
        sparsifier="fixed_count",
    ),
    "clipping that is not adjusted": dataclasses.replace(
        POISSON,
        batch_size=4,
        noise_multiplier=2.0,
        rounds=6,
        keep_rate=0.5,
        clipping="unadjusted",
    ),
    "tasks one by one": dataclasses.replace(
        POISSON, batch_size=4, noise_multiplier=1.5, rounds=3, execution="map"
    ),
    "four steps a participation": dataclasses.replace(
        POISSON, batch_size=4, noise_multiplier=2.0, rounds=4, steps=4
    ),
}


class Size(NamedTuple):
    """How much is done."""

    white_box: dict[str, Setting]
    trials: int  # runs with the canary, and as many without
    models: tuple[str, ...]  # of the sensitivity check
    canaries: int  # of every family
    generators: tuple[str, ...]
    seeds: int  # of the generator check
    one_run: Plan


FULL = Size(
    WHITE_BOX,
    100_000,
    ("audit_linear", "audit_dense", "audit_conv"),
    300,
    ("threefry", "threefry13"),
    1024,
    Plan(),
)
QUICK = Size(
    {name: WHITE_BOX[name] for name in ("one Gaussian release", "masks that keep 20%")},
    5_000,
    ("audit_dense",),
    50,
    ("threefry",),
    32,
    Plan(
        model="logistic",
        clients=2,
        records=100,
        batch_size=20.0,
        steps=5,
        participations=2,
    ),
)
