"""Very many runs as one page: heat maps, bands over seeds, and one line a setting.

Everything is a function of what indexes and folders tell; nothing here trains.
"""

import csv
import html
import io
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.records import IndexedRun, groups
from dpsparfl_jax.records.groups import Group
from dpsparfl_jax.records.index import CURVES
from dpsparfl_jax.report import (
    chart_pictures,
    charts,
    group_charts,
    headline,
    heat_maps,
    page,
    sections,
    traces,
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
    head = headline.headline(headline.of_groups(ranked), thinned=True) + _counts(
        runs, ranked
    )
    body = _charts(ranked, shown, few, maps, spec) + _tables(told, ranked)
    on = {one.number for one in few}
    scripts = ("group_page.js",)
    whole = page.frame(title, head, body, shown, on, spec, scripts)
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
    lines = traces.line_charts(shown, group_charts.CHARTS)
    for chart in lines.values():
        chart["data"] = [_short(trace) for trace in chart["data"]]
    heats = {name: heat_maps.heat_chart(one) for name, one in maps.items()}
    return {"charts": {**heats, **lines}, "table": table_of(ranked)}


def _short(trace: dict[str, Any]) -> dict[str, Any]:
    """The same curve in fewer letters."""
    made = {**trace, "x": _few_digits(trace["x"]), "y": _few_digits(trace["y"])}
    if "markers" not in made["mode"] or made["meta"]["band"]:
        del made["marker"]
    return made


def _few_digits(values: Sequence[float | None]) -> list[float | None]:
    return traces.plain([np.nan if value is None else value for value in values], 4)


def table_of(ranked: Sequence[Group]) -> dict[str, Any]:
    """One row a group: settings, number of runs, mean with least and largest."""
    heads = sections.headings()
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
    """Four digits, or one after the point: whole numbers take fewer letters."""
    short = float(f"{value:.4g}") if abs(value) < 1000 else round(value, 1)
    return int(short) if float(short).is_integer() else short


def _counts(runs: Sequence[IndexedRun], ranked: Sequence[Group]) -> str:
    """How many runs and settings there are, and what is left out."""
    done = sum(run.done for run in runs)
    left = len(runs) - done
    unfinished = f" {left:,} {'is' if left == 1 else 'are'} unfinished" if left else ""
    if left and done:
        unfinished += ", and told of in runs.csv alone."
    elif left:
        unfinished += ", which is all there is: numbers are those of the last rounds."
    return (
        f"<p>{len(runs):,} runs.{unfinished} Those that differ in their seed alone are "
        f"one of {len(ranked):,} settings, which have the mean over their runs here "
        "(and from the least to the largest); runs.csv has every run.</p>\n"
    )


def _tables(told: Sequence[IndexedRun], ranked: Sequence[Group]) -> str:
    """The table of groups, which a script fills, and what epsilons mean."""
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
        f"<h2>Settings, the best accuracy first</h2>\n{table}<p><small>Accuracy "
        f"is on {sections.judged_on(told)}, at the last evaluation; delay and energy "
        "are of all rounds; fairness is Jain's index of participations over rates (1 "
        "is best). Click a heading to sort.</small></p>\n"
        f"{sections.privacy_section(told)}{_shared(told)}{sections.made_section(told)}"
    )


def _shared(told: Sequence[IndexedRun]) -> str:
    """The settings that all runs share, folded away."""
    apart = {*groups.differing(told), "seed"}
    settings = groups.flat(told[0].manifest["config"])
    lines = [
        {"setting": html.escape(name), "value": html.escape(str(value))}
        for name, value in settings.items()
        if name not in apart
    ]
    fold = f"<summary>{len(lines)} settings that all runs share</summary>"
    return f"<details>{fold}\n{sections.html_table(lines)}</details>\n"


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
        which += f"{len(few)} of {len(shown)} curves are switched on at first. "
    about = (
        f"{which}Click a setting in the legend to switch it off or on, twice to see it "
        "alone. Curves are means over seeds, at rounds that all seeds reach, with "
        f"bands (up to {charts.FEW} curves) {groups.BANDS['range']}; they are thinned, "
        "here and in rounds.csv, and folders have every round."
    )
    return page.charts_section(
        "Charts", spec["charts"], maps_words | lines_words, about
    )
