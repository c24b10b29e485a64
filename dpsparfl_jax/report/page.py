"""The page of a report: charts as plotly's dicts, and the frame around them.

Nothing is fetched when it is opened: plotly's script is in it, and its own rules forbid
the browser to load anything else.
"""

import html
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps, colors
from plotly.offline import get_plotlyjs

from dpsparfl_jax.report import charts as chart_lib
from dpsparfl_jax.report.charts import Chart, Curve, Floats, Shown

_POINTS = 40_000  # of all curves of a chart on the page, roughly
_STYLE = """
body { font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; color: #222;
  margin: 0 auto; max-width: 1680px; padding: 0 24px 48px; background: #fafafa }
h1 { font-size: 26px; margin: 28px 0 2px } h2 { font-size: 18px; margin: 28px 0 8px }
p, ul { max-width: 80ch; margin: 6px 0 } small, figcaption span { color: #666 }
nav { position: sticky; top: 0; z-index: 9; padding: 8px 0; background: #fafafae8 }
nav div { display: flex; flex-wrap: wrap; gap: 4px }
figcaption span { display: block; min-height: 1.5em }
svg.key { margin-right: 8px } summary { cursor: pointer }
button { font: inherit; font-size: 13px; text-align: left; padding: 3px 10px;
  background: #fff; border: 1px solid #ddd; border-radius: 6px; cursor: pointer;
  overflow-wrap: anywhere } button[aria-pressed=false] { opacity: .38 }
.wide { overflow: auto; max-height: 480px; background: #fff; border: 1px solid #e4e4e4;
  border-radius: 8px } table { border-collapse: collapse; min-width: 100% }
th, td { padding: 5px 10px; text-align: right; font-size: 14px; white-space: nowrap;
  border-bottom: 1px solid #eee; font-variant-numeric: tabular-nums }
th { color: #555; font-weight: 600; cursor: pointer; position: sticky; top: 0;
  background: #fff; white-space: normal; vertical-align: bottom }
th:first-child, td:first-child { text-align: left }
.tag { background: #fff0d6; border-radius: 4px; padding: 1px 6px; font-size: 12px }
.charts { display: grid; gap: 16px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr)) }
figure { margin: 0; min-width: 0; background: #fff; border: 1px solid #e4e4e4;
  border-radius: 8px; padding: 12px 12px 4px } .chart { height: 330px }
figure:has(#labels) { grid-column: 1 / -1 }
figcaption { font-size: 13px } figcaption b { font-size: 15px; margin-right: 6px }
@media (min-width: 1000px) { .many { display: grid; column-gap: 24px;
  grid-template-columns: 230px minmax(0, 1fr) } .many header { grid-column: 1 / 3 }
  .many nav { align-self: start; max-height: 96vh; overflow-y: auto }
  .many nav [data-run] { width: 100% } }
"""
_SCRIPT = """
const all = found => [...document.querySelectorAll(found)], boxes = all(".chart");
const spec = JSON.parse(document.getElementById("spec").textContent);
const keys = all("nav [data-run]"), isOn = key => key.ariaPressed === "true";
const buttons = [["toImage", "zoom2d", "pan2d", "resetScale2d"]];
const settings = {responsive: true, displaylogo: false, modeBarButtons: buttons};
let timer = 0;
function paint() {
  const few = keys.filter(isOn).length <= spec.few;
  for (const box of boxes) {
    const own = box.data.map((_, i) => i).filter(i => box.data[i].meta.runs?.length);
    const seen = ({runs, band}) => (few || !band) && runs.some(run => isOn(keys[run]));
    const visible = own.map(i => seen(box.data[i].meta));
    if (own.length) Plotly.restyle(box, {visible}, own);
  }
}
function turn(rule) {
  for (const key of keys) key.ariaPressed = String(rule(key));
  clearTimeout(timer);
  timer = setTimeout(paint, 150);
}
for (const key of keys) {
  key.onclick = () => turn(other => isOn(other) !== (other === key));
  key.ondblclick = () => turn(other => other === key);
}
document.getElementById("all").onclick = () => turn(() => true);
document.getElementById("none").onclick = () => turn(() => false);
const value = (row, at) => row.cells[at].textContent.replaceAll(",", "");
const compare = (x, y) => parseFloat(x) - parseFloat(y) || x.localeCompare(y);
for (const head of all("th")) head.onclick = () => {
  const way = head.dataset.way = -(head.dataset.way || 1), at = head.cellIndex;
  const lines = [...head.closest("table").tBodies[0].rows];
  lines.sort((a, b) => way * compare(value(a, at), value(b, at)));
  for (const line of lines) line.parentNode.append(line);
};
Promise.all(boxes.map(box => {
  const {data, layout} = spec.charts[box.id];
  return Plotly.newPlot(box, data, layout, settings);
})).then(made => { document.body.dataset.drawn = made.length; });
"""
_GUARD = """
document.documentElement.dataset.errors = "";
const note = text => { document.documentElement.dataset.errors += text + "; "; };
addEventListener("error", event => note(event.message));
addEventListener("unhandledrejection", event => note(event.reason));
addEventListener("securitypolicyviolation", event => note(event.blockedURI));
"""
_RULES = (  # nothing may be fetched from anywhere
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:"
)
_LABELS = ("Labels of clients", "Training images by class, from the first class up.")


_ABOUT = (
    "Click a run in the legend to switch it off or on, twice to see it alone. Long "
    "curves\nare thinned here; rounds.csv has every round."
)


def page(title: str, head: str, shown: Sequence[Shown]) -> str:
    """The whole page; `head` is the HTML above the charts."""
    words = {key: (chart.title, chart.note) for key, chart in chart_lib.CHARTS.items()}
    drawn = charts(shown)
    spec = json.dumps({"charts": drawn, "few": chart_lib.FEW}, allow_nan=False)
    body = charts_section(drawn, words | {"labels": _LABELS}, _ABOUT)
    return frame(title, head + body, shown, {one.number for one in shown}, spec)


def charts_section(
    drawn: Collection[str], words: Mapping[str, tuple[str, str]], about: str
) -> str:
    """A box for every chart that is drawn, with its title and note."""
    boxes = "".join(
        f"<figure><figcaption><b>{name}</b> <span>{note}</span></figcaption>"
        f'<div class="chart" id="{key}"></div></figure>\n'
        for key, (name, note) in words.items()
        if key in drawn
    )
    return f"""<h2>Charts</h2>
<p>{about}</p>
<noscript><p>The charts need JavaScript; the PNG files beside this page do not.</p>
</noscript><div class="charts">
{boxes}</div>"""


def frame(
    title: str,
    body: str,
    shown: Sequence[Shown],
    on: Collection[int],
    spec: str,
    script: str = "",
) -> str:
    """A page around its body.

    Args:
        title: in its head line.
        body: HTML with boxes for charts.
        shown: what the legend has.
        on: numbers of those that are switched on at first.
        spec: charts, and whatever else scripts need, as JSON.
        script: what runs after the page's own.
    """
    keys = "".join(
        f'<button data-run="{one.number}" '
        f'aria-pressed="{"true" if one.number in on else "false"}">'
        f"{swatch(one)}</button>"
        for one in shown
    )
    spec = spec.replace("<", "\\u003c")  # no tag can end the script
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>
<meta http-equiv="Content-Security-Policy" content="{_RULES}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{_STYLE}</style><script>{_GUARD}</script></head>
<body class="{"many" if len(shown) > chart_lib.FEW else "few"}">
<header><h1>{html.escape(title)}</h1></header>
<nav><div><button id="all">all</button><button id="none">none</button>{keys}</div></nav>
<main>{body}</main>
<script type="application/json" id="spec">{spec}</script>
<script>{get_plotlyjs()}</script><script>{_SCRIPT}{script}</script></body></html>
"""


def swatch(one: Shown) -> str:
    """A run's line and its name, as in the charts."""
    dashes = " ".join(map(str, one.dashes))
    return (
        '<svg class="key" width="30" height="8"><line x2="30" y1="4" y2="4" '
        f'stroke="{one.colour}" stroke-width="3" stroke-dasharray="{dashes}"/></svg>'
        f"{html.escape(one.name)}"
    )


def _plain(values: Floats, most: int) -> list[float | None]:
    """Numbers for JSON, thinned to `most` with both ends kept."""
    if len(values) > most:
        values = values[np.linspace(0, len(values) - 1, most).round().astype(int)]
    return [float(f"{x:.6g}") if np.isfinite(x) else None for x in values]


def layout(x_label: str, y_label: str, **more: Any) -> dict[str, Any]:
    """What all charts look like."""
    axis = {"gridcolor": "#ececec", "linecolor": "#999", "zeroline": False}
    axis |= {"automargin": True, "ticks": "outside", "tickcolor": "#999"}
    return {
        "xaxis": {**axis, "title": {"text": x_label}, "showgrid": False},
        "yaxis": {**axis, "title": {"text": y_label}},
        "margin": {"l": 56, "r": 16, "t": 30, "b": 44},
        "font": {"family": "inherit", "size": 12.5, "color": "#333"},
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
    one, most = curve.look, max(300, min(3000, _POINTS // count))
    colour = one.colour if one else chart_lib.GUIDE
    width = 2 if count <= chart_lib.FEW else 1.3
    line = _stroke(curve, width)
    few = len(curve.x) < 15 and curve.kind == "line"
    across = "" if chart.x_label == "client" else f"{chart.x_label} %{{x:.6~g}}<br>"
    who = "" if curve.clients is None else "client %{text}<br>"
    form = ".2%" if chart.percent else ".4~g"
    made: dict[str, Any] = {
        "type": "scatter",
        "name": html.escape(curve.name),
        "x": _plain(curve.x, most),
        "y": _plain(curve.y, most),
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
        made |= {"mode": "lines+text", "text": ["", made["name"]]}
        made["textposition"] = "top left"
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
        if data:
            made[key] = {"data": data, "layout": look}
    return made


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
