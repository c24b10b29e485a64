"""The part of a page in which one steps through the rounds of a run."""

import html
from collections.abc import Sequence
from typing import Any

from dpsparfl_jax.records import RecordedRun
from dpsparfl_jax.report import cell_map, page, palette, timeline, traces

_CELL_WORDS = (
    "Clients by their mean gain over channels; circles and lines: who sends in this "
    "round, and where its channel is received. Positions follow from the settings; "
    "recorded downlink delays agree with them."
)


def spec_of(runs: Sequence[RecordedRun]) -> dict[str, Any] | None:
    """What the script needs of all runs that have rounds; None if none has."""
    told = [run for run in runs if "delays_s" in run.rounds]
    if not told:
        return None
    most = timeline.MOST_SLOTS // len(told)
    look = traces.layout("time since the round began (s)", "")
    look["xaxis"]["showgrid"] = True
    look["yaxis"] |= {"autorange": "reversed", "type": "category", "showgrid": False}
    look |= {"barmode": "overlay", "bargap": 0.3, "showlegend": True}
    look |= {"legend": {"orientation": "h", "y": 1.12}}
    square = traces.layout("x (m)", "y (m)")
    square["yaxis"] |= {"scaleanchor": "x", "showgrid": False}
    square |= {"showlegend": True, "legend": {"orientation": "h", "y": 1.2}}
    square["margin"] |= {"t": 56}
    return {
        "runs": [_of_run(run, most) for run in told],
        "fields": timeline.FIELDS,
        "colours": {
            "downlink": palette.DOWNLINK,
            "training": palette.TRAINING,
            "upload": palette.UPLOAD,
            "whole": palette.WHOLE,
        },
        "guide": palette.GUIDE,
        "layouts": {"timeline": look, "cell": square},
        "cell_words": _CELL_WORDS,
    }


def _of_run(run: RecordedRun, most: int) -> dict[str, Any]:
    plan = timeline.plan_of(run)
    cell = cell_map.cell_of(run, plan)
    told = timeline.rounds_of(run, plan, most)
    without = {"cell": None, "no_cell": cell}
    return told | (without if isinstance(cell, str) else {"cell": cell, "no_cell": ""})


def section(spec: dict[str, Any]) -> str:
    """Menus, and boxes for the timeline and the map."""
    names = [run["name"] for run in spec["runs"]]
    kept = [run["rounds"] for run in spec["runs"]]
    thinned = any(rounds != [*range(1, len(rounds) + 1)] for rounds in kept)
    some = " Long runs are thinned: not every round can be chosen." if thinned else ""
    return f"""<h2>Look into a round</h2>
<p>Choose a run, and step through its rounds with the buttons, the slider or the arrow
keys.{some}</p>
<div class="tools">{run_menu("which_run", names)}
<button id="round_before">previous</button>
<input type="range" id="which_round" min="0" value="0" aria-label="round">
<button id="round_after">next</button> <span id="round_words"></span></div>
<div class="charts">
{page.chart_box("timeline", "Timeline of the round", _timeline_words(spec))}
<figure><figcaption><b>The cell</b> <span id="cell_words"></span></figcaption>
<div class="chart" id="cell"></div></figure>
</div>
"""


def _timeline_words(spec: dict[str, Any]) -> str:
    words = "A bar a client that sends; dashed: the planned end of the round."
    if not all(run["parts"] for run in spec["runs"]):
        words += (
            " A run without a schedule of its own has the whole delay of each client, "
            "not its parts."
        )
    return words


def run_menu(key: str, names: Sequence[str]) -> str:
    """A menu of runs."""
    options = "".join(
        f'<option value="{number}">{html.escape(name)}</option>'
        for number, name in enumerate(names)
    )
    return f'<select id="{key}" aria-label="run">{options}</select>'
