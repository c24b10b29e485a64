"""Schedules without training: delays, keep rates, participation of every policy.

    dpsparfl plan --preset=paper_mnist

plans whole runs of the four policies (of dp_sparfl with every solver) and of those that
a `--plugin` registers, in the same world, prints what each does, and with `--plot=FILE`
draws it. `--schedule.policy` plans that one alone, and `--schedule.solver` dp_sparfl
with that solver alone. Any other setting can be changed by its flag.
"""

import dataclasses
import pathlib
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from absl import flags
from tqdm import tqdm

from dpsparfl_jax import config
from dpsparfl_jax.planning import planner as planner_lib
from dpsparfl_jax.planning import schedule as schedule_lib
from dpsparfl_jax.planning import theory
from dpsparfl_jax.planning.schedule import Schedule
from dpsparfl_jax.privacy import first_ledger
from dpsparfl_jax.registry import POLICIES, SOLVERS, Registry

from . import cli, starting

cli.define_config_flags(config.RunConfig())
flags.adopt_module_key_flags(cli)
starting.define_flags("paper_mnist")
_PLOT = flags.DEFINE_string("plot", "", "draw them to this file (png, pdf, svg)")
_QUEUES = flags.DEFINE_string(
    "plot_queues", "", "file of a picture of queues and Theorem 3's bounds"
)
_WORLD = flags.DEFINE_string("plot_world", "", "file of a picture of the world")
_OUT = flags.DEFINE_string("out", "", "folder for the schedules, one npz file each")
_SOLVING = "dp_sparfl"  # the policy that has a solver
_UNITS = ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))


def variants(settings: config.RunConfig) -> dict[str, config.RunConfig]:
    """The settings with every policy and solver that flags leave open, by name.

    Those of the package, and those that plugins registered.
    """
    schedule = settings.schedule
    policies = _open(POLICIES, "schedule.policy", schedule.policy)
    solvers = _open(SOLVERS, "schedule.solver", schedule.solver)
    made = {}
    for policy in policies:
        if policy != _SOLVING:
            made[policy] = dataclasses.replace(schedule, policy=policy)
            continue
        for solver in solvers:
            if solver.startswith("paper") and schedule.clients != "most":
                continue  # it cannot leave channels idle
            made[f"{policy}/{solver}"] = dataclasses.replace(
                schedule, policy=policy, solver=solver
            )
    return {n: dataclasses.replace(settings, schedule=one) for n, one in made.items()}


def _open(registry: Registry[str], setting: str, value: str) -> list[str]:
    """The names that are planned: the one that a flag gives, or all."""
    if cli.is_set(setting):
        return [value]
    return [
        n for n in registry if registry.is_built_in(n) or _is_plugged_in(n, registry)
    ]


def _is_plugged_in(name: str, registry: Registry[str]) -> bool:
    origin = registry.origin(name)
    return origin is not None and bool(origin.plugin)


class Planned(NamedTuple):
    """A schedule, and how long it took to plan."""

    settings: config.RunConfig
    plan: Schedule
    seconds: float


def table(planned: Mapping[str, Planned]) -> str:
    """What every schedule does, a line each; whole runs in the unit that fits them."""
    whole_s = [float(np.sum(one.plan.round_delay_s)) for one in planned.values()]
    shortest = min(filter(None, whole_s), default=0.0)
    unit_s, unit = next((each for each in _UNITS if shortest >= each[0]), _UNITS[-1])
    heads = (
        f"{'policy':<24} rounds all busy    delay    first     last    keep  |share-"
        f"{unit:>9} planned",
        f"{'':<24}           until   mean s   tenth    tenth    mean   beta|"
        "            in s",
    )
    return "\n".join([*heads, *(_line(n, one, unit_s) for n, one in planned.items())])


def _line(name: str, planned: Planned, unit_s: float) -> str:
    settings, plan, seconds = planned
    if not plan.sends.any():
        return f"{name:<24} nobody sends in {plan.num_rounds} rounds: {plan.reason}"
    delay, tenth = plan.round_delay_s, max(1, plan.num_rounds // 10)
    full = plan.sends.all(axis=1)
    busy = plan.num_rounds if full.all() else int(np.argmin(full))
    share = plan.participations / plan.num_rounds
    off = float(np.max(np.abs(share - plan.rate)))
    law = theory.delay_law(settings, plan)
    return (
        f"{name:<24}{plan.num_rounds:7d}{busy:9d}{law.mean_delay_s:9.1f}"
        f"{np.mean(delay[:tenth]):9.1f}{np.mean(delay[-tenth:]):9.1f}"
        f"{np.mean(plan.keep_rate[plan.sends]):8.3f}{off:9.3f}"
        f"{np.sum(delay) / unit_s:9.2f}{seconds:8.1f}"
    )


def main() -> None:
    """Plans, prints, draws and saves."""
    start = starting.begin()
    if start is None:
        return
    for flag, path in (
        ("plot", _PLOT.value),
        ("plot_queues", _QUEUES.value),
        ("plot_world", _WORLD.value),
    ):
        cli.check_output(flag, path)
        if path:
            cli.check_picture(path)
    with cli.kept_if_used(_OUT.value):
        if _OUT.value:
            cli.check_folder("out", _OUT.value)
        _show(start)


def _show(start: starting.Start) -> None:
    from dpsparfl_jax.report import picture_style, plan_pictures  # load matplotlib

    settings = start.settings
    varied = [] if cli.is_set("schedule.policy") else ["schedule.policy"]
    for note in cli.notes(settings, varied):
        print(note, file=sys.stderr)
    from dpsparfl_jax.runner.run import Run  # JAX takes seconds to load

    run = Run(start.name, settings).outlined()
    ledger, message = first_ledger.start_ledger(
        settings,
        run.outline.sizes,
        run.outline.capacity,
        run.outline.model.parameters,
    )
    print(message)
    planner = run.make_planner(ledger)
    warning = planner_lib.delay_warning(planner)
    if warning:
        print(warning, file=sys.stderr)
    if _WORLD.value:
        picture_style.save(plan_pictures.world_figure(planner.world), _WORLD.value)
    made = {}
    for name, variant in tqdm(
        variants(settings).items(), desc="policies", disable=None, leave=False
    ):
        began = time.perf_counter()
        planned = dataclasses.replace(run, settings=variant)
        plan = planner_lib.plan(planned.make_planner(ledger))
        made[name] = Planned(variant, plan, time.perf_counter() - began)
        if _OUT.value:
            file = f"{name.replace('/', '_')}.npz"
            schedule_lib.save(plan, pathlib.Path(_OUT.value) / file)
    print(table(made))
    schedules = {name: one.plan for name, one in made.items()}
    if _PLOT.value and any(plan.sends.any() for plan in schedules.values()):
        target = settings.schedule.delay_target_s
        shown = {name: plan for name, plan in schedules.items() if plan.sends.any()}
        picture_style.save(plan_pictures.schedule_figure(shown, target), _PLOT.value)
        print(f"figure: {_PLOT.value}")
    long = {name: plan for name, plan in schedules.items() if plan.num_rounds > 1}
    if _QUEUES.value and long:
        bounds = {
            name: theory.queue_bounds(settings, plan) for name, plan in long.items()
        }
        picture_style.save(plan_pictures.queue_figure(bounds), _QUEUES.value)
        print(f"figure of the queues: {_QUEUES.value}")


if __name__ == "__main__":
    cli.run(main)
