"""Runs that are to be recorded, and their plans."""

import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

from dpsparfl_jax import config, records
from dpsparfl_jax import schedule as schedule_lib
from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.data.sources import Loaded
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.schedule import Schedule
from dpsparfl_jax.simulation import inputs
from dpsparfl_jax.simulation.batch import Clock


class Point(NamedTuple):
    """A run that is to be recorded."""

    name: str
    settings: RunConfig
    folder: pathlib.Path


class Hooks(NamedTuple):
    """What the caller lends: the library reads no clock and prints nothing."""

    clock: Clock  # seconds since 1970
    say: Callable[[str], None]
    stop: Callable[[], bool] = lambda: False


class Images(NamedTuple):
    """An image set and a hash of it."""

    loaded: Loaded
    digest: str


class Planned(NamedTuple):
    """A point and its plan; a `problem` instead where there can be none."""

    point: Point
    plan: inputs.Plan | None
    problem: str
    seconds: float


def describe_failure(reason: Exception) -> str:
    """One line: ours as they are, others (a user's policy, say) with their type."""
    if isinstance(reason, InputError):
        return str(reason)
    first = (str(reason).strip().splitlines() or ["no message"])[0]
    return f"{type(reason).__name__}: {first}"


def plan_point(point: Point, known: inputs.Outline, hooks: Hooks) -> Planned:
    """Plans a run, or reads the schedule that its folder has."""
    began = hooks.clock()
    try:
        schedule = _known_schedule(point, hooks)
        plan = inputs.plan_run(point.settings, known, schedule)
    except Exception as reason:
        return Planned(point, None, describe_failure(reason), hooks.clock() - began)
    return Planned(point, plan, "", hooks.clock() - began)


def refuse_other_run(point: Point) -> None:
    """Refuses a folder that holds a run with other settings, and shows them."""
    there = records.read_manifest(point.folder)["config"]
    found = config.differences(
        _results_only(there), _results_only(config.as_dict(point.settings))
    )
    if found:
        raise InputError(
            f"{point.folder} holds another run ({'; '.join(found)}): choose another "
            "--out."
        )


def _results_only(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings without those that move no result: speed, and where images lie."""
    data = {k: v for k, v in settings["data"].items() if k not in ("dir", "tfds_dir")}
    return {**settings, "data": data, "perf": {}}


def _known_schedule(point: Point, hooks: Hooks) -> Schedule | None:
    if not (point.folder / records.MANIFEST).is_file():
        return None
    try:
        return schedule_lib.load(point.folder / records.SCHEDULE)
    except InputError as reason:
        hooks.say(f"{point.name}: {reason} It is planned anew.")
        return None
