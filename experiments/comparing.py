"""How settings differ in what came of them: paired by seed, with 95% intervals."""

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from dpsparfl_jax import records
from dpsparfl_jax.records import columns, comparisons, groups
from dpsparfl_jax.records.columns import finite
from dpsparfl_jax.records.comparisons import COSTS, EVALUATED, Caps, Evaluation

# Names of accuracies at equal cost, by cost.
AT_EQUAL = {
    "delay_s": "accuracy_at_equal_delay",
    **{cost: f"accuracy_at_equal_{cost}" for cost in ("epsilon_max", "epsilon_mean")},
}
_ACCURACIES = ("accuracy", "best_accuracy", "accuracy_averaged")
RESULTS = (
    *("rounds", *_ACCURACIES, "delay_s", "energy_j", "epsilon_max", "epsilon_mean"),
    "fairness",
)
DIFFERENCES = (
    *_ACCURACIES,
    *AT_EQUAL.values(),
    *("delay_s", "energy_j", "epsilon_max", "epsilon_mean", "fairness"),
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


def label(number: int) -> str:
    """What stands for a setting: #1, #2 and so on."""
    return f"#{number + 1}"


def headings() -> dict[str, tuple[str, str]]:
    """Heading and format of every number that is compared."""
    known = columns.summary_columns()
    form = known["accuracy"][1]
    equal = {
        name: (f"accuracy at equal {COSTS[cost].words}", form)
        for cost, name in AT_EQUAL.items()
    }
    return {**known, **equal, "fairness": ("fairness", "{:.3f}")}


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


class Curves(dict[pathlib.Path, list[Evaluation]]):
    """Evaluations of runs, each folder read once."""

    def of(self, run: records.IndexedRun) -> list[Evaluation]:
        """All evaluations of a run; its index keeps only some."""
        if run.path not in self:
            rows = list(records.read_rounds(run.path))
            told = [[row.get(name) for row in rows] for name in EVALUATED]
            self[run.path] = comparisons.evaluations(told, run.private)
        return self[run.path]


def caps_of(made: Sequence[groups.Group]) -> dict[str, Caps]:
    """What all of these runs reach, by cost; no epsilon if these cannot be compared."""
    runs = [run for group in made for run in by_seed(group).values()]
    private = [run for run in runs if run.private]
    kinds = {records.privacy_words(run.manifest) for run in private}
    found = {}
    for cost, (_, _, of_private) in COSTS.items():
        if of_private and len(kinds) > 1:
            continue
        compared = private if of_private else runs
        ends = map(comparisons.indexed_evaluations, compared)
        caps = comparisons.common_caps(cost, ends)
        if caps is not None:
            found[cost] = caps
    return found


def difference(
    first: groups.Group, second: groups.Group, curves: Curves, caps: dict[str, Caps]
) -> Difference:
    """The second less the first, seed by seed, over the seeds that both have.

    Accuracies at equal cost are those within the caps of that cost.
    """
    ours, theirs = by_seed(first), by_seed(second)
    seeds = sorted(set(ours) & set(theirs))
    pairs = [(ours[seed], theirs[seed]) for seed in seeds]

    def within(run: records.IndexedRun, cost: str) -> float | None:
        if cost not in caps:
            return None
        return comparisons.accuracy_within(cost, curves.of(run), caps[cost])

    found = {
        name: [_less(value(b, name), value(a, name)) for a, b in pairs]
        for name in DIFFERENCES
        if name not in AT_EQUAL.values()
    }
    for cost, name in AT_EQUAL.items():
        found[name] = [_less(within(b, cost), within(a, cost)) for a, b in pairs]
    return Difference(seeds, {name: estimate(found[name]) for name in DIFFERENCES})


def _less(value: float | None, other: float | None) -> float | None:
    return None if value is None or other is None else value - other


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
