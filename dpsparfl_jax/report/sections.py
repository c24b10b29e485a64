"""The tables and words of a page as HTML."""

import html
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from dpsparfl_jax import own_code
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.records import (
    OWN_CODE,
    IndexedRun,
    RecordedRun,
    columns,
    groups,
    privacy_words,
    read_manifest,
    rows,
)
from dpsparfl_jax.records.columns import Row
from dpsparfl_jax.report import charts
from dpsparfl_jax.report import page as page_lib
from dpsparfl_jax.report.charts import Shown
from dpsparfl_jax.report.round_section import run_menu

_NOTHING = "-"  # in a cell
_LOOKED_AT = 24  # runs that are asked for their versions


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


def differing(settings: Sequence[dict[str, Any]]) -> list[str]:
    """Names of the settings that not all runs share."""
    names = dict.fromkeys(itertools.chain.from_iterable(settings))
    return [n for n in names if len({repr(s.get(n)) for s in settings}) > 1]


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
        cells[head] = _NOTHING if numbers[name] is None else form.format(numbers[name])
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


def runs_section(runs: Sequence[RecordedRun], shown: Sequence[Shown]) -> str:
    """The table of runs, and what its columns mean; empty columns are left out."""
    lines = [_line(run, one) for run, one in zip(runs, shown, strict=True)]
    told = {head for line in lines for head, cell in line.items() if cell != _NOTHING}
    table = html_table(
        {head: cell for head, cell in line.items() if head in told} for line in lines
    )
    return (
        f"<h2>Runs</h2>\n{table}<p><small>Accuracy is on {judged_on(runs)}, at the "
        "last evaluation; delay and energy are of all rounds; fairness is Jain's index "
        "of participations over rates (1 is best); diverged counts updates that were "
        f"dropped. Click a heading to sort.</small></p>\n{privacy_section(runs)}"
    )


def judged_on(runs: Sequence[RecordedRun | IndexedRun]) -> str:
    """The images that accuracies are measured on, in words."""
    contents = [run.manifest["config"] for run in runs]
    named = {groups.setting_of(content, "length.eval_on") for content in contents}
    validated = "training images that no client owns (length.eval_on=validation)"
    if "validation" not in named:
        return "test images"
    return validated if len(named) == 1 else f"test images, or on {validated}"


def settings_section(runs: Sequence[RecordedRun], shown: Sequence[Shown]) -> str:
    """Settings in which runs differ, and all others folded away."""
    settings = [groups.flat(run.manifest["config"]) for run in runs]
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


def clients_section(table: dict[str, Any]) -> str:
    """The table of clients, which a script fills, and a menu of runs."""
    heads = "".join(f"<th>{html.escape(head)}</th>" for head in table["heads"])
    names = [run["name"] for run in table["runs"]]
    return (
        f'<h2>Clients</h2>\n<div class="tools">{run_menu("whose_clients", names)} '
        '<small id="clients_words"></small></div>\n<div class="wide">'
        f'<table id="client_table"><thead><tr>{heads}</tr></thead>'
        "<tbody></tbody></table></div>\n"
    )


def made_section(runs: Sequence[RecordedRun | IndexedRun]) -> str:
    """Which versions made the runs, and the commands that go on from here."""
    made: dict[str, None] = {}
    for run in runs[:_LOOKED_AT]:
        words = _made_with(run)
        if words:
            made[words] = None
    lines = "".join(f"<li>{html.escape(words)}</li>" for words in made)
    commands = page_lib.asset("commands.html")
    commands = commands.replace("NAME", html.escape(runs[0].name))
    commands = commands.replace("OWN_CODE", _own_code(runs))
    return f"<h2>How this was made</h2>\n<ul>{lines}\n{commands}</ul>\n"


def _own_code(runs: Sequence[RecordedRun | IndexedRun]) -> str:
    """What users registered for these runs, and from which files; empty if nothing."""
    told = dict.fromkeys(
        html.escape(words)
        for run in runs
        for words in own_code.in_words(run.manifest.get(OWN_CODE))
    )
    if not told:
        return ""
    return page_lib.asset("own_code.html").replace("CODE", "; ".join(told))


def _made_with(run: RecordedRun | IndexedRun) -> str:
    """Versions and device of a run in words; empty if they are not known."""
    try:  # an index does not tell it
        known = isinstance(run, RecordedRun)
        manifest = run.manifest if known else read_manifest(run.path)
    except InputError:
        return ""
    versions, device = manifest.get("versions", {}), manifest.get("device", {})
    if not versions:
        return ""
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    where = f" on {device['count']} x {device['kind']}" if "kind" in device else ""
    return f"Trained with {told}{where}."
