"""Recorded runs as one page that needs no network, as PNG figures and as two tables.

Everything is a function of the record files alone; nothing here trains.
"""

import html
import io
import itertools
import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.records import (
    IndexedRun,
    RecordedRun,
    columns,
    groups,
    privacy_words,
    rows,
)
from dpsparfl_jax.records.columns import Row
from dpsparfl_jax.report import chart_pictures, charts
from dpsparfl_jax.report import page as page_lib
from dpsparfl_jax.report.charts import Shown
from dpsparfl_jax.report.following import reloading
from dpsparfl_jax.storage import write_whole, writing

PAGE = "report.html"


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
    shown = [charts.show(number, run) for number, run in enumerate(runs)]
    if not reload_s:
        write_whole(folder / "runs.csv", runs_csv(runs))
        write_whole(folder / "rounds.csv", rounds_csv(runs))
        chart_pictures.write_figures(shown, folder)
    head = _runs_section(runs, shown) + _settings_section(runs, shown)
    text = page_lib.page(title, head, shown)
    write_whole(folder / PAGE, reloading(text, reload_s))
    return folder / PAGE


def is_private(run: RecordedRun | IndexedRun) -> bool:
    """Whether its epsilons cover all that the run does with records."""
    return run.private


def sharing_noise(runs: Sequence[RecordedRun | IndexedRun]) -> list[str]:
    """Names of runs whose noise another run among these has as well."""
    paired: dict[int, list[str]] = {}
    for run in runs:
        content = run.manifest["config"]
        if run.private and content["privacy"].get("noise_key") == "paired":
            paired.setdefault(content["seed"], []).append(run.name)
    return [name for names in paired.values() if len(names) > 1 for name in names]


def summary(run: RecordedRun) -> Row:
    """What `rows.summarise` says; None is what a run cannot tell yet."""
    if run.rounds.empty:
        return {**dict.fromkeys(headings()), "rounds": 0}
    return rows.summarise(run.rounds.to_dict("records"), run.clients.to_dict("records"))


def headings() -> dict[str, tuple[str, str]]:
    """Heading and format of the columns of the table of runs."""
    return {**columns.summary_columns(), "fairness": ("fairness", "{:.3f}")}


def settings_of(run: RecordedRun | IndexedRun) -> dict[str, Any]:
    """All settings as `section.name`; of folders elsewhere, the last name only."""
    flat: dict[str, Any] = {}
    for section, content in run.manifest["config"].items():
        inside = content.items() if isinstance(content, dict) else [("", content)]
        for name, value in inside:
            flat[f"{section}.{name}".rstrip(".")] = groups.without_path(value)
    return flat


def differing(settings: Sequence[dict[str, Any]]) -> list[str]:
    """Names of the settings that not all runs share."""
    names = dict.fromkeys(itertools.chain.from_iterable(settings))
    return [n for n in names if len({repr(s.get(n)) for s in settings}) > 1]


def runs_csv(runs: Sequence[RecordedRun]) -> str:
    """One row a run: its summary, and the settings in which runs differ."""
    settings = [settings_of(run) for run in runs]
    names = differing(settings)
    table = [
        {"run": run.name, "done": run.done, "private": run.private, **summary(run)}
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


def html_table(lines: Iterable[dict[str, str]]) -> str:
    """A table of cells that are HTML already."""
    with pd.option_context("display.max_colwidth", None):
        table = pd.DataFrame(lines).to_html(index=False, escape=False, border=0)
    return f'<div class="wide">{table}</div>\n'


def _line(run: RecordedRun, one: Shown) -> dict[str, str]:
    """A run's line of the table."""
    whole = run.manifest.get("planned_rounds")
    of = f", {whole} planned" if whole else ""
    tag = "" if run.done else f' <span class="tag">unfinished{of}</span>'
    cells, numbers = {"run": page_lib.swatch(one) + tag}, summary(run)
    for name, (head, form) in headings().items():
        cells[head] = "-" if numbers[name] is None else form.format(numbers[name])
        if name.startswith("epsilon") and not run.private:
            cells[head] = "not private"
    return cells


def privacy_section(runs: Sequence[RecordedRun | IndexedRun]) -> str:
    """What epsilon means here, for which runs."""
    kinds: dict[str, list[str]] = {}
    for run in runs:
        kinds.setdefault(privacy_words(run.manifest), []).append(run.name)
    items = "".join(
        f"<li>{html.escape(kind)} <small>({html.escape(names)})</small></li>"
        for kind, members in kinds.items()
        for names in [_names(members, len(runs))]
    )
    return (
        "<p>Every epsilon is per client and per record, against an honest-but-curious "
        "server: neighbouring data sets differ in one record of one client replaced by "
        f"a null record.</p><ul>{items}</ul>\n{_shared_noise(runs)}"
        "<p><small>Training loss, gradient norms and label counts are measured on raw "
        "records: no epsilon covers them (<code>records.private_only</code> leaves "
        "them out).</small></p>\n"
    )


def _shared_noise(runs: Sequence[RecordedRun | IndexedRun]) -> str:
    """A warning, if noise can be subtracted."""
    sharing = sharing_noise(runs)
    if not sharing:
        return ""
    names = html.escape(_names(sharing, len(runs)))
    return (
        f'<p class="tag">Runs with one seed and paired noise ({names}) must not be '
        "released together: their noise can be subtracted, and no epsilon covers "
        "that.</p>\n"
    )


def _names(names: Sequence[str], count: int) -> str:
    if len(names) == count:
        return "all runs"
    many = len(names) > charts.FEW
    return f"{len(names)} runs" if many else ", ".join(names)


def _runs_section(runs: Sequence[RecordedRun], shown: Sequence[Shown]) -> str:
    """The table of runs, and what its columns mean."""
    table = html_table(_line(run, one) for run, one in zip(runs, shown, strict=True))
    return (
        f"<h2>Runs</h2>\n{table}<p><small>Accuracy is on test images, at the last "
        "evaluation; delay and energy are of all rounds; fairness is Jain's index of "
        "participations over rates (1 is best); diverged counts updates that were "
        f"dropped. Click a heading to sort.</small></p>\n{privacy_section(runs)}"
    )


def _settings_section(runs: Sequence[RecordedRun], shown: Sequence[Shown]) -> str:
    """Settings in which runs differ, and all others folded away."""
    settings = [settings_of(run) for run in runs]
    names = differing(settings)
    apart = [
        {"run": page_lib.swatch(one), **{name: _text(values, name) for name in names}}
        for one, values in zip(shown, settings, strict=True)
    ]
    shared = [
        {"setting": html.escape(name), "value": _text(settings[0], name)}
        for name in settings[0]
        if name not in names
    ]
    what = "<h2>Settings that differ</h2>\n" + html_table(apart) if names else ""
    rest = f"{len(shared)} settings" + (" that all runs share" if len(runs) > 1 else "")
    fold = f"<details><summary>{rest}</summary>\n{html_table(shared)}</details>\n"
    return what + fold


def _text(settings: dict[str, Any], name: str) -> str:
    return html.escape(str(settings.get(name, "-")))
