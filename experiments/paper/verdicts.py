"""From comparisons to the verdict on a claim, and verdicts as text."""

import json
import math
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..tables import markdown
from . import statistics
from .statistics import Comparison

NOTE = (
    "Effects are means over seeds of differences (accuracies, keep rates) or ratios "
    "(delays) within a seed, with 95% Student-t intervals, which are per comparison. "
    "Verdicts are by two-sided paired t-tests and by two one-sided tests of a margin, "
    "both at 5% after Holm's correction within a claim; exact statements have no "
    "interval. Statistics, margins and seeds were fixed before the runs "
    "(experiments/paper/PROTOCOL.md, with corrections and readings at its end). What "
    "lacks seeds is not run."
)
_WIDTH = 88  # of a terminal's lines
_FORMATS = {
    "pp": "+.2f",
    "%": "+.1f",
    "% per tenfold lambda": "+.1f",
    "rounds": "+.1f",
    "of rounds": ".3f",
    "epsilon": "+.2g",
    "of the bound": ".3f",
    "kept": ".3f",
}
_WORDS = {  # of a claim all of whose comparisons come out so
    statistics.HOLDS: "reproduced",
    statistics.CONTRADICTED: "contradicted",
    statistics.UNDECIDED: "undecided",
    statistics.NOT_RUN: "not run",
    statistics.TOLD: "told, not judged",
}


class Verdict(NamedTuple):
    """What the runs say about one claim."""

    claim: str
    words: str
    paper: str
    statistic: str
    comparisons: list[Comparison]
    verdict: str


def in_words(comparisons: Sequence[Comparison]) -> str:
    """The verdict on a claim: one word, or which comparisons came out how."""
    judged = [each for each in comparisons if each.outcome != statistics.TOLD]
    groups: dict[str, list[str]] = {}
    for each in judged or comparisons[:1]:
        groups.setdefault(_word(each), []).append(each.label)
    if not groups:
        return _WORDS[statistics.NOT_RUN]
    if len(groups) == 1:
        return next(iter(groups))
    order = [*_WORDS.values()]
    ranked = sorted(groups, key=lambda word: _place(word, order))
    return "; ".join(f"{word}: {', '.join(groups[word])}" for word in ranked)


def _word(comparison: Comparison) -> str:
    if comparison.outcome == statistics.NO_EFFECT:
        return f"no effect larger than {comparison.margin:g} {comparison.unit}"
    if comparison.outcome == statistics.NOT_RUN and comparison.seeds:
        return f"not run ({comparison.seeds} of {comparison.seeds_asked} seeds)"
    return _WORDS[comparison.outcome]


def _place(word: str, order: Sequence[str]) -> float:
    """Where a word stands in a verdict: no effect after what was contradicted."""
    for place, known in enumerate(order):
        if word.startswith(known):
            return place
    return 1.5


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
    """One table with a row a claim, and a note on how to read it.

    What is told beside judged comparisons is left to the text and to claims.json.
    """
    head = ("claim", "effect [95% interval]", "verdict", "seeds")
    rows = []
    for each in verdicts:
        shown = _judged_or_all(each)
        effects = "; ".join(_effect(one) for one in shown if one.seeds) or "-"
        claim = f"{each.words} ({each.paper})"
        rows.append((claim, effects, each.verdict, _seeds(shown)))
    return f"{markdown(head, rows)}\n\n{NOTE}\n"


def _judged_or_all(verdict: Verdict) -> list[Comparison]:
    judged = [one for one in verdict.comparisons if one.outcome != statistics.TOLD]
    return judged or verdict.comparisons


def _seeds(comparisons: Sequence[Comparison]) -> str:
    """How many seeds the comparisons have, each number once."""
    counts = dict.fromkeys(str(one.seeds) for one in comparisons)
    return "; ".join(counts) or "0"


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
    lines += [_wrapped(f"{_effect(each)} {_of_seeds(each)}", "    ") for each in run]
    return "\n".join([*lines, ""])


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(
        text, _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  "
    )


def _effect(comparison: Comparison) -> str:
    form = _FORMATS[comparison.unit]
    effect, low, high = (f"{value:{form}}" for value in comparison[1:4])
    words = [comparison.label, effect, comparison.unit]
    if not math.isnan(comparison.low):
        words.append(f"[{low}, {high}]")
    return " ".join(words)


def _of_seeds(comparison: Comparison) -> str:
    count = f"({comparison.seeds} seed{'s' if comparison.seeds > 1 else ''})"
    return f"{count}: {_word(comparison)}"
