"""What runs show, in a sentence or two: who is best at equal epsilon and equal time.

Nothing is said beyond the numbers: a difference has its interval over seeds, or the
sentence says that there is one seed; of a single setting only its own numbers are told.
"""

import html
import math
from collections.abc import Sequence
from typing import NamedTuple

from dpsparfl_jax.records import IndexedRun, RecordedRun, groups, privacy_words
from dpsparfl_jax.records.columns import finite
from dpsparfl_jax.records.comparisons import accuracy_at, interval
from dpsparfl_jax.report import charts
from dpsparfl_jax.report.page import breakable
from dpsparfl_jax.report.seeds import Entry

_LEVEL_POINTS = 0.05  # two accuracies that are nearer are the same in the words here
_LEVEL_WORDS = "level with"
_SAME = 1 + 1e-9  # by so much may an epsilon exceed another that is the same


class Evaluation(NamedTuple):
    """What a run had come to when its model was tested."""

    round: float
    delay_s: float
    energy_j: float
    epsilon: float  # of the client that has spent most; infinite: not private
    accuracy: float


class Candidate(NamedTuple):
    """A setting: its name, what its epsilons mean, and the evaluations of each seed."""

    name: str
    done: bool
    private: bool
    privacy: str
    seeds: dict[int, list[Evaluation]]


def of_entries(entries: Sequence[Entry]) -> list[Candidate]:
    """Settings with evaluations, from runs that are few enough to be read whole."""
    made = []
    for entry in entries:
        first = entry.runs[0]
        seeds = {}
        for run in entry.runs:
            columns = [charts.numbers(run.rounds, name).tolist() for name in _COLUMNS]
            seeds[run.manifest["config"]["seed"]] = _evaluations(columns, run.private)
        name = entry.shown.name.rpartition(" (")[0] if len(seeds) > 1 else first.name
        made.append(_candidate(name, first, seeds))
    return [one for one in made if one.seeds]


def of_groups(made: Sequence[groups.Group]) -> list[Candidate]:
    """The same from what an index tells of very many runs."""
    found = []
    for group in made:
        seeds: dict[int, list[Evaluation]] = {}
        for run in group.runs:
            curves = run.curves
            empty = [None] * len(curves.get("round", []))
            columns = [curves.get(name, empty) for name in _COLUMNS]
            seeds.setdefault(
                groups.value_of(run, "seed"), _evaluations(columns, run.private)
            )
        found.append(_candidate(group.name, group.runs[0], seeds))
    return [one for one in found if one.seeds]


_COLUMNS = (
    *("round", "cumulative_delay_s", "cumulative_energy_j", "epsilon_max", "accuracy"),
)


def _candidate(
    name: str,
    run: RecordedRun | IndexedRun,
    seeds: dict[int, list[Evaluation]],
) -> Candidate:
    told = {seed: values for seed, values in seeds.items() if values}
    return Candidate(name, run.done, run.private, privacy_words(run.manifest), told)


def _evaluations(
    columns: Sequence[Sequence[float | None]], private: bool
) -> list[Evaluation]:
    made = []
    for row in zip(*columns, strict=True):
        at, delay, energy, epsilon, accuracy = map(finite, row)
        if accuracy is None or delay is None:
            continue
        spent = math.inf if epsilon is None or not private else epsilon
        made.append(Evaluation(at or 0, delay, energy or 0.0, spent, accuracy))
    return made


def headline(candidates: Sequence[Candidate], *, thinned: bool = False) -> str:
    """The sentences as HTML; `thinned` says that not every evaluation is known."""
    told = [one for one in candidates if one.done] or list(candidates)
    if not told:
        return "<p class=lead>No model has been tested yet.</p>\n"
    if len(told) == 1:
        return f"<p class=lead>{_alone(told[0])}</p>\n"
    sentences = [*_at_equal_epsilon(told), _at_equal_time(told)]
    lines = "".join(f"<p class=lead>{words}</p>\n" for words in sentences)
    unfinished = (
        "" if told[0].done else " No run is finished: this is how far they are."
    )
    some = ", among those that thinned curves keep" if thinned else ""
    return (
        f"{lines}<p><small>Accuracies are those of the last tests of the model up to "
        f"that epsilon or time{some}. Who is best is chosen by these very numbers, "
        f"which flatters the best a little.{unfinished}</small></p>\n"
    )


def _alone(one: Candidate) -> str:
    """The numbers of a single setting, and no more than that."""
    lasts = [values[-1] for values in one.seeds.values()]
    name = f"<b>{breakable(one.name)}</b>"
    mean, low, high = interval([last.accuracy for last in lasts])
    rounds, delay, energy = (
        _range([getattr(last, field) for last in lasts], form)
        for field, form in (
            *(("round", "{:.0f}"), ("delay_s", "{:,.1f}"), ("energy_j", "{:,.1f}")),
        )
    )
    how = f"after {rounds} rounds, {delay} s of simulated time and {energy} J"
    if len(lasts) > 1:
        over = f"mean of {len(lasts)} seeds, 95% interval {low:.1%} to {high:.1%}"
        reached = f"{name} has {mean:.2%} accuracy ({over}) {how}."
    else:
        reached = f"{name} has {mean:.2%} accuracy {how}."
    if one.private:
        spent = _range([last.epsilon for last in lasts], "{:.3f}")
        reached += (
            f" The client that has spent most has spent epsilon {spent} "
            f"({html.escape(one.privacy)})."
        )
    else:
        reached += f" It is {html.escape(one.privacy)}."
    if not one.done:
        reached += " It is not finished."
    if len(lasts) == 1:
        reached += " One run with one seed: others may end elsewhere."
    return reached


def _range(values: Sequence[float], form: str) -> str:
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def _at_equal_epsilon(told: Sequence[Candidate]) -> list[str]:
    private = [one for one in told if one.private]
    kinds = {one.privacy for one in private}
    if len(private) < 2:
        return []
    if len(kinds) > 1:
        words = html.escape("; ".join(sorted(kinds)))
        return [f"Their epsilons cannot be compared: they are of {words}."]
    ends = [values[-1].epsilon for one in private for values in one.seeds.values()]
    limit = min(ends)
    if not math.isfinite(limit):
        return []
    among = "" if len(private) == len(told) else " among those that are private"
    where = (
        f"At equal epsilon (no client above {limit:.3f}; "
        f"{html.escape(kinds.pop())}){among}"
    )
    return [_best(where, private, "epsilon", limit * _SAME)]


def _at_equal_time(told: Sequence[Candidate]) -> str:
    limit = min(values[-1].delay_s for one in told for values in one.seeds.values())
    where = f"At equal simulated time ({limit:,.1f} s, when the first of them ends)"
    return _best(where, told, "delay_s", limit * _SAME)


def _best(where: str, told: Sequence[Candidate], cost: str, limit: float) -> str:
    """Who is best at a cost, by how much, and how sure that is."""
    found = {one.name: _accuracies(one, cost, limit) for one in told}
    known = {name: values for name, values in found.items() if values}
    if len(known) < 2:
        return f"{where} fewer than two of them had been tested."
    ranked = sorted(known, key=lambda name: -_mean(known[name]))
    first, second = known[ranked[0]], known[ranked[1]]
    late = len(told) - len(known)
    early = f" ({late} had not been tested by then)" if late else ""
    mean, after = _mean(first), _mean(second)
    seeds = f", mean of {len(first)} seeds" if len(first) > 1 else ""
    return (
        f"{where}{early}, <b>{breakable(ranked[0])}</b> is the best of {len(known)}: "
        f"{mean:.1%} accuracy{seeds}, {_ahead(100 * (mean - after))} "
        f"<b>{breakable(ranked[1])}</b> ({after:.1%}).{_certainty(first, second)}"
    )


def _mean(by_seed: dict[int, float]) -> float:
    return interval(by_seed.values())[0]


def _ahead(points: float) -> str:
    if points < _LEVEL_POINTS:
        return _LEVEL_WORDS
    return f"{points:.1f} points ahead of"


def _certainty(first: dict[int, float], second: dict[int, float]) -> str:
    """What seeds say about a difference, in a sentence."""
    if _ahead(100 * (_mean(first) - _mean(second))) == _LEVEL_WORDS:
        return ""
    common = sorted(set(first) & set(second))
    if len(common) < 2:
        seeds = "One seed each" if len(first) == len(second) == 1 else "No common seeds"
        return f" {seeds}: chance may explain the difference."
    _, low, high = interval([100 * (first[seed] - second[seed]) for seed in common])
    said = f" 95% interval of the difference over {len(common)} seeds: "
    said += f"{low:.1f} to {high:.1f} points"
    return f"{said}, so which is better is open." if low <= 0 <= high else f"{said}."


def _accuracies(one: Candidate, cost: str, limit: float) -> dict[int, float]:
    """By seed, the accuracy of the last evaluation within the limit."""
    found = {
        seed: accuracy_at(
            [(getattr(each, cost), each.accuracy) for each in values], limit
        )
        for seed, values in one.seeds.items()
    }
    return {seed: value for seed, value in found.items() if value is not None}
