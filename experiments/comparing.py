"""How settings differ in what came of them: paired by seed, with 95% intervals."""

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from dpsparfl_jax import records
from dpsparfl_jax.records import columns, comparisons, groups
from dpsparfl_jax.records.columns import finite

EQUAL_DELAY, COMMON_DELAY = "accuracy_at_equal_delay", "equal_delay_s"
_ACCURACIES = ("accuracy", "best_accuracy", "accuracy_averaged")
RESULTS = ("rounds", *_ACCURACIES, "delay_s", "energy_j", "epsilon_max", "fairness")
DIFFERENCES = (
    *_ACCURACIES,
    *(EQUAL_DELAY, "delay_s", "energy_j", "epsilon_max", "fairness"),
)
_SAME_EPSILON = 0.01  # relative: smaller differences are not told of


class Estimate(NamedTuple):
    """A mean over seeds and its 95% interval; not a number where there is none."""

    mean: float
    low: float
    high: float
    seeds: int


class Difference(NamedTuple):
    """What a second setting has more than a first one, by name of the number."""

    seeds: list[int]  # that both have
    values: dict[str, Estimate]


def headings() -> dict[str, tuple[str, str]]:
    """Heading and format of every number that is compared."""
    known = columns.summary_columns()
    return known | {
        EQUAL_DELAY: ("accuracy at equal delay", known["accuracy"][1]),
        COMMON_DELAY: ("that equal delay (s)", known["delay_s"][1]),
        "fairness": ("fairness", "{:.3f}"),
    }


def in_order(runs: Sequence[records.IndexedRun]) -> list[groups.Group]:
    """Runs as groups, in the order in which the first run of each was named."""
    place = {run.path: number for number, run in enumerate(runs)}
    return sorted(
        groups.group_runs(runs),
        key=lambda group: min(place[run.path] for run in group.runs),
    )


def by_seed(group: groups.Group) -> dict[int, records.IndexedRun]:
    """The runs of a group; of a seed that is there twice, the first one."""
    found: dict[int, records.IndexedRun] = {}
    for run in group.runs:
        found.setdefault(groups.value_of(run, "seed"), run)
    return found


def value(run: records.IndexedRun, name: str) -> float | None:
    """A number of a run's summary; an epsilon that means nothing is none."""
    if name.startswith("epsilon") and not run.private:
        return None
    return finite(run.summary.get(name))


def estimate(values: Sequence[float | None]) -> Estimate:
    """Mean and interval of the values that are there."""
    there = [value for value in values if value is not None]
    return Estimate(*comparisons.interval(there), len(there))


def result(group: groups.Group, name: str) -> Estimate:
    """A number of a group over its seeds."""
    return estimate([value(run, name) for run in by_seed(group).values()])


class Curves(dict[pathlib.Path, list[tuple[float, float]]]):
    """Simulated delay and accuracy of runs' evaluations, each folder read once."""

    def __missing__(self, path: pathlib.Path) -> list[tuple[float, float]]:
        """Reads a run's evaluations."""
        told = [
            (finite(row.get("cumulative_delay_s")), finite(row.get("accuracy")))
            for row in records.read_rounds(path)
        ]
        self[path] = [(x, y) for x, y in told if x is not None and y is not None]
        return self[path]

    def at(self, run: records.IndexedRun, delay_s: float) -> float | None:
        """The accuracy of the last evaluation up to a delay; None before the first."""
        return comparisons.accuracy_at(self[run.path], delay_s)


def difference(first: groups.Group, second: groups.Group, curves: Curves) -> Difference:
    """The second less the first, seed by seed, over the seeds that both have.

    Accuracies at equal delay are those of the last evaluations up to the largest delay
    that both runs of a pair reach.
    """
    ours, theirs = by_seed(first), by_seed(second)
    seeds = sorted(set(ours) & set(theirs))
    pairs = [(ours[seed], theirs[seed]) for seed in seeds]
    found = {
        name: [_less(value(b, name), value(a, name)) for a, b in pairs]
        for name in DIFFERENCES
        if name != EQUAL_DELAY
    }
    ends = [_common(value(a, "delay_s"), value(b, "delay_s")) for a, b in pairs]
    found[COMMON_DELAY] = ends
    found[EQUAL_DELAY] = [
        None if end is None else _less(curves.at(b, end), curves.at(a, end))
        for (a, b), end in zip(pairs, ends, strict=True)
    ]
    return Difference(seeds, {name: estimate(found[name]) for name in found})


def _less(value: float | None, other: float | None) -> float | None:
    return None if value is None or other is None else value - other


def _common(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else min(one, other)


def _spent(group: groups.Group, other: groups.Group) -> float:
    """The mean largest epsilon, over the seeds that both have if there are any."""
    runs, others = by_seed(group), by_seed(other)
    common = [run for seed, run in runs.items() if seed in others]
    told = common or list(runs.values())
    return estimate([value(run, "epsilon_max") for run in told]).mean


def unequal_privacy(first: groups.Group, second: groups.Group) -> list[str]:
    """What makes the privacy of two settings differ, a phrase each."""
    if first.private != second.private:
        return ["whether they are private"]
    if not first.private:
        return []
    phrases = []
    for name in ("delta", "accountant"):
        one, other = (
            groups.value_of(group.runs[0], f"privacy.{name}")
            for group in (first, second)
        )
        if one != other:
            phrases.append(f"{name} ({one}, {other})")
    one, other = _spent(first, second), _spent(second, first)
    if abs(one - other) > _SAME_EPSILON * max(one, other):
        phrases.append(f"largest epsilon spent ({one:.3f}, {other:.3f})")
    return phrases
