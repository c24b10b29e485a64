"""Heat maps of a grid: a number of the runs over the two settings with most values."""

import html
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from dpsparfl_jax.records import groups
from dpsparfl_jax.records.columns import summary_columns
from dpsparfl_jax.records.groups import Group
from dpsparfl_jax.report import traces

Cells = NDArray[np.float64]
METRICS = ("accuracy", "best_accuracy", "delay_s", "epsilon_max")
_MOST_VALUES = 200  # of a setting that a map has an axis for
_MOST_CELLS = 8000  # of all choices of a map, beside the first
_UNITS = {"s": "s", "j": "J", "w": "W", "m": "m", "hz": "Hz", "db": "dB", "mb": "MB"}
_WRITTEN = 150  # cells up to which each has its number in it


class Axes(NamedTuple):
    """The settings of a map: across, upwards, and all others."""

    x: str
    y: str  # empty: there is only one setting
    others: tuple[str, ...]


class HeatMap(NamedTuple):
    """One number of a grid's runs as tables of cells [y values, x values]."""

    metric: str
    title: str
    x_label: str
    y_label: str
    x_values: list[str]
    y_values: list[str]
    choices: dict[str, Cells]  # by what the others are; the first: their mean
    note: str
    form: str  # of its numbers, as Python and plotly both take it

    @property
    def percent(self) -> bool:
        """Whether the number is a share."""
        return self.form.endswith("%")


def choose_axes(made: Sequence[Group]) -> Axes | None:
    """The two settings with most values, up to a limit; None if there is none."""
    counts = {
        name: len({repr(group.settings[name]) for group in made})
        for name in made[0].settings
    }
    ordered = sorted(counts, key=lambda name: -counts[name])
    fit = [name for name in ordered if counts[name] <= _MOST_VALUES][:2]
    if not fit:
        return None
    others = [name for name in ordered if name not in fit]
    return Axes(fit[0], fit[1] if len(fit) > 1 else "", tuple(others))


def heat_maps(made: Sequence[Group]) -> dict[str, HeatMap]:
    """Maps of all numbers that runs have, by a name for their files."""
    axes = choose_axes(made) if made else None
    if axes is None:
        return {}
    maps = {}
    for metric in METRICS:
        chosen = [group for group in made if _tells(group, metric)]
        if any(group.spread(metric) for group in chosen):
            maps[f"heat_{metric.removesuffix('_s')}"] = _map(chosen, axes, metric)
    return maps


def _tells(group: Group, metric: str) -> bool:
    return group.private or not metric.startswith("epsilon")


def _map(made: Sequence[Group], axes: Axes, metric: str) -> HeatMap:
    x_values, y_values = _values(made, axes.x), _values(made, axes.y)
    parts: dict[str, list[Group]] = {}
    for group in sorted(made, key=lambda group: _order(group, axes.others)):
        parts.setdefault(_words(group, axes.others), []).append(group)
    whole = "mean over the others" if axes.others else "all"
    choices = {whole: _cells(made, axes, x_values, y_values, metric)}
    if axes.others:
        most = _MOST_CELLS // (len(x_values) * len(y_values))
        for words, members in itertools.islice(parts.items(), most):
            choices[words] = _cells(members, axes, x_values, y_values, metric)
    heading, form = summary_columns()[metric]
    names = list(made[0].settings)
    short = dict(zip(names, groups.short_names(names), strict=True))
    return HeatMap(
        metric,
        f"{heading[0].upper()}{heading[1:]}",
        _axis_words(short[axes.x]),
        _axis_words(short.get(axes.y, "")),
        list(x_values.values()),
        list(y_values.values()),
        choices,
        _note([short[name] for name in axes.others], len(choices) - 1, len(parts)),
        form.strip("{:}"),
    )


def _axis_words(name: str) -> str:
    """A setting in words, with its unit."""
    words, _, last = name.rpartition("_")
    unit = _UNITS.get(last) if words else None
    return f"{words.replace('_', ' ')} ({unit})" if unit else name.replace("_", " ")


def _note(others: Sequence[str], offered: int, count: int) -> str:
    """What a cell is the mean of, in words."""
    if not others:
        return "Mean over seeds."
    said = f"Mean over seeds and {' and '.join(others)}"
    if not offered:
        return f"{said}."
    some = f"{offered} of {count:,}" if offered < count else f"{count:,}"
    return f"{said}, or one of {some} choices."


def _values(made: Sequence[Group], name: str) -> dict[str, str]:
    """Values of a setting in order, and what to call them."""
    if not name:
        return {"": ""}
    found = {repr(group.settings[name]): group.settings[name] for group in made}
    ordered = sorted(found, key=lambda key: groups.order_of(found[key]))
    return {key: groups.as_text(found[key]) for key in ordered}


def _order(group: Group, names: Sequence[str]) -> list[tuple[int, float, str]]:
    return [groups.order_of(group.settings[name]) for name in names]


def _words(group: Group, names: Sequence[str]) -> str:
    return Group({name: group.settings[name] for name in names}, []).name


def _cells(
    made: Sequence[Group],
    axes: Axes,
    x_values: dict[str, str],
    y_values: dict[str, str],
    metric: str,
) -> Cells:
    """The mean of all runs of each cell; not a number where there is none."""
    across = {key: number for number, key in enumerate(x_values)}
    upwards = {key: number for number, key in enumerate(y_values)}
    runs: dict[tuple[int, int], list[Any]] = {}
    for group in made:
        x = across[repr(group.settings[axes.x])]
        y = upwards[repr(group.settings[axes.y])] if axes.y else 0
        values = [run.summary.get(metric) for run in group.runs]
        runs.setdefault((y, x), []).extend(values)
    cells = np.full((len(y_values), len(x_values)), np.nan)
    for place, values in runs.items():
        found = groups.spread(values)
        cells[place] = np.nan if found is None else found.mean
    return cells


def heat_chart(one: HeatMap) -> dict[str, Any]:
    """A map as plotly's dict; a menu chooses between values of other settings."""
    tables = {
        words: [traces.plain(row, 6) for row in cells]
        for words, cells in one.choices.items()
    }
    first, every = next(iter(tables.values())), np.stack([*one.choices.values()])
    trace: dict[str, Any] = {
        "type": "heatmap",
        "x": [html.escape(value) for value in one.x_values],
        "y": [html.escape(value) for value in one.y_values],
        "z": first,
        "zmin": float(np.nanmin(every)),
        "zmax": float(np.nanmax(every)),
        "colorscale": "Viridis",
        "colorbar": {"tickformat": ".1%" if one.percent else "", "thickness": 14},
        "hoverongaps": False,
        "meta": {},
        "hovertemplate": f"{html.escape(one.x_label)} %{{x}}<br>"
        f"{html.escape(one.y_label)} %{{y}}<br>%{{z:{one.form}}}<extra></extra>",
    }
    if every[0].size <= _WRITTEN:
        trace["texttemplate"] = f"%{{z:{'.1%' if one.percent else one.form}}}"
    look = traces.layout(one.x_label, one.y_label)
    for axis in ("xaxis", "yaxis"):
        look[axis] |= {"type": "category", "showgrid": False}
    if len(tables) > 1:
        buttons = [
            {"label": html.escape(words), "method": "restyle", "args": [{"z": [cells]}]}
            for words, cells in tables.items()
        ]
        place = {"x": 0, "xanchor": "left", "y": 1.2, "yanchor": "top"}
        look |= {"updatemenus": [{**place, "buttons": buttons}]}
        look["margin"] = {**look["margin"], "t": 56}
    return {"data": [trace], "layout": look}


def heat_figure(one: HeatMap) -> Figure:
    """A map as a picture: the mean over seeds and all other settings."""
    cells = next(iter(one.choices.values()))
    height, width = cells.shape
    size = (min(3.2 + 0.5 * width, 12), min(1.9 + 0.34 * height, 10))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot(xlabel=one.x_label, ylabel=one.y_label)
    axes.set_title(f"{one.note.partition(',')[0].rstrip('.')}.", fontsize="small")
    shades = colormaps["viridis"].with_extremes(bad="white")
    picture = axes.imshow(cells, aspect="auto", origin="lower", cmap=shades)
    for axis, values in ((axes.xaxis, one.x_values), (axes.yaxis, one.y_values)):
        step = max(1, len(values) // 20)
        axis.set_ticks(range(0, len(values), step), values[::step])
    form = PercentFormatter(1.0) if one.percent else None
    figure.colorbar(picture, ax=axes, label=one.title, format=form)
    if cells.size <= _WRITTEN:
        middle = (np.nanmin(cells) + np.nanmax(cells)) / 2
        for (y, x), value in np.ndenumerate(cells):
            if np.isfinite(value):
                text = format(value, ".1%" if one.percent else one.form)
                colour = "white" if value < middle else "black"
                words: Any = {"ha": "center", "va": "center", "fontsize": "x-small"}
                axes.text(x, y, text, color=colour, **words)
    return figure
