"""Pictures of a figure's curves: mean and 95% confidence band over seeds.

A picture is a function of the figure's table alone, and carries the table's checksum.
"""

import hashlib
import pathlib
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import figure as plt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.records.comparisons import interval
from dpsparfl_jax.report.palette import COLOURS, DASHES
from dpsparfl_jax.report.plan_pictures import TRUETYPE
from dpsparfl_jax.storage import replacing, writing

from . import figure_curves
from .catalogue import Figure, Panel

_GRID_POINTS = 40  # of a curve whose seeds have different x
_PLAIN = ("all kept", "no noise, no clipping, all kept")  # for orientation: grey


def draw(figure: Figure, table: pd.DataFrame) -> plt.Figure:
    """All panels side by side, at most three in a row."""
    columns = min(len(figure.panels), 3 if len(figure.panels) != 4 else 2)
    lines = -(-len(figure.panels) // columns)
    picture = plt.Figure(figsize=(3.3 * columns, 2.7 * lines), layout="constrained")
    axes = picture.subplots(lines, columns, squeeze=False).ravel()
    names: dict[str, Any] = {}
    coloured = [name for name in table["series"].unique() if name not in _PLAIN]
    for panel, place in zip(figure.panels, axes, strict=False):
        _panel(place, panel, table[table["panel"] == panel.name], coloured)
        names |= dict(zip(*reversed(place.get_legend_handles_labels()), strict=True))
    for place in axes[len(figure.panels) :]:
        place.set_axis_off()
    picture.legend(
        list(names.values()),
        list(names),
        loc="outside lower center",
        ncols=min(len(names), 4),
        frameon=False,
        fontsize=8,
    )
    return picture


def _panel(axes: Axes, panel: Panel, table: pd.DataFrame, coloured: list[str]) -> None:
    axes.set_title(panel.title, fontsize=9)
    axes.set_xlabel(panel.x, fontsize=8)
    axes.set_ylabel(panel.y, fontsize=8)
    axes.tick_params(labelsize=7)
    axes.grid(color="0.9", lw=0.5)
    for name, rows in table.groupby("series", sort=False):
        look = _look(str(name), coloured)
        if panel.draw in figure_curves.DOTS:
            dots: dict[str, Any] = {"ls": "", "marker": ".", "ms": 3, "alpha": 0.6}
            axes.plot(rows["x"], rows["y"], label=name, color=look["color"], **dots)
        else:
            _curve(axes, str(name), rows, look)
    if panel.draw in figure_curves.PERCENT:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    if panel.draw == "participation" or panel.draw == "mean_delay":
        ends = [table["x"].min(), table["x"].max()]
        axes.plot(ends, ends, color="0.5", ls=":", lw=1, label="as asked")
    if panel.x == "round":
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    if panel.draw == "bound":
        axes.set_yscale("log")
    if table.empty:
        axes.text(0.5, 0.5, "not run", ha="center", transform=axes.transAxes)


def _look(name: str, coloured: list[str]) -> dict[str, Any]:
    if name in _PLAIN:
        return {"color": "0.45", "dashes": DASHES[2 + _PLAIN.index(name)]}
    number = coloured.index(name)
    return {"color": COLOURS[number % len(COLOURS)], "dashes": DASHES[number // 7]}


def _curve(axes: Axes, name: str, rows: pd.DataFrame, look: dict[str, Any]) -> None:
    """The mean over seeds where all of them are, and thin lines for each of a few."""
    dashes = look.pop("dashes")
    style = {"dashes": dashes} if dashes else {}
    x, mean, low, high = average(rows)
    marker = "o" if len(x) <= 12 else ""
    axes.plot(x, mean, label=name, marker=marker, ms=3, lw=1.4, **look, **style)
    axes.fill_between(x, low, high, color=look["color"], alpha=0.15, lw=0)
    seeds = rows["seed"].nunique()
    if 1 < seeds <= 3:
        for _, seed_rows in rows.groupby("seed"):
            axes.plot(seed_rows["x"], seed_rows["y"], lw=0.5, alpha=0.45, **look)


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


def save(figure: Figure, table: pathlib.Path) -> list[pathlib.Path]:
    """Writes PNG and PDF beside the table that they are drawn from."""
    try:
        points = pd.read_csv(table).astype({"x": float, "y": float})
        points = points[figure_curves.COLUMNS]
    except (OSError, ValueError, KeyError) as reason:
        raise InputError(f"{table} is no table of a figure ({reason}).") from None
    picture = draw(figure, points)
    origin = f"drawn from {table.name}, sha256 {checksum(table)}"
    written = []
    for ending, key in ((".png", "Description"), (".pdf", "Subject")):
        path = table.with_suffix(ending)
        facts = {key: origin} | ({"CreationDate": None} if ending == ".pdf" else {})
        with writing(path), replacing(path) as part, rc_context(TRUETYPE):
            picture.savefig(part, format=ending[1:], dpi=140, metadata=facts)
        written.append(path)
    return written


def checksum(table: pathlib.Path) -> str:
    """Of a table, as its pictures carry it."""
    return hashlib.sha256(table.read_bytes()).hexdigest()
