"""Figures, as functions of numbers; they open no window and keep no state."""

import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dpsparfl_jax.errors import InputError

FORMATS = ("pdf", "png", "svg")


def check_format(path: str) -> None:
    """Refuses a figure file of a format that we do not draw."""
    if pathlib.Path(path).suffix.lower().removeprefix(".") not in FORMATS:
        raise InputError(
            f"a figure's file ending is one of {', '.join(FORMATS)}, unlike {path!r}."
        )


def epsilon_figure(
    curves: Mapping[str, NDArray[np.float64]],
    budgets: Sequence[float],
    delta: float,
    title: str,
) -> Figure:
    """Epsilon over participations, a line an accountant, a dotted line a budget."""
    figure = Figure(figsize=(5.5, 3.8), layout="constrained")
    axes = figure.add_subplot(
        xlabel="participations", ylabel=f"epsilon at delta = {delta:g}"
    )
    axes.set_title(title, fontsize="medium")
    top = max(budgets) * 1.15
    longest = 1
    for name, curve in curves.items():
        shown = curve[: int(np.searchsorted(curve, top, side="right")) + 1]
        longest = max(longest, len(shown) - 1)
        marker = "o" if len(shown) < 15 else ""
        axes.plot(np.arange(len(shown)), shown, marker=marker, ms=3, label=name.upper())
    for budget in budgets:
        axes.axhline(budget, color="0.6", lw=0.8, ls=":")
    axes.set_xlim(0, longest)
    axes.set_ylim(0, top)
    axes.legend(frameon=False, loc="lower right")
    return figure
