"""What runs show, in a sentence or two: who is best at equal epsilon and equal time.

Nothing is said beyond the numbers: a difference has its interval over seeds, or the
sentence says that there is one seed; of a single setting only its own numbers are told.
"""

import html
from collections.abc import Sequence
from typing import NamedTuple

from dpsparfl_jax.records import IndexedRun, RecordedRun, groups, privacy_words
from dpsparfl_jax.records.comparisons import (
    COSTS,
    EVALUATED,
    Caps,
    Evaluation,
    accuracy_within,
    common_caps,
    evaluations,
    indexed_evaluations,
    interval,
)
from dpsparfl_jax.report import charts
from dpsparfl_jax.report.page import breakable
from dpsparfl_jax.report.seeds import Entry


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
            columns = [charts.numbers(run.rounds, name).tolist() for name in EVALUATED]
            seeds[run.manifest["config"]["seed"]] = evaluations(columns, run.private)
        name = entry.shown.name.rpartition(" (")[0] if len(seeds) > 1 else first.name
        made.append(_candidate(name, first, seeds))
    return [one for one in made if one.seeds]


def of_groups(made: Sequence[groups.Group]) -> list[Candidate]:
    """The same from what an index tells of very many runs."""
    found = []
    for group in made:
        seeds: dict[int, list[Evaluation]] = {}
        for run in group.runs:
            seeds.setdefault(groups.value_of(run, "seed"), indexed_evaluations(run))
        found.append(_candidate(group.name, group.runs[0], seeds))
    return [one for one in found if one.seeds]


def _candidate(
    name: str,
    run: RecordedRun | IndexedRun,
    seeds: dict[int, list[Evaluation]],
) -> Candidate:
    told = {seed: values for seed, values in seeds.items() if values}
    return Candidate(name, run.done, run.private, privacy_words(run.manifest), told)


def headline(candidates: Sequence[Candidate], *, thinned: bool = False) -> str:
    """The sentences as HTML; `thinned` says that not every evaluation is known."""
    told = [one for one in candidates if one.done] or list(candidates)
    if not told:
        return "<p class=lead>No model has been tested yet.</p>\n"
    if len(told) == 1:
        return f"<p class=lead>{_alone(told[0])}</p>\n"
    unlike = _unlike_epsilons(told)
    at_epsilon = [] if unlike else _at_equal_epsilon(told)
    sentences = [*unlike, *at_epsilon, *_at_equal_time(told)]
    lines = "".join(f"<p class=lead>{words}</p>\n" for words in sentences)
    unfinished = (
        "" if told[0].done else " No run is finished: this is how far they are."
    )
    some = ", among those that thinned curves keep" if thinned else ""
    over = (
        ". At equal epsilon they are means over all limits from the lower epsilon to "
        "the higher, so that no single round decides"
    )
    return (
        f"{lines}<p><small>Accuracies are those of the last tests of the model up to "
        f"that epsilon or time{some}{over if at_epsilon else ''}. Who is best is "
        f"chosen by these very numbers, which flatters the best a little.{unfinished}"
        "</small></p>\n"
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
        spent = _range([last.epsilon_max for last in lasts], "{:.3f}")
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


def _unlike_epsilons(told: Sequence[Candidate]) -> list[str]:
    """A sentence if epsilons mean different things."""
    kinds = {one.privacy for one in told if one.private}
    if len(kinds) < 2:
        return []
    words = html.escape("; ".join(sorted(kinds)))
    return [f"Their epsilons cannot be compared: they are of {words}."]


def _at_equal_epsilon(told: Sequence[Candidate]) -> list[str]:
    """At equal largest epsilon, and at equal mean, which lets few spend more."""
    private = [one for one in told if one.private]
    if len(private) < 2:
        return []
    among = "" if len(private) == len(told) else " among those that are private"
    meaning = f"; {html.escape(private[0].privacy)}"
    sentences = []
    for cost, of in (
        ("epsilon_max", "of the client that has spent most, "),
        ("epsilon_mean", "over clients, "),
    ):
        caps = _caps(private, cost)
        if caps:
            where = (
                f"At equal {COSTS[cost].words} ({of}{_range(caps, '{:.3f}')}{meaning})"
            )
            sentences.append(_best(f"{where}{among}", private, cost, caps))
            meaning = ""  # said once
    return sentences


def _at_equal_time(told: Sequence[Candidate]) -> list[str]:
    caps = _caps(told, "delay_s")
    if caps is None:
        return []
    where = f"At equal simulated time ({caps.high:,.1f} s, when the first of them ends)"
    return [_best(where, told, "delay_s", caps)]


def _caps(told: Sequence[Candidate], cost: str) -> Caps | None:
    return common_caps(cost, [run for one in told for run in one.seeds.values()])


def _best(where: str, told: Sequence[Candidate], cost: str, caps: Caps) -> str:
    """Who is best at a cost, by how much, and how sure that is."""
    found = {one.name: _accuracies(one, cost, caps) for one in told}
    known = {name: values for name, values in found.items() if values}
    if len(known) < 2:
        return f"{where} fewer than two of them had been tested."
    ranked = sorted(known, key=lambda name: -_percent(known[name]))
    first, second = known[ranked[0]], known[ranked[1]]
    late = len(told) - len(known)
    early = f" ({late} had not been tested by then)" if late else ""
    mean, after = _percent(first), _percent(second)
    ahead = f"{mean - after:.2f} points ahead of" if mean > after else "level with"
    certainty = _certainty(first, second) if mean > after else ""
    seeds = f", mean of {len(first)} seeds" if len(first) > 1 else ""
    return (
        f"{where}{early}, <b>{breakable(ranked[0])}</b> is the best of {len(known)}: "
        f"{mean:.2f}% accuracy{seeds}, {ahead} <b>{breakable(ranked[1])}</b> "
        f"({after:.2f}%).{certainty}"
    )


def _percent(by_seed: dict[int, float]) -> float:
    """The mean as it is printed, so that differences agree with what is printed."""
    return round(100 * interval(by_seed.values())[0], 2)


def _certainty(first: dict[int, float], second: dict[int, float]) -> str:
    """What seeds say about a difference, in a sentence."""
    common = sorted(set(first) & set(second))
    if len(common) < 2:
        seeds = "One seed each" if len(first) == len(second) == 1 else "No common seeds"
        return f" {seeds}: chance may explain the difference."
    _, low, high = interval([100 * (first[seed] - second[seed]) for seed in common])
    said = f" 95% interval of the difference over {len(common)} seeds: "
    said += f"{low:.2f} to {high:.2f} points"
    return f"{said}, so which is better is open." if low <= 0 <= high else f"{said}."


def _accuracies(one: Candidate, cost: str, caps: Caps) -> dict[int, float]:
    """By seed, the accuracy within the caps, where there is one."""
    found = {
        seed: accuracy_within(cost, values, caps) for seed, values in one.seeds.items()
    }
    return {seed: value for seed, value in found.items() if value is not None}
