"""Recorded runs as charts show them: those that differ in their seed alone are one."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dpsparfl_jax.records import IndexedRun, RecordedRun, groups
from dpsparfl_jax.registry import POLICIES
from dpsparfl_jax.report import charts, palette
from dpsparfl_jax.report.charts import Shown


class Entry(NamedTuple):
    """What has one name and one look, and the runs that it stands for."""

    shown: Shown
    runs: list[RecordedRun]


def show_runs(runs: Sequence[RecordedRun]) -> list[Entry]:
    """Entries in the order of their settings.

    Finished runs of one setting are one entry, unless two of them have the same seed;
    every unfinished run is its own. The order does not depend on where folders are, so
    that all pages of the same runs have the same colours.
    """
    names = groups.differing_settings([run.manifest["config"] for run in runs])
    parts = sorted(_parts(runs, names), key=lambda part: _rank(part[0], names))
    needed = telling([_settings(part[0], names) for part in parts])
    looks = palette.looks(_looked_up([part[0] for part in parts]))
    return [
        Entry(_show(number, part, look, needed), part)
        for number, (part, look) in enumerate(zip(parts, looks, strict=True))
    ]


def _looked_up(firsts: Sequence[RecordedRun]) -> list[str | None]:
    """Names by which runs have their looks: a finished run has that of its policy."""
    finished = {policy_of(run) for run in firsts if run.done}
    named = [(run.done, policy_of(run)) for run in firsts]
    return [name if done or name not in finished else None for done, name in named]


def policy_of(run: RecordedRun | IndexedRun) -> str | None:
    """The name of its policy, by which it has its colour."""
    return groups.setting_of(run.manifest["config"], "schedule.policy")


def telling(settings: Sequence[dict[str, Any]]) -> list[str]:
    """Names of few settings that tell all of these apart, words before numbers.

    Examples:
        >>> telling([{"a": "x", "b": 1.0}, {"a": "y", "b": 2.0}, {"a": "y", "b": 2.0}])
        ['a']
    """
    needed = [*settings[0]]
    is_word = {name: isinstance(settings[0][name], str) for name in needed}
    for name in sorted(reversed(needed), key=lambda name: is_word[name]):
        fewer = [other for other in needed if other != name]
        if _distinct(settings, fewer) == _distinct(settings, [*settings[0]]):
            needed = fewer
    return needed


def _distinct(settings: Sequence[dict[str, Any]], names: Sequence[str]) -> int:
    return len({repr([one[name] for name in names]) for one in settings})


def looks_of(runs: Sequence[RecordedRun], entries: Sequence[Entry]) -> list[Shown]:
    """Every run under its own name, with the look of its entry."""
    found = {id(run): entry.shown for entry in entries for run in entry.runs}
    return [found[id(run)]._replace(name=run.name) for run in runs]


def _settings(run: RecordedRun, names: Sequence[str]) -> dict[str, Any]:
    content = run.manifest["config"]
    return {name: groups.setting_of(content, name) for name in names}


def _parts(
    runs: Sequence[RecordedRun], names: Sequence[str]
) -> list[list[RecordedRun]]:
    found: dict[Any, list[RecordedRun]] = {}
    for number, run in enumerate(runs):
        whole = run.done and len(run.rounds)
        key = repr(_settings(run, names)) if whole else number
        found.setdefault(key, []).append(run)
    parts = []
    for part in found.values():
        seeds = {repr(run.manifest["config"]["seed"]) for run in part}
        parts += [part] if len(seeds) == len(part) else [[run] for run in part]
    return parts


def _rank(run: RecordedRun, names: Sequence[str]) -> list[Any]:
    """Built-in policies in the order of the registry, all else by value; then names."""
    policies = [*POLICIES]
    values = _settings(run, names)
    if (policy := values.get("schedule.policy")) in policies:
        values["schedule.policy"] = policies.index(policy)
    return [*map(groups.order_of, values.values()), (2, 0.0, run.name)]


def _show(
    number: int, part: Sequence[RecordedRun], look: palette.Look, names: Sequence[str]
) -> Shown:
    first, settings = charts.show(number, part[0], look), _settings(part[0], names)
    short = groups.short_names(names)
    words = dict(zip(short, map(groups.as_text, settings.values()), strict=True))
    first = first._replace(settings=words)
    if len(part) == 1:
        return first
    name = groups.Group(settings, []).name if settings else "all runs"
    rounds = over_seeds([charts.with_derived(run.rounds) for run in part])
    return first._replace(name=f"{name} ({len(part)} seeds)", rounds=rounds)


def over_seeds(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The rounds that all seeds reach, one row a round.

    A column has its mean, and its least and largest value as `NAME_low` and
    `NAME_high`; not a number where a seed has none. Keep rates are those of all seeds.
    """
    count = min(map(len, frames))
    firsts = [frame.iloc[:count] for frame in frames]
    table: dict[str, Any] = {"round": firsts[0]["round"].to_numpy()}
    for name in firsts[0]:
        if name == "round" or not all(_is_number(first, name) for first in firsts):
            continue
        values = np.stack([charts.numbers(first, name) for first in firsts])
        table[name] = np.mean(values, axis=0)
        table[f"{name}_low"] = np.min(values, axis=0)
        table[f"{name}_high"] = np.max(values, axis=0)
    if all("keep_rates" in first for first in firsts):
        rates = zip(*(first["keep_rates"] for first in firsts), strict=True)
        table["keep_rates"] = [[*itertools.chain(*row)] for row in rates]
    return pd.DataFrame(table)


def _is_number(frame: pd.DataFrame, name: str) -> bool:
    if name not in frame:
        return False
    there = frame[name].dropna()
    return all(isinstance(value, int | float | np.number) for value in there)
