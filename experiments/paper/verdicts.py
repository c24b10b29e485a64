"""From comparisons to the verdict on a claim, and verdicts as text."""

import json
import math
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

from . import statistics
from .statistics import Comparison

NOTE = (
    "Effects are means over seeds of differences paired by seed, with 95% Student-t "
    "intervals. Each interval is for its own comparison: of twenty comparisons without "
    "any effect, about one would still seem to show one. A comparison holds if its "
    "whole interval is on the claimed side; those that do not hold are marked."
)
_WIDTH = 88  # of a terminal's lines
_FORMATS = {
    "pp": "+.2f",
    "%": "+.1f",
    "s per tenfold lambda": "+.2f",
    "rounds": "+.1f",
    "of rounds": ".3f",
    "epsilon": "+.2g",
}


class Part(NamedTuple):
    """Comparisons that must all hold for the claim to hold under one condition.

    If the parts of a claim differ in a number, `value` is that number and `condition`
    says what it is.
    """

    condition: str
    comparisons: list[Comparison]
    value: float | None = None


class Verdict(NamedTuple):
    """What the runs say about one claim."""

    claim: str
    words: str
    paper: str
    statistic: str
    comparisons: list[Comparison]
    verdict: str


def judge(parts: Sequence[Part]) -> str:
    """The verdict on a claim that is made under the conditions of all its parts."""
    reasons = [_reason_undecided(part) for part in parts]
    pairs = list(zip(parts, reasons, strict=True))
    still_open = [part for part, reason in pairs if reason]
    decided = [part for part, reason in pairs if not reason]
    held = [part for part in decided if _holds(part)]
    if not decided:
        by_seeds = [reason for reason in reasons if "seed" in reason]
        return f"undecided: {max(by_seeds, default=statistics.NOT_RUN)}"
    if len(held) == len(parts):
        return "reproduced"
    notes = [f"undecided: {_conditions(still_open, parts)}"] if still_open else []
    if held:
        text = f"reproduced only under {_conditions(held, parts)}"
    else:
        text = "not reproduced"
        outcomes = {each.outcome for part in decided for each in _judged(part)}
        opposite = statistics.REVERSED in outcomes
        notes.insert(0, "the opposite was found" if opposite else "unsettled")
    return f"{text} ({'; '.join(notes)})" if notes else text


def _judged(part: Part) -> list[Comparison]:
    return [each for each in part.comparisons if each.outcome != statistics.TOLD]


def _holds(part: Part) -> bool:
    return all(each.outcome == statistics.HOLDS for each in _judged(part))


def _reason_undecided(part: Part) -> str:
    judged = _judged(part)
    few = [each.seeds for each in judged if each.outcome == statistics.TOO_FEW]
    if not judged or any(each.outcome == statistics.NOT_RUN for each in judged):
        return statistics.NOT_RUN
    if few:
        count = f"{min(few)} seed{'s' if min(few) > 1 else ''}"
        return f"{count}, {statistics.SEEDS_NEEDED} needed"
    return ""


def _conditions(some: Sequence[Part], parts: Sequence[Part]) -> str:
    """Some of the parts in words: a range of their values, or a list."""
    chosen = sorted(part.value for part in some if part.value is not None)
    values = sorted(part.value for part in parts if part.value is not None)
    if not chosen:
        *names, last = [part.condition for part in some]
        return f"{', '.join(names)} and {last}" if names else last
    name, count = some[0].condition, len(chosen)
    if count < len(values) and chosen == values[:count]:
        return f"{name} <= {chosen[-1]:g}"
    if count < len(values) and chosen == values[-count:]:
        return f"{name} >= {chosen[0]:g}"
    return f"{name} {', '.join(f'{value:g}' for value in chosen)}"


def as_json(verdicts: Sequence[Verdict]) -> str:
    """All verdicts with their numbers; what is not known is null."""
    claims = [
        {**verdict._asdict(), "comparisons": [*map(_known, verdict.comparisons)]}
        for verdict in verdicts
    ]
    content = {"note": NOTE, "claims": claims}
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _known(comparison: Comparison) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in comparison._asdict().items()
    }


def as_markdown(verdicts: Sequence[Verdict]) -> str:
    """One table with a row a claim, and a note on how to read it."""
    head = ("claim", "statistic", "effect [95% interval]", "verdict")
    rows = [
        (f"{each.words} ({each.paper})", each.statistic, _effects(each), each.verdict)
        for each in verdicts
    ]
    lines = ["| " + " | ".join(row) + " |" for row in (head, ("---",) * 4, *rows)]
    return "\n".join([*lines, "", NOTE, ""])


def as_text(verdicts: Sequence[Verdict]) -> str:
    """Short lines for a terminal: a claim and its verdict, then its comparisons."""
    return "\n".join([*map(_paragraph, verdicts), textwrap.fill(NOTE, _WIDTH), ""])


def _paragraph(verdict: Verdict) -> str:
    run = [each for each in verdict.comparisons if each.seeds]
    lines = [
        _wrapped(f"{verdict.words} ({verdict.paper})", ""),
        _wrapped(f"=> {verdict.verdict}", "  "),
    ]
    if run:
        lines.append(_wrapped(f"{verdict.statistic}:", "  "))
    lines += [_wrapped(_effect(each, tell_seeds=True), "    ") for each in run]
    return "\n".join([*lines, ""])


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(
        text, _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  "
    )


def _effects(verdict: Verdict) -> str:
    """All comparisons in one cell; the number of seeds once if it is the same."""
    run = [each for each in verdict.comparisons if each.seeds]
    same = len({each.seeds for each in run}) == 1
    if not run:
        return "-"
    text = "; ".join(_effect(each, tell_seeds=not same) for each in run)
    return f"{text} {_seeds(run[0])}" if same else text


def _effect(comparison: Comparison, *, tell_seeds: bool) -> str:
    form = _FORMATS[comparison.unit]
    effect, low, high = (f"{value:{form}}" for value in comparison[1:4])
    words = [comparison.label, effect, comparison.unit]
    if not math.isnan(comparison.low):
        words.append(f"[{low}, {high}]")
    if tell_seeds:
        words.append(_seeds(comparison))
    if comparison.outcome not in (statistics.HOLDS, statistics.TOO_FEW):
        words.append(f"*{comparison.outcome}*")
    return " ".join(words)


def _seeds(comparison: Comparison) -> str:
    return f"({comparison.seeds} seed{'s' if comparison.seeds > 1 else ''})"
