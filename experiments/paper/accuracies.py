"""Accuracies that the protocol has told beside its claims, as one table."""

import math
import pathlib

import pandas as pd

from dpsparfl_jax.storage import write_whole

from ..tables import markdown
from . import claim_data, protocol
from .claim_data import Tables
from .sweeps import SWEEPS

SETTINGS = {  # sweeps in the order of the paper's figures, and the accuracy to reach
    "clipping_fashion": ("Fig. 2, Fashion-MNIST", "fashion_mnist"),
    "clipping_cifar": ("Fig. 2, CIFAR-10", "cifar10"),
    "tradeoff": ("Fig. 3", "fashion_mnist"),
    "privacy_level": ("Fig. 4", "fashion_mnist"),
    "policies_mnist": ("Fig. 5 (a), MNIST", "mnist"),
    "policies_cifar": ("CIFAR-10, sigma 0.4", "cifar10"),
    "policies_cifar_ours": ("Fig. 5 (b), CIFAR-10, nearest", "cifar10"),
    "noniid": ("Fig. 7, Dirichlet", "dirichlet"),
    "sparse_noniid": ("Dirichlet, equal keep rates", "dirichlet"),
    "imbalance": ("Fig. 8, unequal sizes", "fashion_mnist"),
    "solver": ("solver", "fashion_mnist"),
    "accountant": ("accountant", "fashion_mnist"),
    "noise_aware": ("noise-aware keep rates", "fashion_mnist"),
    "robust_margin": ("gains known to 1 dB, margin in dB", "fashion_mnist"),
}
_HEAD = (
    *("setting", "series", "seeds", "settled, mean (range)", "at equal time", "best"),
    *("at the end", "hours until an accuracy"),
)
_NOTE = (
    "Test accuracies in per cent, means over seeds. Equal time is the largest "
    "simulated time that all series of a seed reach that are trained with all seeds; "
    "blank for the others, which are for orientation. The last column has the "
    "simulated time until the mean of two evaluations in a row reaches the accuracy in "
    "brackets, averaged over the seeds that reach it, and how many do."
)
_HOUR = 3600.0  # s


def write(folder: pathlib.Path) -> None:
    """Writes accuracies.md beside the tables that it is made from."""
    write_whole(folder / "accuracies.md", as_markdown(claim_data.read(folder)))


def as_markdown(tables: Tables) -> str:
    """A row for every series that was trained, and how to read it."""
    rows = [row for sweep in SETTINGS for row in _rows(tables, sweep)]
    return f"{markdown(_HEAD, rows)}\n\n{_NOTE}\n"


def _rows(tables: Tables, sweep: str) -> list[tuple[str, ...]]:
    """In the order in which the sweep has its series."""
    setting, images = SETTINGS[sweep]
    runs = tables.sweep(sweep).dropna(subset="settled_accuracy")
    names = [one.label for one in SWEEPS[sweep].series]
    rows = []
    for series in SWEEPS[sweep].series:
        name, own = series.label, runs[runs["series"] == series.label]
        if names.count(name) > 1:  # at several values
            name, own = f"{name}, {series.value:g}", own[own["value"] == series.value]
        if len(own):
            rows.append((setting, name, *_cells(own, protocol.REACHED[images])))
    return rows


def _cells(runs: pd.DataFrame, level: float) -> tuple[str, ...]:
    settled, reach = 100 * runs["settled_accuracy"], runs["reach_s"].dropna() / _HOUR
    spread = f" ({settled.min():.1f}-{settled.max():.1f})" if len(runs) > 1 else ""
    reached = f" ({level:.0%}: {len(reach)} of {len(runs)})"
    return (
        str(len(runs)),
        f"{settled.mean():.1f}{spread}",
        *(
            _percent(runs[name].mean())
            for name in ("equal_time_accuracy", "best_accuracy", "accuracy")
        ),
        (f"{reach.mean():.2f}" if len(reach) else "-") + reached,
    )


def _percent(share: float) -> str:
    return "" if math.isnan(share) else f"{100 * share:.1f}"
