"""The frame of a report's page: legend, filters, boxes for charts, style and scripts.

Nothing is fetched when it is opened: plotly's script is in it, and its own rules forbid
the browser to load anything else.
"""

import html
import json
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from plotly.offline import get_plotlyjs

from dpsparfl_jax.report import charts as chart_lib
from dpsparfl_jax.report import palette
from dpsparfl_jax.report.charts import Shown

_RULES = (  # nothing may be fetched from anywhere
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:"
)
_ASSETS = pathlib.Path(__file__).with_name("assets")
_MOST_CHOICES = 60  # values of a setting that a filter offers


def asset(name: str) -> str:
    """A style sheet or script of the page."""
    return (_ASSETS / name).read_text(encoding="utf-8")


def charts_section(
    heading: str,
    drawn: Collection[str],
    words: Mapping[str, tuple[str, str]],
    about: str = "",
) -> str:
    """A box for every chart that is drawn, with title and note; empty if none is."""
    boxes = "".join(
        chart_box(key, name, note)
        for key, (name, note) in words.items()
        if key in drawn
    )
    if not boxes:
        return ""
    return (
        f"<h2>{heading}</h2>\n{f'<p>{about}</p>' if about else ''}\n"
        f'<div class="charts">\n{boxes}</div>\n'
    )


def chart_box(key: str, name: str, note: str, run: int | None = None) -> str:
    """A chart's box; that of a run goes when the run is switched off."""
    whose = "" if run is None else f' data-run="{run}"'
    return (
        f"<figure{whose}><figcaption><b>{name}</b> <span>{note}</span></figcaption>"
        f'<div class="chart" id="{key}"></div></figure>\n'
    )


def frame(
    title: str,
    head: str,
    body: str,
    shown: Sequence[Shown],
    on: Collection[int],
    spec: Mapping[str, Any],
    scripts: Sequence[str] = (),
) -> str:
    """A page around its parts.

    Args:
        title: in its head line.
        head: HTML below that, above the legend.
        body: HTML with boxes for charts.
        shown: what the legend has.
        on: numbers of those that are switched on at first.
        spec: charts, and whatever else scripts need.
        scripts: names of scripts that run after the page's own.
    """
    keys = "".join(
        f'<button data-run="{one.number}" '
        f'aria-pressed="{"true" if one.number in on else "false"}">'
        f"{swatch(one)}</button>"
        for one in shown
    )
    told = {
        **spec,
        "few": chart_lib.FEW,
        "on": sorted(on),
        "on_dark": palette.ON_DARK,
        "values": [dict(one.settings) for one in shown],
    }
    text = json.dumps(told, allow_nan=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c")  # no tag can end the script
    script = "".join(map(asset, ("page.js", *scripts)))
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>
<meta http-equiv="Content-Security-Policy" content="{_RULES}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<style>{asset("page.css")}</style><script>{asset("guard.js")}</script></head>
<body class="{"many" if len(shown) > chart_lib.FEW else "few"}">
<header><h1>{html.escape(title)}</h1>
{head}</header>
<nav><div><button id="all">all</button><button id="none">none</button>
{_filters(shown)}{keys}</div></nav>
<main>{body}</main>
<script type="application/json" id="spec">{text}</script>
<script>{get_plotlyjs()}</script><script>{script}</script></body></html>
"""


def _filters(shown: Sequence[Shown]) -> str:
    """A menu for every setting in which what is shown differs, if they are several."""
    values: dict[str, dict[str, None]] = {}
    for one in shown:
        for name, value in one.settings.items():
            values.setdefault(name, {})[value] = None
    menus = {n: v for n, v in values.items() if 1 < len(v) <= _MOST_CHOICES}
    if len(shown) <= 2 or (len(menus) == 1 and len(shown) <= chart_lib.FEW):
        return ""
    return "".join(
        f'<label>{html.escape(name)} <select name="{html.escape(name)}">'
        '<option value="">any</option>'
        f"{''.join(f'<option>{html.escape(value)}</option>' for value in choices)}"
        "</select></label>"
        for name, choices in menus.items()
    )


def breakable(name: str) -> str:
    """A name as HTML that may be broken after its signs, and not inside words."""
    text = html.escape(name)
    for sign in (",", "/"):
        text = text.replace(sign, f"{sign}<wbr>")
    return text


def swatch(one: Shown) -> str:
    """A run's line and its name, as in the charts."""
    dashes = " ".join(f"{part:g}" for part in palette.fitted(one.dashes, 30))
    return (
        '<svg class="key" width="30" height="8"><line x2="30" y1="4" y2="4" '
        f'stroke="{one.colour}" stroke-width="3" stroke-dasharray="{dashes}"/></svg>'
        f"{breakable(one.name)}"
    )
