"""How pictures show seeds and intervals, and what a legend says of it.

Every function draws into axes and gives the legend's entries for its marks.
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from dpsparfl_jax.records.comparisons import interval
from dpsparfl_jax.report.picture_style import symbols

Keys = dict[str, Line2D]
_THIN: Any = {"lw": 0.5, "alpha": 0.5}
_END: Any = {"ls": "", "marker": ".", "ms": 2.5, "alpha": 0.7, "mew": 0}
_STOP: Any = {"ls": "", "marker": "|", "ms": 9, "mew": 1.2}
_WHISKER: Any = {"lw": 0.9}
_SEED: Any = {"ls": "", "marker": ".", "ms": 4, "alpha": 0.5, "mew": 0}
_BESIDE = 0.2  # of a row: seeds stand below their mean
_NAME: Any = {"va": "bottom", "size": "small"}
_LEFT, _OVER = 0.02, 0.1  # of the panel's width, and of a row: where a name stands
_TICKS = 5  # steps between percentages, which are long: they must not touch
_GREY = "0.35"


def draw_seeds(
    axes: Axes, rows: pd.DataFrame, colour: str, end: tuple[float, float]
) -> Keys:
    """A thin line for every seed with a dot at its end, and where the mean ends."""
    for _, own in rows.sort_values("x").groupby("seed"):
        axes.plot(own["x"], own["y"], color=colour, **_THIN)
        axes.plot(own["x"].iloc[-1:], own["y"].iloc[-1:], color=colour, **_END)
    last = rows.groupby("seed")["x"].max()
    keys = {"a seed, to its end": Line2D([], [], color=_GREY, **_THIN)}
    if last.nunique() < 2:
        return keys
    axes.plot(*([each] for each in end), color=colour, **_STOP)
    return keys | {"mean, until a seed ends": Line2D([], [], color=_GREY, **_STOP)}


def draw_intervals(
    axes: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray, colour: str
) -> Keys:
    """95% intervals of means as vertical lines."""
    axes.vlines(x, low, high, color=colour, **_WHISKER)
    return {"95% interval": Line2D([], [], color=_GREY, **_WHISKER)}


def draw_rows(
    axes: Axes,
    rows: pd.DataFrame,
    looks: dict[str, dict[str, Any]],
    *,
    names_inside: bool = False,
) -> Keys:
    """A row for every series: its seeds, their mean, and the mean's 95% interval.

    Names stand at the left of the axes; among panels of curves, over their rows, so
    that they take no room from the panels above and below.
    """
    names = list(rows["series"].unique())
    keys: Keys = {}
    for place, name in enumerate(names):
        values, look = rows.loc[rows["series"] == name, "y"], looks[str(name)]
        mean, low, high = interval(values)
        beside = [place + _BESIDE] * len(values)
        axes.plot(values, beside, color=look["color"], **_SEED)
        axes.plot([mean], [place], label=name, **look)
        if len(values) > 1:
            axes.hlines([place], low, high, color=look["color"], **_WHISKER)
            keys["95% interval"] = Line2D([], [], color=_GREY, **_WHISKER)
    told = [symbols(str(name)) for name in names]
    axes.set_yticks(range(len(names)), [""] * len(names) if names_inside else told)
    axes.tick_params(left=not names_inside)
    for place, name in enumerate(told if names_inside else ()):
        axes.text(
            _LEFT, place - _OVER, name, transform=axes.get_yaxis_transform(), **_NAME
        )
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.xaxis.set_major_locator(MaxNLocator(_TICKS, steps=[1, 2, 5, 10]))
    return keys
