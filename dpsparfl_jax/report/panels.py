"""Small multiples: the keep rates of every setting in a panel of its own."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpsparfl_jax.report import charts, page, traces
from dpsparfl_jax.report.charts import Chart, Curve, Shown

_SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
_ABOUT = (
    "What the clients that send keep of their gradients, in windows of rounds: the "
    "median, the middle half, and the middle nine tenths of them. All panels have the "
    "same axes."
)


def panels(shown: Sequence[Shown]) -> dict[str, dict[str, Any]]:
    """A chart for everything shown that has keep rates, by the id of its box."""
    lasts = [float(one.rounds["round"].max()) for one in shown if len(one.rounds)]
    last = max(lasts, default=1.0)
    made = {}
    for one in shown:
        across, found = charts.keep_quantiles(one, _SHARES)
        if across.size:
            made[f"keep_{one.number}"] = _panel(one, across, found, last)
    return made


def _panel(
    one: Shown, across: charts.Floats, found: charts.Floats, last: float
) -> dict[str, Any]:
    table = Chart("", "round", "share kept", lambda runs: [], "", True)
    curves = [
        charts.around(one, across, found[0], found[4]),
        charts.around(one, across, found[1], found[3]),
        Curve(one.name, across, found[2], "line", (one.number,), one),
    ]
    data = [traces.trace(curve, table, 1) for curve in curves]
    for drawn in data:  # the whole box goes with its run
        drawn["meta"] = {}
    look = traces.layout("round", "share kept")
    look["xaxis"] |= {"range": [min(1.0, float(np.min(across))), last], "nticks": 5}
    look["yaxis"] |= {"range": [0, 1.04], "tickformat": ".0%", "nticks": 4}
    look["margin"] = {"l": 48, "r": 10, "t": 26, "b": 40}
    return {"data": data, "layout": look}


def section(shown: Sequence[Shown], drawn: dict[str, dict[str, Any]]) -> str:
    """The boxes of all panels; empty if there are fewer than two."""
    if len(drawn) < 2:
        return ""
    boxes = "".join(
        page.chart_box(f"keep_{one.number}", page.swatch(one), "", one.number)
        for one in shown
        if f"keep_{one.number}" in drawn
    )
    return (
        f"<h2>Keep rates of each setting</h2>\n<p>{_ABOUT}</p>\n"
        f'<div class="charts panels">\n{boxes}</div>\n'
    )
