"""Charts as plotly's dicts; the page gives them its own colours when it draws them."""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps, colors

from dpsparfl_jax.report import charts as chart_lib
from dpsparfl_jax.report.charts import Chart, Curve, Shown
from dpsparfl_jax.report.palette import GUIDE

_POINTS = 3_000  # of all curves of a chart on the page, roughly
_FEWEST, _MOST = 100, 1000  # of a curve
_GUIDE_PX = 64  # beside a chart, for the name of a guide
_EVERY_TICK = 8  # rounds up to which each has a tick


def plain(values: Iterable[float], digits: int = 5) -> list[float | None]:
    """Numbers for JSON; whole ones take fewer letters, and nan is null."""
    short = [float(f"{x:.{digits}g}") if np.isfinite(x) else None for x in values]
    return [int(x) if x is not None and x.is_integer() else x for x in short]


def _thin(curve: Curve, most: int) -> Curve:
    """At most so many points of a curve, with both ends kept."""
    if len(curve.x) <= most:
        return curve
    kept = np.linspace(0, len(curve.x) - 1, most).round().astype(int)
    who = None if curve.clients is None else curve.clients[kept]
    return curve._replace(x=curve.x[kept], y=curve.y[kept], clients=who)


def layout(x_label: str, y_label: str, **more: Any) -> dict[str, Any]:
    """What all charts look like."""
    axis = {"zeroline": False, "automargin": True, "ticks": "outside"}
    axis |= {"exponentformat": "none", "separatethousands": True}
    across = {**axis, "title": {"text": x_label}, "showgrid": False}
    if x_label == "round":
        across |= {"tickformat": ",d", "nticks": _EVERY_TICK}
    return {
        "xaxis": across,
        "yaxis": {**axis, "title": {"text": y_label}},
        "margin": {"l": 56, "r": 16, "t": 30, "b": 44},
        "font": {"family": "inherit", "size": 12.5},
        "hoverlabel": {"namelength": -1},
        "showlegend": False,
        "hovermode": "closest",
        **more,
    }


def _stroke(curve: Curve, width: float) -> dict[str, Any] | None:
    dashes = curve.look.dashes if curve.look else ()
    dash = ",".join(f"{length}px" for length in dashes) or "solid"
    strokes: dict[str, dict[str, Any]] = {
        "line": {"width": width, "dash": dash},
        "thin": {"width": 1.2, "dash": "1px,3px"},
        "guide": {"width": 1.5, "dash": "6px,4px"},
        "band": {"width": 0},
    }
    return strokes.get(curve.kind)


def trace(curve: Curve, chart: Chart, count: int) -> dict[str, Any]:
    """A curve as plotly's dict; `count` runs share the chart."""
    curve = _thin(curve, max(_FEWEST, min(_MOST, _POINTS // count)))
    one = curve.look
    colour = one.colour if one else GUIDE
    width = 2 if count <= chart_lib.FEW else 1.3
    line = _stroke(curve, width)
    few = len(curve.x) < 15 and curve.kind == "line"
    across = "" if chart.x_label == "client" else f"{chart.x_label} %{{x:.6~g}}<br>"
    who = "" if curve.clients is None else "client %{text}<br>"
    form = ".2%" if chart.percent else ".4~g"
    made: dict[str, Any] = {
        "type": "scatter",
        "name": html.escape(curve.name),
        "x": plain(curve.x),
        "y": plain(curve.y),
        "mode": ("lines+markers" if few else "lines") if line else "markers",
        "line": {"color": colour, **(line or {})},
        "marker": {"color": colour, "size": 5 + width, "opacity": 0.85},
        "meta": {"runs": curve.runs, "band": curve.kind == "band"},
        "hovertemplate": f"{who}{across}{chart.y_label} %{{y:{form}}}",
    }
    if one:
        made["marker"]["symbol"] = one.marker[0]
    if curve.clients is not None:
        made["text"] = [f"{client:.0f}" for client in curve.clients]
    if curve.kind == "guide":
        name = made["name"].replace(" ", "<br>", 1)  # beside all curves, in the margin
        made |= {"mode": "lines+text", "text": ["", name], "cliponaxis": False}
        made["textposition"] = "middle right"
    if curve.kind == "marks":
        stroke = {"width": 2, "color": colour}
        made["marker"] = {"symbol": "line-ew-open", "size": 14, "line": stroke}
    if curve.kind == "band":
        made |= {"fill": "toself", "fillcolor": f"{colour}26", "hoverinfo": "skip"}
        made |= {"hovertemplate": None, "visible": count <= chart_lib.FEW}
    return made


def charts(shown: Sequence[Shown]) -> dict[str, dict[str, Any]]:
    """All charts that have something to show, as plotly's dicts."""
    made = line_charts(shown, chart_lib.CHARTS)
    labels = label_chart(shown)
    return made | ({"labels": labels} if labels["data"] else {})


def line_charts(
    shown: Sequence[Shown], table: Mapping[str, Chart]
) -> dict[str, dict[str, Any]]:
    """Those charts of a table that have something to show."""
    made = {}
    for key, chart in table.items():
        data = [trace(curve, chart, len(shown)) for curve in chart.curves(shown)]
        look = layout(chart.x_label, chart.y_label)
        look["yaxis"]["tickformat"] = ".0%" if chart.percent else ""
        look["yaxis"]["rangemode"] = "tozero" if chart.from_zero else "normal"
        _tick_few_rounds(look["xaxis"], data)
        if any("text" in one["mode"] for one in data):
            look["margin"] |= {"r": _GUIDE_PX}
        if data:
            made[key] = {"data": data, "layout": look}
    return made


def _tick_few_rounds(axis: dict[str, Any], data: Sequence[dict[str, Any]]) -> None:
    """A tick for every round, if there are few: others would be between rounds."""
    last = max((x for one in data for x in one["x"] if x is not None), default=0)
    if "nticks" in axis and last <= _EVERY_TICK:
        axis["dtick"] = 1


def label_chart(shown: Sequence[Shown]) -> dict[str, Any]:
    """Images of each class by client; a menu chooses between distinct partitions."""
    partitions: dict[bytes, tuple[str, pd.DataFrame]] = {}
    for one in shown:
        counts = one.clients.filter(regex=r"^label_\d+$")
        if counts.size:
            partitions.setdefault(counts.to_numpy().tobytes(), (one.name, counts))
    bars = [
        {
            "type": "bar",
            "name": name.replace("label_", "class "),
            "x": list(range(len(counts))),
            "y": counts[name].tolist(),
            "marker": {"color": colors.to_hex(colormaps["viridis"](shade))},
            "meta": {"part": part},
            "visible": part == 0,
            "hovertemplate": "client %{x}<br>%{y} images",
        }
        for part, (_, counts) in enumerate(partitions.values())
        for name, shade in zip(counts, np.linspace(0, 1, len(counts.T)), strict=True)
    ]
    menu: dict[str, Any] = {"x": 0, "xanchor": "left", "y": 1.18, "yanchor": "top"}
    menu["buttons"] = [
        {
            "label": html.escape(name),
            "method": "restyle",
            "args": [{"visible": visible}],
        }
        for part, (name, _) in enumerate(partitions.values())
        for visible in [[bar["meta"]["part"] == part for bar in bars]]
    ]
    look = layout("client", "training images", barmode="stack", bargap=0.15)
    if len(partitions) > 1:
        look |= {"updatemenus": [menu], "margin": {**look["margin"], "t": 52}}
    return {"data": bars, "layout": look}
