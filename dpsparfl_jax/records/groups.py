"""Many runs as groups: those that differ in their seed alone are one setting."""

import functools
import math
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpsparfl_jax import config, config_values
from dpsparfl_jax.records.columns import finite
from dpsparfl_jax.records.comparisons import half_interval
from dpsparfl_jax.records.index import CURVES, IndexedRun

BANDS = {  # around means over seeds
    "range": "from the least to the largest",
    "interval": "95% interval of the mean (Student's t)",
}


class Spread(NamedTuple):
    """A number of the runs of a group: its mean, and from where to where it goes."""

    mean: float
    low: float
    high: float


class Group(NamedTuple):
    """Runs with the same settings but for the seed."""

    settings: dict[str, Any]  # by name, those in which groups differ
    runs: list[IndexedRun]

    @property
    def name(self) -> str:
        """The settings in words, with the last part of their names if that will do."""
        labels = short_names(list(self.settings))
        pairs = zip(labels, self.settings.values(), strict=True)
        return ", ".join(f"{label}={as_text(value)}" for label, value in pairs) or "all"

    @property
    def private(self) -> bool:
        """Whether the epsilons of all of its runs cover all that they do."""
        return all(run.private for run in self.runs)

    def spread(self, name: str) -> Spread | None:
        """A number of the summary over the runs that have it; None if none has."""
        return spread([run.summary.get(name) for run in self.runs])


def spread(values: Sequence[Any]) -> Spread | None:
    """Mean, least and largest of the finite values; None if there is none."""
    there = [value for value in map(finite, values) if value is not None]
    if not there:
        return None
    mean = math.fsum(there) / len(there)
    return Spread(min(max(mean, min(there)), max(there)), min(there), max(there))


def short_names(settings: Sequence[str]) -> list[str]:
    """Names of settings without their sections, unless two would be the same."""
    fields = [name.rpartition(".")[2] for name in settings]
    return fields if len(set(fields)) == len(fields) else list(settings)


def as_text(value: Any) -> str:
    """A setting's value in words: short numbers, and no folder of this machine."""
    return f"{value:g}" if isinstance(value, float) else str(without_path(value))


def without_path(value: Any) -> Any:
    """The same value, or the last name of a path to somewhere on this machine."""
    if isinstance(value, str) and value.startswith(("/", "~")):
        return f"…/{pathlib.PurePath(value).name}"
    return value


def flat(content: dict[str, Any]) -> dict[str, Any]:
    """All settings as `section.name`; of folders elsewhere, the last name only."""
    settings: dict[str, Any] = {}
    for section, values in content.items():
        inside = values.items() if isinstance(values, dict) else [("", values)]
        for name, value in inside:
            settings[f"{section}.{name}".rstrip(".")] = without_path(value)
    return settings


@functools.cache
def _idle() -> frozenset[str]:
    """Settings that move no result, or its rounding alone."""
    return frozenset(
        f"{section}.{name}"
        for what in ("rounding", "nothing")
        for section, values in config_values.moving(config.RunConfig(), what).items()
        for name in values
    )


def differing(runs: Sequence[IndexedRun]) -> list[str]:
    """Settings that move results and in which runs differ, but for the seed."""
    return differing_settings([run.manifest["config"] for run in runs])


def differing_settings(contents: Sequence[dict[str, Any]]) -> list[str]:
    """Names of the settings that move results and differ, but for the seed."""
    first, names = contents[0], []
    for section in dict.fromkeys(name for content in contents for name in content):
        parts = [content.get(section) for content in contents]
        if section == "seed" or all(part == first.get(section) for part in parts):
            continue
        tables = [part if isinstance(part, dict) else {"": part} for part in parts]
        for field in dict.fromkeys(name for table in tables for name in table):
            name = f"{section}.{field}".rstrip(".")
            values = {repr(table.get(field)) for table in tables}
            if len(values) > 1 and name not in _idle():
                names.append(name)
    return names


def value_of(run: IndexedRun, name: str) -> Any:
    """A setting of a run, by its name; None if it has no such one."""
    return setting_of(run.manifest["config"], name)


def setting_of(content: dict[str, Any], name: str) -> Any:
    """A setting among all of a run's, by its name; None if there is no such one."""
    section, _, field = name.partition(".")
    values = content.get(section)
    return values.get(field) if field and isinstance(values, dict) else values


def group_runs(runs: Sequence[IndexedRun]) -> list[Group]:
    """Groups in the order of their settings' values; seeds in order within them."""
    if not runs:
        return []
    names = differing(runs)
    made: dict[tuple[str, ...], Group] = {}
    for run in runs:
        settings = {name: value_of(run, name) for name in names}
        key = tuple(map(repr, settings.values()))
        made.setdefault(key, Group(settings, [])).runs.append(run)
    for group in made.values():
        group.runs.sort(key=lambda run: order_of(value_of(run, "seed")))
    groups = list(made.values())
    groups.sort(key=lambda group: list(map(order_of, group.settings.values())))
    return groups


def order_of(value: Any) -> tuple[int, float, str]:
    """Sorts values of a setting: numbers by size, before all else by name."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 0, float(value), ""
    return 1, 0.0, str(value)


def bands(runs: Sequence[IndexedRun], band: str = "range") -> pd.DataFrame:
    """Thinned curves over seeds, at the rounds that all of these runs tell of.

    Every column has its mean, and the ends of its band as `NAME_low` and `NAME_high`;
    not a number where a run has none.

    Args:
        runs: those of one setting.
        band: one of `BANDS`.
    """
    curves = [run.curves for run in runs]
    rounds = [curve.get("round", []) for curve in curves]
    common = sorted(set(rounds[0]).intersection(*rounds[1:]))
    table: dict[str, Any] = {"round": common}
    for name in CURVES[1:]:
        if all(name in curve for curve in curves):
            values = np.stack([_at(curve, name, common) for curve in curves])
            mean = np.mean(values, axis=0)
            ends = np.min(values, axis=0), np.max(values, axis=0)
            if band == "interval":
                half = half_interval(values)
                ends = mean - half, mean + half
            table |= {name: mean, f"{name}_low": ends[0], f"{name}_high": ends[1]}
    return pd.DataFrame(table)


def _at(curve: dict[str, Any], name: str, rounds: Sequence[int]) -> NDArray[Any]:
    known = dict(zip(curve["round"], curve[name], strict=True))
    return np.array([known[number] for number in rounds], float)


def runs_frame(runs: Sequence[IndexedRun]) -> pd.DataFrame:
    """One row a run: its summary, and the settings in which runs differ."""
    names = differing(runs)
    if len({value_of(run, "seed") for run in runs}) > 1:
        names.append("seed")
    table = [
        {"run": run.name, "done": run.done, "private": run.private, **run.summary}
        | {name: without_path(value_of(run, name)) for name in names}
        for run in runs
    ]
    return pd.DataFrame(table, dtype=object)
