"""Pictures of a figure's curves: mean and 95% confidence band over seeds.

A picture is a function of the figure's table alone, and carries the table's checksum.
"""

import hashlib
import pathlib
from collections.abc import Sequence
from typing import Any

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

from . import figure_curves
from .catalogue import Figure, Panel

_GRID_POINTS = 40  # of a curve whose seeds have different x
_PLAIN = ("all kept", "no noise, no clipping, all kept")  # for orientation: grey
_PANEL_IN = (3.0, 2.2)  # width and height
_ALONE_IN = (4.6, 3.2)  # of a panel without neighbours
_GUIDE: Any = {"color": GUIDE, "ls": ":", "lw": 0.8}


@rc_context(LOOKS)
def draw(figure: Figure, table: pd.DataFrame) -> plt.Figure:
    """All panels side by side, at most three in a row, and one legend below."""
    columns = _columns(figure.panels)
    lines = -(-len(figure.panels) // columns)
    width, height = _PANEL_IN if len(figure.panels) > 1 else _ALONE_IN
    picture = plt.Figure(figsize=(width * columns, height * lines))
    picture.set_layout_engine("constrained", wspace=0.06)
    axes = list(picture.subplots(lines, columns, squeeze=False).flat)
    names = list(table["series"].unique())
    looks = _looks(names)
    guided = False
    for panel, place in zip(figure.panels, axes, strict=False):
        rows = table[table["panel"] == panel.name]
        guided |= _panel(place, panel, rows, looks)
    for place in axes[len(figure.panels) :]:
        place.set_axis_off()
    picture_style.name_panels(
        axes[: len(figure.panels)], _titles(figure.panels, columns)
    )
    keys = {name: picture_style.key(looks[name]) for name in names}
    if guided:
        keys["as asked"] = Line2D([], [], **_GUIDE)
    picture_style.legend_below(picture, keys)
    return picture


def _columns(panels: Sequence[Panel]) -> int:
    """How many stand in a row: pairs and fours two by two, others three by three."""
    titles = [panel.title for panel in panels]
    pairs = len(titles) > 2 and titles[::2] == titles[1::2]
    return min(len(panels), 2 if pairs or len(panels) == 4 else 3)


def _titles(panels: Sequence[Panel], columns: int) -> list[str]:
    """Titles that are said once in a row: over the first panel that they hold for."""
    return [
        ""
        if number % columns and panel.title == panels[number - 1].title
        else panel.title
        for number, panel in enumerate(panels)
    ]


def _panel(
    axes: Axes, panel: Panel, table: pd.DataFrame, looks: dict[str, dict[str, Any]]
) -> bool:
    """Draws one panel; whether it has a line for what was asked."""
    axes.set(xlabel=symbols(panel.x), ylabel=symbols(panel.y))
    for number, (name, rows) in enumerate(table.groupby("series", sort=False)):
        look = looks[str(name)]
        if panel.draw in figure_curves.DOTS:
            dots: dict[str, Any] = {"ls": "", "ms": 2.5, "alpha": 0.6, "mew": 0}
            axes.plot(rows["x"], rows["y"], label=name, **look | dots)
        else:
            _curve(axes, str(name), rows, look, number)
    if panel.draw in figure_curves.PERCENT:
        picture_style.in_percent(axes.yaxis)
    guided = panel.draw in ("participation", "mean_delay")
    if guided:
        ends = [table["x"].min(), table["x"].max()]
        axes.plot(ends, ends, **_GUIDE)
    if panel.x == "round":
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    if panel.draw == "bound":
        axes.set_yscale("log")
    else:
        picture_style.in_millions(axes.yaxis)
    picture_style.in_millions(axes.xaxis)
    if table.empty:
        axes.text(0.5, 0.5, "not run", ha="center", transform=axes.transAxes)
    return guided


def _looks(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colours, dashes and markers of all series; grey for those of orientation."""
    coloured = [name for name in names if name not in _PLAIN]
    looks = picture_style.looks(coloured)
    for number, name in enumerate(_PLAIN):
        style = {"color": "0.45", "ls": (0, DASHES[2 + number]), "marker": "x"}
        looks[name] = style
    return looks


def _curve(
    axes: Axes, name: str, rows: pd.DataFrame, look: dict[str, Any], number: int
) -> None:
    """The mean over seeds where all of them are, and thin lines for each of a few."""
    x, mean, low, high = average(rows)
    (line,) = axes.plot(x, mean, label=name, **look)
    picture_style.spread_marks(line, number)
    axes.fill_between(x, low, high, color=look["color"], alpha=0.13, lw=0)
    seeds = rows["seed"].nunique()
    if 1 < seeds <= 3:
        thin: dict[str, Any] = {"color": look["color"], "lw": 0.4, "alpha": 0.45}
        for _, seed_rows in rows.groupby("seed"):
            axes.plot(seed_rows["x"], seed_rows["y"], **thin)


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
    """Writes pictures beside the table that they are drawn from."""
    try:
        points = pd.read_csv(table).astype({"x": float, "y": float})
        points = points[figure_curves.COLUMNS]
    except (OSError, ValueError, KeyError) as reason:
        raise InputError(f"{table} is no table of a figure ({reason}).") from None
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
