"""Recorded runs as one page that needs no network, as PNG figures and as two tables.

Everything is a function of the record files alone; nothing here trains.
"""

import io
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import pandas as pd

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.records import RecordedRun, groups
from dpsparfl_jax.report import (
    chart_pictures,
    charts,
    client_table,
    headline,
    page,
    panels,
    round_section,
    sections,
    seeds,
    traces,
)
from dpsparfl_jax.report.following import reloading
from dpsparfl_jax.report.seeds import Entry
from dpsparfl_jax.storage import write_whole, writing

PAGE = "report.html"
_LABELS = ("Labels of clients", "Training images by class, from the first class up.")
# Which charts stand together, in the order of the page.
_PARTS = {
    "Accuracy": (
        *("accuracy_rounds", "accuracy_delay", "accuracy_epsilon"),
        *("accuracy_epsilon_mean", "accuracy_energy", "loss"),
    ),
    "Delay, energy and privacy": (
        *("delay", "mean_delay", "energy", "epsilon_rounds", "epsilon", "clients"),
    ),
    "Decisions": ("keep_rate", "participation", "delay_queue", "fairness_queue"),
}


def write_report(
    runs: Sequence[RecordedRun],
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
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    entries = seeds.show_runs(runs)
    if not reload_s:
        write_whole(folder / "runs.csv", runs_csv(runs))
        write_whole(folder / "rounds.csv", rounds_csv(runs))
        chart_pictures.write_figures([entry.shown for entry in entries], folder)
    text = whole_page(runs, entries, title)
    write_whole(folder / PAGE, reloading(text, reload_s))
    return folder / PAGE


def whole_page(
    runs: Sequence[RecordedRun], entries: Sequence[Entry], title: str
) -> str:
    """The page: what runs show, charts, a look into rounds, and tables."""
    shown = [entry.shown for entry in entries]
    small, lines = panels.panels(shown), traces.charts(shown)
    spec: dict[str, Any] = {"charts": {**lines, **(small if len(small) > 1 else {})}}
    scripts = []
    looks = seeds.looks_of(runs, entries)
    body = _charts(lines, entries, "Accuracy") + sections.runs_section(runs, looks)
    body += "".join(_charts(lines, entries, name) for name in [*_PARTS][1:])
    body += panels.section(shown, small)
    rounds, clients = round_section.spec_of(runs), client_table.table_of(runs)
    if rounds:
        spec["rounds"] = rounds
        scripts.append("rounds.js")
        body += round_section.section(rounds)
    if clients["runs"]:
        spec["clients"] = clients
        scripts.append("clients.js")
        body += sections.clients_section(clients)
    body += page.charts_section("Images", lines, {"labels": _LABELS})
    body += sections.settings_section(runs, looks) + sections.made_section(runs)
    head = headline.headline(headline.of_entries(entries))
    everything = {one.number for one in shown}
    return page.frame(title, head, body, shown, everything, spec, scripts)


def _charts(drawn: dict[str, Any], entries: Sequence[Entry], heading: str) -> str:
    """The boxes of the charts that stand together."""
    shown = [entry.shown for entry in entries]
    words = {
        key: (charts.CHARTS[key].title, charts.note_of(charts.CHARTS[key], shown))
        for key in _PARTS[heading]
    }
    about = ""
    if heading == "Accuracy":
        about = (
            "Click a name in the legend to switch it off or on, twice to see it alone. "
            "Long curves are thinned here; rounds.csv has every round. The camera "
            "above a chart saves it as PNG."
        )
        if any(len(entry.runs) > 1 for entry in entries):
            about += (
                " Curves of several seeds are means, at rounds that all of them reach, "
                f"with bands (up to {charts.FEW} curves) from the least to the "
                "largest; dots of clients are those of the first seed. Names have the "
                "settings that tell them apart; a table below has all that differ."
            )
    return page.charts_section(heading, drawn, words, about)


def runs_csv(runs: Sequence[RecordedRun]) -> str:
    """One row a run: its summary, and the settings in which runs differ."""
    settings = [groups.flat(run.manifest["config"]) for run in runs]
    names = sections.differing(settings)
    table = [
        {
            "run": run.name,
            "done": run.done,
            "private": run.private,
            **sections.summary(run),
        }
        | {name: values.get(name) for name in names}
        for run, values in zip(runs, settings, strict=True)
    ]
    return pd.DataFrame(table, dtype=object).to_csv(index=False, lineterminator="\n")


def rounds_csv(runs: Sequence[RecordedRun]) -> str:
    """All rounds of all runs; lists are JSON."""
    columns = list(dict.fromkeys(name for run in runs for name in run.rounds))
    text = io.StringIO()
    for number, run in enumerate(runs):
        table = run.rounds.reindex(columns=columns)
        for name in columns:
            if any(isinstance(value, list) for value in table[name].head(1)):
                table[name] = table[name].map(json.dumps)
        table.insert(0, "run", run.name)
        table.to_csv(text, index=False, header=number == 0, lineterminator="\n")
    return text.getvalue()
