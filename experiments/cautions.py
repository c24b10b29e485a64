"""What a reader of a comparison should know: too few seeds, late tests, privacy."""

from collections.abc import Mapping, Sequence

from dpsparfl_jax.records import groups
from dpsparfl_jax.records.comparisons import COSTS, Caps

from . import comparing
from .comparing import Difference, label


def on_seeds(
    shown: Sequence[groups.Group], differences: Sequence[Difference]
) -> list[str]:
    """What is too little for an interval, and what intervals do not cover."""
    sentences = []
    for number, group in enumerate(shown):
        twice = len(group.runs) - len(comparing.by_seed(group))
        if twice:
            sentences.append(
                f"{label(number)} has {twice} more run(s) of a seed that it has "
                "already: the first of each counts."
            )
    for number, found in enumerate(differences, start=1):
        pair = f"{label(number)} and #1"
        if not found.seeds:
            sentences.append(f"{pair} have no seed in common: nothing can be paired.")
        elif len(found.seeds) == 1:
            sentences.append(
                f"{pair} have one seed in common ({found.seeds[0]}): there is no "
                "interval, and the difference may be chance."
            )
    if len(shown) > 2:
        sentences.append(
            "Each interval holds for its own difference alone: of 20 such intervals "
            "one is expected to miss."
        )
    return sentences


def on_caps(
    shown: Sequence[groups.Group],
    differences: Sequence[Difference],
    caps: Mapping[str, Caps],
) -> list[str]:
    """Pairs that are not compared at equal cost, as they were tested too late."""
    sentences = []
    for number, found in enumerate(differences, start=1):
        private = shown[0].private and shown[number].private
        for cost, (low, _) in caps.items():
            late = len(found.seeds) - found.values[comparing.AT_EQUAL[cost]].seeds
            if late and (private or not COSTS[cost].private):
                sentences.append(
                    f"{label(number)} and #1 at equal {COSTS[cost].words}: {late} of "
                    f"{len(found.seeds)} pairs are left out, where up to {low:.4g} a "
                    "model had not been tested."
                )
    return sentences


def on_privacy(shown: Sequence[groups.Group]) -> list[str]:
    """Settings whose accuracies were bought with different privacy."""
    sentences = []
    for number, group in enumerate(shown[1:], start=1):
        reasons = comparing.unequal_privacy(shown[0], group)
        if reasons:
            sentences.append(
                f"Not at equal privacy: #1 and {label(number)} differ in "
                f"{', '.join(reasons)}, so accuracies may differ for that reason."
            )
    return sentences
