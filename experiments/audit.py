"""Attacks on the compiled training program: is epsilon what is claimed?

    dpsparfl audit --quick

runs four audits of the program that runs train with, and writes one page (audit.md), a
picture and the numbers (audit.json). White-box: lower bounds on epsilon beside what
both accountants claim. Sensitivity: no record, however crafted, moves a sum by more
than the clip bound. Generator: noise, masks and batches are as random as is assumed.
One run: canaries by coins in a whole simulated run. The exit code is 1 if a fault is
found. Without --quick it takes some minutes. Bounds need the extra `audit`.
"""

import sys
from collections.abc import Callable

from absl import flags
from tqdm import tqdm

from dpsparfl_jax import config
from dpsparfl_jax.errors import InputError

from . import cli, grid
from .auditing import (
    bounds,
    catalogue,
    generator,
    one_run,
    results,
    sensitivity,
    white_box,
)

_PARTS = ("white_box", "sensitivity", "generator", "one_run")
_DATA = ("data.name", "data.dir", "data.tfds_dir")
_DEFAULT = config.RunConfig()

cli.define_config_flags(_DEFAULT, _DATA)
flags.adopt_module_key_flags(cli)
_QUICK = flags.DEFINE_bool("quick", False, "a small form, for a first look and for CI")
_ONLY = flags.DEFINE_list(
    "only", list(_PARTS), f"parts to run, separated by commas: {', '.join(_PARTS)}"
)
_TRIALS = flags.DEFINE_integer(
    "trials", None, "white-box: runs with the canary, and as many without"
)
_DELTA = flags.DEFINE_float(
    "delta", _DEFAULT.privacy.delta, "white-box: delta of claims and bounds"
)
_ONE_RUN_DELTA = flags.DEFINE_float(
    "one_run_delta",
    1e-5,
    "one run: delta of claims and bounds; far below one over the canaries",
)
_SIGNIFICANCE = flags.DEFINE_float(
    "significance", 0.05, "probability that any lower bound of a part is too high"
)
_SEED = flags.DEFINE_integer("seed", 0, "seed of everything random", lower_bound=0)
_OUT = flags.DEFINE_string("out", "runs/audit", "folder of the page")


def check_flags() -> None:
    """Refuses what has no answer."""
    if unknown := [name for name in _ONLY.value if name not in _PARTS]:
        raise InputError(
            f"--only={unknown[0]} is no part of the audit: use {', '.join(_PARTS)}."
        )
    for flag in (_DELTA, _ONE_RUN_DELTA):
        if not 0 < flag.value < 1:
            raise InputError(
                f"--{flag.name} must lie strictly between 0 and 1, but is "
                f"{flag.value:g}."
            )
    if not 0 < _SIGNIFICANCE.value < 0.5:
        raise InputError(
            "--significance must lie strictly between 0 and 1/2, but is "
            f"{_SIGNIFICANCE.value:g}."
        )
    if _TRIALS.value is not None and _TRIALS.value < 100:
        raise InputError(f"--trials must be at least 100, but is {_TRIALS.value}.")
    if not 0 <= _SEED.value < 2**31:
        raise InputError(f"--seed must lie below 2^31, but is {_SEED.value}.")


def _bar(part: str, total: int) -> tqdm:
    return tqdm(desc=part, total=total, disable=None, leave=False)


def main() -> int:
    """Runs the audits, prints their tables and writes the page."""
    check_flags()
    folder = cli.check_folder("out", _OUT.value)
    if {"white_box", "one_run"} & set(_ONLY.value):
        bounds.auditing()  # refuses at once, not after minutes
    size = catalogue.QUICK if _QUICK.value else catalogue.FULL
    if _TRIALS.value is not None:
        size = size._replace(trials=_TRIALS.value)
    found = results.Results(_DELTA.value, _ONE_RUN_DELTA.value, _SIGNIFICANCE.value)
    parts: dict[str, Callable[[], str]] = {
        "white_box": lambda: _white_box(size, found),
        "sensitivity": lambda: _sensitivity(size, found),
        "generator": lambda: _generator(size, found),
        "one_run": lambda: _one_run(size, found),
    }
    for name, run in parts.items():
        if name in _ONLY.value:
            print(f"{run()}\n", flush=True)
    print(f"page: {results.write(found, folder)}")
    faults = found.faults()
    for sentence in faults:
        print(sentence, file=sys.stderr)
    return int(bool(faults))


def _white_box(size: catalogue.Size, found: results.Results) -> str:
    rounds = sum(setting.rounds for setting in size.white_box.values())
    with _bar("white-box", rounds) as bar:
        for name, setting in size.white_box.items():
            found.white_box.append(
                white_box.audit(
                    *(name, setting, size.trials),
                    delta=_DELTA.value,
                    significance=_SIGNIFICANCE.value / len(size.white_box),
                    seed=_SEED.value,
                    tick=bar.update,
                )
            )
    return results.white_box_table(found.white_box)


def _sensitivity(size: catalogue.Size, found: results.Results) -> str:
    settings = sensitivity.default_settings(size.models, ("ghost", "vmap"))
    with _bar("sensitivity", len(settings)) as bar:
        found.sensitivity += sensitivity.check(
            settings, size.canaries, seed=_SEED.value, tick=bar.update
        )
    return results.sensitivity_table(found.sensitivity)


def _generator(size: catalogue.Size, found: results.Results) -> str:
    with _bar("generator", generator.PARTS * len(size.generators)) as bar:
        for name in size.generators:
            found.generator[name] = generator.check(
                name, seeds=size.seeds, seed=_SEED.value, tick=bar.update
            )
    return results.generator_table(found.generator)


def _one_run(size: catalogue.Size, found: results.Results) -> str:
    plan = size.one_run
    data = grid.change(_DEFAULT, cli.given(_DATA)).data
    with _bar("one run", plan.clients * plan.participations) as bar:
        found.one_run += one_run.audit(
            plan,
            data,
            delta=_ONE_RUN_DELTA.value,
            significance=_SIGNIFICANCE.value / (plan.clients + 1),
            seed=_SEED.value,
            tick=bar.update,
        )
    return results.one_run_table(found.one_run)


if __name__ == "__main__":
    cli.run(main)
