"""Very many runs as one page: heat maps, bands over seeds, and one line a setting.

Everything is a function of what indexes and folders tell; nothing here trains.
"""

import csv
import html
import io
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.records import IndexedRun, groups
from dpsparfl_jax.records.groups import Group
from dpsparfl_jax.records.index import CURVES
from dpsparfl_jax.report import (
    chart_pictures,
    charts,
    group_charts,
    heat_maps,
    page,
    writing,
)
from dpsparfl_jax.report.charts import Shown
from dpsparfl_jax.report.following import reloading
from dpsparfl_jax.report.heat_maps import HeatMap
from dpsparfl_jax.storage import write_whole
from dpsparfl_jax.storage import writing as refusing

_TOLD = (
    *("accuracy", "delay_s", "epsilon_max", "energy_j", "best_accuracy", "fairness"),
    "rounds",
)
_SCRIPT = """
const table = spec.table, body = document.querySelector("#groups tbody");
const settings_count = table.heads.length - table.forms.length;
let order = table.rows.map((_, i) => i), start = 0;
const plain = cell => Array.isArray(cell) ? cell[0] : cell;
const write = (x, {percent, digits}) => x === null ? "-" : typeof x === "string" ? x :
  percent ? (100 * x).toFixed(2) + "%" :
  x.toLocaleString("en", {maximumFractionDigits: digits});
function cellText(cell, at) {
  if (at < settings_count) return cell;
  const form = table.forms[at - settings_count];
  if (!Array.isArray(cell)) return write(cell, form);
  const [mean, low, high] = cell.map(x => write(x, form));
  return low === high ? mean : `${mean} (${low} to ${high})`;
}
function fill() {
  start = Math.max(0, Math.min(start, order.length - 1));
  start -= start % table.page;
  const shown = order.slice(start, start + table.page);
  body.replaceChildren(...shown.map(number => {
    const line = document.createElement("tr");
    line.append(...table.rows[number].map((cell, at) => {
      const box = document.createElement("td");
      box.textContent = cellText(cell, at);
      return box;
    }));
    return line;
  }));
  document.getElementById("where").textContent =
    `${start + 1} to ${start + shown.length} of ${order.length}`;
}
const below = (x, y) => x === y ? 0 : x === null ? 1 : y === null ? -1 :
  typeof x === "number" && typeof y === "number" ? x - y :
  parseFloat(x) - parseFloat(y) || String(x).localeCompare(String(y));
for (const head of all("#groups th")) head.onclick = () => {
  const way = head.dataset.way = -(head.dataset.way || 1), at = head.cellIndex;
  const value = number => plain(table.rows[number][at]);
  order.sort((a, b) => way * below(value(a), value(b)));
  start = 0;
  fill();
};
document.getElementById("before").onclick = () => { start -= table.page; fill(); };
document.getElementById("after").onclick = () => { start += table.page; fill(); };
fill();
const drawn = setInterval(() => {
  if (document.body.dataset.drawn) { clearInterval(drawn); paint(); }
}, 20);
"""
_PAGE_LINES = 100  # of the table


def write_report(
    runs: Sequence[IndexedRun],
    folder: pathlib.Path,
    title: str = "Recorded runs",
    *,
    reload_s: int = 0,
) -> pathlib.Path:
    """Writes report.html, PNG figures, runs.csv and rounds.csv; returns the page.

    One that reloads itself, every `reload_s` seconds, is written alone.
    """
    if not runs:
        raise InputError("a report needs at least one recorded run.")
    with refusing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    told = [run for run in runs if run.done]
    told = told or [run for run in runs if run.summary["rounds"]] or list(runs)
    ranked = group_charts.rank(groups.group_runs(told))
    drawn = [ranked[n] for n in group_charts.choose(len(ranked), _most_drawn(ranked))]
    few_numbers = group_charts.choose(len(drawn), charts.FEW)
    shown = group_charts.show(drawn, few_numbers)
    few = [shown[number] for number in few_numbers]
    maps = heat_maps.heat_maps(ranked)
    if not reload_s:
        _write_beside(runs, few, maps, folder)
    spec = _spec(ranked, shown, maps)
    body = _head(runs, told, ranked) + _charts(ranked, shown, few, maps, spec)
    on = {one.number for one in few}
    text = json.dumps(spec, allow_nan=False, separators=(",", ":"))
    whole = page.frame(title, body, shown, on, text, _SCRIPT)
    write_whole(folder / writing.PAGE, reloading(whole, reload_s))
    return folder / writing.PAGE


def _write_beside(
    runs: Sequence[IndexedRun],
    few: Sequence[Shown],
    maps: Mapping[str, HeatMap],
    folder: pathlib.Path,
) -> None:
    """Tables and pictures."""
    text = groups.runs_frame(runs).to_csv(index=False, lineterminator="\n")
    write_whole(folder / "runs.csv", text)
    write_whole(folder / "rounds.csv", rounds_csv(runs))
    chart_pictures.write_group_figures(few, folder)
    for name, one in maps.items():
        chart_pictures.save(heat_maps.heat_figure(one), folder / f"{name}.png")


def _most_drawn(ranked: Sequence[Group]) -> int:
    """Fewer curves beside a long table, so that the page stays small."""
    return group_charts.MOST_DRAWN if len(ranked) <= 1000 else charts.FEW * 2


def rounds_csv(runs: Sequence[IndexedRun]) -> str:
    """The thinned curves of all runs, one row a round."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("run", *CURVES))
    for run in runs:
        curves = run.curves
        empty = [None] * len(curves.get("round", []))
        told = [curves.get(column, empty) for column in CURVES]
        table.writerows((run.name, *values) for values in zip(*told, strict=True))
    return text.getvalue()


def _spec(
    ranked: Sequence[Group], shown: Sequence[charts.Shown], maps: dict[str, HeatMap]
) -> dict[str, Any]:
    """All that scripts need: charts, maps, and the table of groups."""
    lines = page.line_charts(shown, group_charts.CHARTS)
    for chart in lines.values():
        chart["data"] = [_short(trace) for trace in chart["data"]]
    heats = {name: heat_maps.heat_chart(one) for name, one in maps.items()}
    return {
        "charts": {**heats, **lines},
        "few": charts.FEW,
        "table": table_of(ranked),
    }


def _short(trace: dict[str, Any]) -> dict[str, Any]:
    """The same curve in fewer letters."""
    made = {**trace, "x": _few_digits(trace["x"]), "y": _few_digits(trace["y"])}
    if "markers" not in made["mode"] or made["meta"]["band"]:
        del made["marker"]
    return made


def _few_digits(values: Sequence[float | None]) -> list[float | None]:
    short = [None if value is None else float(f"{value:.4g}") for value in values]
    return [int(x) if x is not None and x.is_integer() else x for x in short]


def table_of(ranked: Sequence[Group]) -> dict[str, Any]:
    """One row a group: settings, number of runs, mean with least and largest."""
    heads = writing.headings()
    forms = [{"percent": False, "digits": 0}]
    forms += [
        {"percent": form.endswith("%}"), "digits": 3 if ".3f" in form else 1}
        for _, form in (heads[name] for name in _TOLD)
    ]
    rows = [
        [
            *(groups.as_text(value) for value in group.settings.values()),
            len(group.runs),
            *(_cell(group, name) for name in _TOLD),
        ]
        for group in ranked
    ]
    names = groups.short_names(list(ranked[0].settings))
    titles = [*names, "runs", *(heads[name][0] for name in _TOLD)]
    return {"heads": titles, "forms": forms, "rows": rows, "page": _PAGE_LINES}


def _cell(group: Group, name: str) -> Any:
    if name.startswith("epsilon") and not group.private:
        return "not private"
    found = group.spread(name)
    if found is None:
        return None
    cell = [_rounded(value) for value in found]
    return cell[0] if len(set(cell)) == 1 else cell


def _rounded(value: float) -> float:
    """Four digits, or all before the point: whole numbers take fewer letters."""
    short = float(f"{value:.4g}") if abs(value) < 1000 else round(value)
    return int(short) if float(short).is_integer() else short


def _head(
    runs: Sequence[IndexedRun], told: Sequence[IndexedRun], ranked: Sequence[Group]
) -> str:
    """What there is, in words, and the table of groups."""
    done = sum(run.done for run in runs)
    left = len(runs) - done
    unfinished = f" {left:,} {'is' if left == 1 else 'are'} unfinished" if left else ""
    if left and done:
        unfinished += ", and told of in runs.csv alone."
    elif left:
        unfinished += ", which is all there is: numbers are those of the last rounds."
    words = (
        f"<p>{len(runs):,} runs.{unfinished} Those that differ in their seed alone are "
        f"one of {len(ranked):,} settings, which have the mean over their runs here "
        "(and from the least to the largest); runs.csv has every run.</p>\n"
    )
    heads = "".join(
        f"<th>{html.escape(title)}</th>" for title in table_of(ranked[:1])["heads"]
    )
    table = (
        '<div class="wide"><table id="groups"><thead><tr>'
        f"{heads}</tr></thead><tbody></tbody></table></div>\n"
        '<p><button id="before">previous</button> <button id="after">next</button> '
        '<small id="where"></small></p>\n'
    )
    return (
        f"{words}<h2>Settings, the best accuracy first</h2>\n{table}<p><small>Accuracy "
        "is on test images, at the last evaluation; delay and energy are of all "
        "rounds; fairness is Jain's index of participations over rates (1 is best). "
        f"Click a heading to sort.</small></p>\n{writing.privacy_section(told)}"
        f"{_shared(told)}"
    )


def _shared(told: Sequence[IndexedRun]) -> str:
    """The settings that all runs share, folded away."""
    apart = {*groups.differing(told), "seed"}
    settings = writing.settings_of(told[0])
    lines = [
        {"setting": html.escape(name), "value": html.escape(str(value))}
        for name, value in settings.items()
        if name not in apart
    ]
    fold = f"<summary>{len(lines)} settings that all runs share</summary>"
    return f"<details>{fold}\n{writing.html_table(lines)}</details>\n"


def _charts(
    ranked: Sequence[Group],
    shown: Sequence[charts.Shown],
    few: Sequence[charts.Shown],
    maps: dict[str, HeatMap],
    spec: dict[str, Any],
) -> str:
    """Boxes for all charts, and what is drawn of how many."""
    maps_words = {
        key: (html.escape(one.title), html.escape(one.note))
        for key, one in maps.items()
    }
    lines_words = {
        key: (chart.title, chart.note) for key, chart in group_charts.CHARTS.items()
    }
    which = ""
    if len(shown) < len(ranked):
        which = (
            f"Heat maps show all {len(ranked):,} settings; curves show {len(shown)} of "
            "them: those with the best and the worst accuracy, and an even choice "
            "between. "
        )
    if len(few) < len(shown):
        which += f"{len(few)} of these are switched on at first. "
    about = (
        f"{which}Click a setting in the legend to switch it off or on, twice to see it "
        "alone. Curves are means over seeds, at rounds that all seeds reach; they are "
        "thinned, here and in rounds.csv, and folders have every round."
    )
    return page.charts_section(spec["charts"], maps_words | lines_words, about)
