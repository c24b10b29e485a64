"""Which clip norms validation images choose, as PROTOCOL.md has it."""

import pathlib

import pandas as pd

from dpsparfl_jax.errors import InputError

from .. import presets
from . import protocol
from .sweeps import SWEEPS

# Presets that take the clip norm which a sweep chooses; the first is its own.
CHOOSES = {
    "clip_fashion": (
        *("paper_fashion", "paper_fashion_noniid", "paper_fashion_imbalanced"),
    ),
    "clip_mnist": ("paper_mnist",),
    "clip_cifar": ("nearest_cifar",),
}


def choose(accuracies: pd.Series, own: float) -> float:
    """The clip norm of the highest accuracy, or a preset's own if it is near that.

    Args:
        accuracies: Mean accuracy on validation images, by clip norm.
        own: The preset's clip norm.
    """
    best = accuracies.max()
    kept = own in accuracies and accuracies[own] >= best - protocol.PRESETS_OWN_IS_KEPT
    return own if kept else float(accuracies.idxmax())


def chosen(table: pathlib.Path) -> dict[str, float]:
    """Clip norms by preset, from a table of runs; those that were trained whole."""
    try:
        runs = pd.read_csv(table)
        runs = runs.reindex(columns=[*runs.columns.union(["tuning_accuracy"])])
        runs = runs[["sweep", "value", "seed", "tuning_accuracy"]]
    except (OSError, ValueError, KeyError) as reason:
        raise InputError(f"{table} is no table of runs ({reason}).") from None
    found: dict[str, float] = {}
    for sweep, names in CHOOSES.items():
        own = runs[runs["sweep"] == sweep].dropna()
        asked = len(SWEEPS[sweep].series) * len(protocol.CLIP_NORMS.trained)
        if len(own) == asked:
            means = own.groupby("value")["tuning_accuracy"].mean()
            preset = presets.get_preset(names[0]).settings
            choice = choose(means, float(preset.training.clip_norm))
            found |= dict.fromkeys(names, choice)
    return found


def in_use(preset: str) -> float:
    """The clip norm that a preset's full-scale runs are trained with."""
    own = presets.get_preset(preset).settings.training.clip_norm
    return float(protocol.CHOSEN_CLIP_NORMS.get(preset, own))


def advice(table: pathlib.Path) -> list[str]:
    """A sentence for every preset whose chosen clip norm is not in use."""
    return [
        f"Validation images choose C = {choice:g} for {preset}, which has "
        f"{in_use(preset):g}: enter it in protocol.CHOSEN_CLIP_NORMS before the "
        "figures are trained."
        for preset, choice in chosen(table).items()
        if choice != in_use(preset)
    ]
