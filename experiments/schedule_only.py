"""Schedules without training: delays, keep rates, participation of every policy.

    python -m experiments.schedule_only --preset=paper_mnist

plans whole runs of the four policies (and of dp_sparfl with every solver) in the same
world, prints what each does, and draws it. Any setting can be changed by its flag.
"""

import dataclasses
import pathlib
import sys
import time

import numpy as np
from absl import flags
from tqdm import tqdm

from dpsparfl_jax import config
from dpsparfl_jax.planning import planner as planner_lib
from dpsparfl_jax.planning import schedule as schedule_lib
from dpsparfl_jax.planning import theory
from dpsparfl_jax.planning.schedule import Schedule
from dpsparfl_jax.privacy import first_ledger

from . import cli, starting

cli.define_config_flags(config.RunConfig())
flags.adopt_module_key_flags(cli)
starting.define_flags("paper_mnist")
_PLOT = flags.DEFINE_string("plot", "schedules.png", "file of the figure; empty: none")
_QUEUES = flags.DEFINE_string(
    "plot_queues", "", "file of a picture of queues and Theorem 3's bounds"
)
_WORLD = flags.DEFINE_string("plot_world", "", "file of a picture of the world")
_OUT = flags.DEFINE_string("out", "", "folder for the schedules, one npz file each")
RUNS = (
    ("dp_sparfl", "joint"),
    ("dp_sparfl", "descent"),
    ("dp_sparfl", "paper"),
    ("dp_sparfl", "paper_strict"),
    ("dp_sparfl", "paper_low"),
    ("delay_min", ""),
    ("round_robin", ""),
    ("random", ""),
)

_ALL_PLANNED = ("schedule.policy", "schedule.solver")


def variants(settings: config.RunConfig) -> dict[str, config.RunConfig]:
    """The settings with every policy and solver, by name."""
    made = {}
    for policy, solver in RUNS:
        if solver.startswith("paper") and settings.schedule.clients != "most":
            continue  # it cannot leave channels idle
        schedule = dataclasses.replace(settings.schedule, policy=policy)
        if solver:
            schedule = dataclasses.replace(schedule, solver=solver)
        name = f"{policy}/{solver}" if solver else policy
        made[name] = dataclasses.replace(settings, schedule=schedule)
    return made


def line(name: str, settings: config.RunConfig, plan: Schedule, seconds: float) -> str:
    """One row of the table."""
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
        f"{np.sum(delay) / 3600:8.2f}{seconds:8.1f}"
    )


def _notes(settings: config.RunConfig) -> list[str]:
    """Sentences on flags that change nothing."""
    planned = [name for name in _ALL_PLANNED if cli.is_set(name)]
    return [
        *(f"{name} has no effect: all of them are planned." for name in planned),
        *cli.notes(settings, _ALL_PLANNED),
    ]


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
    if _OUT.value:
        cli.check_folder("out", _OUT.value)
    from dpsparfl_jax.report import picture_style, plan_pictures  # load matplotlib

    settings = start.settings
    for note in _notes(settings):
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
    schedules, rows = {}, []
    for name, variant in tqdm(
        variants(settings).items(), desc="policies", disable=None, leave=False
    ):
        began = time.perf_counter()
        planned = dataclasses.replace(run, settings=variant)
        plan = planner_lib.plan(planned.make_planner(ledger))
        rows.append(line(name, variant, plan, time.perf_counter() - began))
        schedules[name] = plan
        if _OUT.value:
            file = f"{name.replace('/', '_')}.npz"
            schedule_lib.save(plan, pathlib.Path(_OUT.value) / file)
    print(
        f"{'policy':<24} rounds all busy    delay    first     last    keep  |share-"
        "   hours planned"
    )
    print(
        f"{'':<24}           until   mean s   tenth    tenth    mean   beta|"
        "            in s"
    )
    print("\n".join(rows))
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
