"""PNG files of the main charts."""

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from dpsparfl_jax.report import group_charts, plan_pictures
from dpsparfl_jax.report.charts import CHARTS, FEW, Chart, Curve, Shown
from dpsparfl_jax.report.palette import GUIDE
from dpsparfl_jax.report.picture_style import HANDLE_LETTERS, stroke
from dpsparfl_jax.report.picture_style import key as sample_of
from dpsparfl_jax.storage import replacing, writing

_ALONE = (
    "accuracy_rounds accuracy_delay accuracy_epsilon keep_rate epsilon participation "
    "energy"
)
FIGURES: dict[str, tuple[str, ...]] = {key: (key,) for key in _ALONE.split()} | {
    "delay": ("delay", "mean_delay"),
    "queues": ("delay_queue", "fairness_queue"),
}
_KEY_MARKER = 4.0  # points
_WHOLE_PERCENTS = 0.1  # from where to where an axis goes that needs no fractions
DOTTED = ("epsilon", "participation")  # charts of clients, not of rounds


def write_figures(runs: Sequence[Shown], folder: pathlib.Path) -> None:
    """Writes the main charts as PNG files, each whole or not at all."""
    for name, keys in FIGURES.items():
        save(_figure(runs, keys), folder / f"{name}.png")
    write_labels(runs, folder / "labels.png")


def write_group_figures(shown: Sequence[Shown], folder: pathlib.Path) -> None:
    """Writes the main charts of groups of runs, with bands over seeds."""
    for name, keys in group_charts.FIGURES.items():
        save(_figure(shown, keys, group_charts.CHARTS), folder / f"{name}.png")


def write_labels(runs: Sequence[Shown], path: pathlib.Path) -> None:
    """Writes a picture of who owns which labels, of the first run that tells."""
    for one in runs:
        counts = one.clients.filter(regex=r"^label_\d+$")
        if counts.size:
            figure = plan_pictures.label_figure(counts.to_numpy())
            figure.axes[0].set_title(short(one.name), fontsize="medium")
            save(figure, path)
            return


def save(figure: Figure, path: pathlib.Path) -> None:
    """Writes a picture, whole or not at all."""
    with writing(path), replacing(path) as part:
        figure.savefig(part, format="png", dpi=150)


def _figure(
    runs: Sequence[Shown], keys: Sequence[str], table: Mapping[str, Chart] = CHARTS
) -> Figure:
    """Charts side by side, with one legend: below for few runs, beside for many."""
    beside = math.ceil(len(runs) / 18) if len(runs) > FEW else 0
    size = (5.2 * len(keys) + 2.2 * beside, 3.8 if table is CHARTS else 4.6)
    figure = Figure(figsize=size, layout="constrained")
    row = figure.subplots(1, len(keys), squeeze=False)[0]
    for axes, key in zip(row, keys, strict=True):
        chart = table[key]
        axes.set(xlabel=chart.x_label, ylabel=chart.y_label, axisbelow=True)
        axes.grid(color="0.92", lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        for curve in chart.curves(runs):
            if curve.kind != "band" or not beside:
                draw(axes, curve, 1.0 if beside else 1.5)
        finish_axes(axes, chart)
    dots = table is CHARTS and keys[0] in DOTTED
    handles = [legend_key(one, dots, "small") for one in runs]
    whole = table is not CHARTS  # names of groups are all there is to tell them apart
    names = [short(one.name, 64 if whole else 32) for one in runs]
    place: Any = "outside right upper" if beside else "outside lower center"
    columns = beside or (1 if whole else min(3, len(runs)))
    style: dict[str, Any] = {"frameon": False, "handlelength": HANDLE_LETTERS}
    figure.legend(handles, names, loc=place, ncols=columns, fontsize="small", **style)
    return figure


def finish_axes(axes: Axes, chart: Chart) -> None:
    """Where the y axis begins, and what its numbers look like."""
    if chart.from_zero:
        axes.set_ylim(bottom=0)
    if chart.percent:
        low, high = axes.get_ylim()
        digits = 0 if high - low > _WHOLE_PERCENTS else None
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, digits))


def legend_key(one: Shown, dots: bool, font_size: Any = None) -> Line2D:
    """What stands for a run or setting in a legend."""
    line = {"color": one.colour, "ls": ""} if dots else stroke(one.colour, one.dashes)
    return sample_of({**line, "marker": one.marker[1], "ms": _KEY_MARKER}, font_size)


def short(name: str, most: int = 32) -> str:
    """A name that fits into a legend and that matplotlib takes as it is."""
    half = most // 2
    cut = name if len(name) <= most else f"{name[: half - 1]}…{name[-half:]}"
    return cut.replace("$", r"\$") if not cut.startswith("_") else f" {cut}"


def draw(axes: Axes, curve: Curve, width: float) -> None:
    """Adds a curve to a chart."""
    one = curve.look
    style: dict[str, Any] = {"color": one.colour if one else GUIDE}
    if curve.kind == "band":
        axes.fill(curve.x, curve.y, alpha=0.13, lw=0, **style)
        return
    style |= {
        "line": {"lw": width, **(stroke(one.colour, one.dashes) if one else {})},
        "thin": {"lw": 0.8, "ls": ":"},
        "guide": {"lw": 1.0, "ls": "--", "zorder": 1.5},
        "dots": {"ls": "", "ms": 2.5 + width, "mew": 0, "alpha": 0.85},
        "marks": {"ls": "", "marker": "_", "ms": 9, "mew": 1.3},
    }[curve.kind]
    if one and curve.kind == "dots":
        style["marker"] = one.marker[1]
    if len(curve.x) < 15 and curve.kind == "line":
        style |= {"marker": one.marker[1] if one else "o", "ms": 3}
    axes.plot(curve.x, curve.y, **style)
    if curve.kind == "guide":
        words: dict[str, Any] = {"va": "center", "fontsize": "small", "color": GUIDE}
        words |= {"xytext": (2, 0), "textcoords": "offset points"}
        place = (1, curve.y[-1]), axes.get_yaxis_transform()  # beside all curves
        axes.annotate(
            curve.name.replace(" ", "\n", 1), place[0], xycoords=place[1], **words
        )
