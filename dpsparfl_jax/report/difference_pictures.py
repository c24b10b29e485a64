"""A picture of paired differences with their intervals: a row a number and setting."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpsparfl_jax.report import picture_style
from dpsparfl_jax.report.palette import GUIDE, Look
from dpsparfl_jax.report.picture_style import LOOKS, symbols

MOST_SHOWN = 8  # settings that can be told apart
_WIDTH_IN = 4.6
_SETTING_IN, _BETWEEN_IN, _AXIS_IN = 0.13, 0.1, 0.36
_LEGEND_LINE_IN = 0.17


class Row(NamedTuple):
    """A number, and the mean, low and high end of each setting's difference."""

    name: str
    differences: Sequence[Sequence[float]]


@rc_context(LOOKS)
def difference_figure(
    panels: Mapping[str, Sequence[Row]], settings: Mapping[str, Look]
) -> Figure:
    """Panels below each other, one a unit; a line that crosses zero settles nothing.

    Args:
        panels: rows by the words below their axis.
        settings: looks by name, in the order of the rows' differences.
    """
    row_in = _SETTING_IN * len(settings) + _BETWEEN_IN
    heights = [row_in * len(rows) for rows in panels.values()]
    names = [*settings]
    columns = picture_style.legend_columns(names, _WIDTH_IN)
    legend_in = _LEGEND_LINE_IN * -(-len(names) // columns)
    size = _WIDTH_IN, sum(heights) + _AXIS_IN * len(panels) + legend_in
    figure = Figure(figsize=size, layout="constrained")
    places = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)
    looks = [*settings.values()]
    for axes, (words, rows) in zip(places[:, 0], panels.items(), strict=True):
        _panel(axes, rows, looks, row_in)
        axes.set_xlabel(symbols(words))
    figure.align_ylabels()
    keys = {
        name: picture_style.key({"color": one.colour, "marker": one.marker[1]})
        for name, one in settings.items()
    }
    picture_style.legend_below(figure, keys)
    return figure


def _panel(
    axes: Axes, rows: Sequence[Row], looks: Sequence[Look], row_in: float
) -> None:
    """Rows from the top down, settings of a row below each other."""
    axes.axvline(0, color=GUIDE, lw=0.8, ls=":")
    step = _SETTING_IN / row_in
    offsets = step * (np.arange(len(looks)) - (len(looks) - 1) / 2)
    for number, row in enumerate(rows):
        for (mean, low, high), look, offset in zip(
            row.differences, looks, offsets, strict=True
        ):
            at = number + offset
            axes.plot([low, high], [at, at], color=look.colour)
            axes.plot([mean], [at], color=look.colour, marker=look.marker[1], ls="")
    axes.set_yticks(range(len(rows)), [symbols(row.name) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
