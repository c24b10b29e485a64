"""Pictures of a figure's curves: every seed to its end, and the mean where all are.

A picture is a function of the figure's table alone, and carries the table's checksum.
Panels that the table has no points of are left out.
"""

import hashlib
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import figure as plt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.records.comparisons import interval
from dpsparfl_jax.report import picture_style
from dpsparfl_jax.report.palette import DASHES, GUIDE
from dpsparfl_jax.report.picture_style import LOOKS, symbols

from . import figure_curves, picture_marks
from .catalogue import Figure, Panel

_GRID_POINTS = 40  # of a curve whose seeds have different x
_PLAIN = ("all kept", "no noise, no clipping, all kept")  # for orientation: grey
_BOUND = figure_curves.BOUND
_PANEL_IN = (3.0, 2.2)  # width and height
_ALONE_IN = (4.6, 3.2)  # of a panel without neighbours
_GUIDE: Any = {"color": GUIDE, "ls": ":", "lw": 0.8}


class _Place(NamedTuple):
    """What stands in one place of a picture."""

    panel: Panel
    title: str
    rows: pd.DataFrame


@rc_context(LOOKS)
def draw(figure: Figure, table: pd.DataFrame) -> plt.Figure:
    """All panels side by side, at most three in a row, and one legend below."""
    places = _places(figure.panels, table)
    columns = _columns(places)
    lines = -(-len(places) // columns)
    width, height = _PANEL_IN if len(places) > 1 else _ALONE_IN
    picture = plt.Figure(figsize=(width * columns, height * lines))
    picture.set_layout_engine("constrained", wspace=0.06)
    axes = list(picture.subplots(lines, columns, squeeze=False).flat)
    names = list(table["series"].unique())
    looks = _looks(names)
    named = all(place.panel.draw in figure_curves.ROWS for place in places)
    keys = {} if named else {name: picture_style.key(looks[name]) for name in names}
    for place, spot in zip(places, axes, strict=False):
        keys |= _panel(spot, place, looks, names_inside=not named)
    for spot in axes[len(places) :]:
        spot.set_axis_off()
    _share_limits(places, axes)
    picture_style.name_panels(axes[: len(places)], _titles(places, columns))
    picture_style.legend_below(picture, keys)
    return picture


def _places(panels: Sequence[Panel], table: pd.DataFrame) -> list[_Place]:
    """Panels that have points; those with small multiples once for every series."""
    found = []
    for panel in panels:
        rows = table[table["panel"] == panel.name]
        if panel.multiples:
            found += [
                _Place(panel, str(name), own)
                for name, own in rows.groupby("series", sort=False)
            ]
        elif len(rows):
            found.append(_Place(panel, panel.title, rows))
    if not found:
        raise InputError("the table has no points of any panel: there is no picture.")
    return found


def _columns(places: Sequence[_Place]) -> int:
    """How many stand in a row: pairs and fours two by two, others three by three."""
    titles = [place.title for place in places]
    pairs = len(titles) > 2 and titles[::2] == titles[1::2]
    return min(len(places), 2 if pairs or len(places) == 4 else 3)


def _titles(places: Sequence[_Place], columns: int) -> list[str]:
    """Titles that are said once in a row: over the first panel that they hold for."""
    return [
        ""
        if number % columns and place.title == places[number - 1].title
        else place.title
        for number, place in enumerate(places)
    ]


def _share_limits(places: Sequence[_Place], axes: Sequence[Axes]) -> None:
    """Small multiples of a panel have the same axes, so that they can be compared."""
    for panel in {place.panel for place in places if place.panel.multiples}:
        own = [
            spot
            for place, spot in zip(places, axes, strict=False)
            if place.panel == panel
        ]
        for side in ("x", "y"):
            ends = np.array([getattr(spot, f"get_{side}lim")() for spot in own])
            for spot in own:
                getattr(spot, f"set_{side}lim")(ends[:, 0].min(), ends[:, 1].max())


def _panel(
    axes: Axes,
    place: _Place,
    looks: dict[str, dict[str, Any]],
    *,
    names_inside: bool,
) -> dict[str, Line2D]:
    """Draws one panel; gives what its marks mean, for the legend."""
    panel, table = place.panel, place.rows
    axes.set(xlabel=symbols(panel.x), ylabel=symbols(panel.y))
    keys: dict[str, Line2D] = {}
    if panel.draw in figure_curves.ROWS:
        keys = picture_marks.draw_rows(axes, table, looks, names_inside=names_inside)
        picture_style.in_percent(axes.xaxis)
        return keys
    for number, (name, rows) in enumerate(table.groupby("series", sort=False)):
        look = looks[str(name)]
        if panel.draw in figure_curves.DOTS:
            dots: dict[str, Any] = {"ls": "", "ms": 2.5, "alpha": 0.6, "mew": 0}
            axes.plot(rows["x"], rows["y"], label=name, **look | dots)
        elif panel.draw in figure_curves.POINTS:
            keys |= _points(axes, str(name), rows, look)
        else:
            keys |= _curve(axes, str(name), rows, look, number, panel.seeds)
    return keys | _finish(axes, panel, table)


def _finish(axes: Axes, panel: Panel, table: pd.DataFrame) -> dict[str, Line2D]:
    """Axes as the panel's numbers need them, and a line for what was asked."""
    keys: dict[str, Line2D] = {}
    if panel.draw in figure_curves.PERCENT:
        picture_style.in_percent(axes.yaxis)
    if panel.draw in ("participation", "mean_delay"):
        ends = [table["x"].min(), table["x"].max()]
        axes.plot(ends, ends, **_GUIDE)
        keys["as asked"] = Line2D([], [], **_GUIDE)
    if panel.x == "round":
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    if panel.draw == "bound":
        axes.set_yscale("log")
    else:
        picture_style.in_millions(axes.yaxis)
    picture_style.in_millions(axes.xaxis)
    return keys


def _looks(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colours, dashes and markers of all series.

    Those of orientation are grey; a bound has the colour of what it bounds.
    """
    bounds = [name for name in names if name.removesuffix(_BOUND) in names]
    bounds = [name for name in bounds if name.endswith(_BOUND)]
    looks = picture_style.looks([n for n in names if n not in (*_PLAIN, *bounds)])
    for name in bounds:
        colour = looks[name.removesuffix(_BOUND)]["color"]
        looks[name] = {"color": colour, "ls": ":", "marker": "None"}
    for number, name in enumerate(_PLAIN):
        style = {"color": "0.45", "ls": (0, DASHES[2 + number]), "marker": "x"}
        looks[name] = style
    return looks


def _curve(
    axes: Axes,
    name: str,
    rows: pd.DataFrame,
    look: dict[str, Any],
    number: int,
    seeds: bool,
) -> dict[str, Line2D]:
    """Every seed to its end, if asked for, and the mean where all of them are."""
    x, mean, *_ = average(rows)
    (line,) = axes.plot(x, mean, label=name, **look)
    picture_style.spread_marks(line, number)
    if rows["seed"].nunique() < 2 or not seeds:
        return {}
    return picture_marks.draw_seeds(axes, rows, look["color"], (x[-1], mean[-1]))


def _points(
    axes: Axes, name: str, rows: pd.DataFrame, look: dict[str, Any]
) -> dict[str, Line2D]:
    """Means over seeds at chosen values, with their 95% intervals."""
    x, mean, low, high = average(rows)
    axes.plot(x, mean, label=name, **look)
    if rows["seed"].nunique() < 2:
        return {}
    return picture_marks.draw_intervals(axes, x, low, high, look["color"])


def average(
    rows: pd.DataFrame,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x, mean over seeds, and the ends of its 95% interval (Student's t).

    Only where all seeds have values: budgets end at different rounds. Seeds with other
    x (simulated time) are interpolated linearly first.
    """
    wide = rows.pivot_table(index="x", columns="seed", values="y")
    common = wide.dropna()
    if len(common) < 2 and len(wide) > len(common):
        first = max(curve.first_valid_index() for _, curve in wide.items())
        last = min(curve.last_valid_index() for _, curve in wide.items())
        grid = np.linspace(first, last, _GRID_POINTS) if last > first else [first]
        common = pd.DataFrame(
            {
                seed: np.interp(grid, curve.dropna().index, curve.dropna().to_numpy())
                for seed, curve in wide.items()
            },
            index=grid,
        )
    bands = np.array([interval(values) for _, values in common.iterrows()])
    return common.index.to_numpy(), *bands.reshape(-1, 3).T


def save(
    figure: Figure, table: pathlib.Path, endings: Sequence[str] = (".png", ".pdf")
) -> list[pathlib.Path]:
    """Writes pictures beside the table that they show; none if it is empty."""
    try:
        points = pd.read_csv(table).astype({"x": float, "y": float})
        points = points[figure_curves.COLUMNS]
    except (OSError, ValueError, KeyError) as reason:
        raise InputError(f"{table} is no table of a figure ({reason}).") from None
    if points.empty:
        return []
    picture = draw(figure, points)
    origin = f"drawn from {table.name}, sha256 {checksum(table)}"
    written = [table.with_suffix(ending) for ending in endings]
    with rc_context(LOOKS):
        for path in written:
            picture_style.write(picture, path, origin)
    return written


def checksum(table: pathlib.Path) -> str:
    """Of a table, as its pictures carry it."""
    return hashlib.sha256(table.read_bytes()).hexdigest()
