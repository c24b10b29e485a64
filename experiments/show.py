"""One recorded run on one screen: what it is, what it spent, and what came of it.

    dpsparfl show runs/first

It never trains, and reads the run's own files. `dpsparfl list` tells of many runs,
`dpsparfl compare` how they differ.
"""

import pathlib
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dpsparfl_jax import config, config_values, records
from dpsparfl_jax.errors import InputError, StorageError
from dpsparfl_jax.records import columns, groups, rows
from dpsparfl_jax.storage import refuse_held

from . import cli, presets, tables

_WIDTH = 100
_MOST_LINES = {"settings": 9, "warnings": 6}  # and 4 for all else
_LONGEST_VALUE = 48  # characters of a setting's value
_FILES = (
    *(records.MANIFEST, records.SCHEDULE, records.ROUNDS, records.CHECKPOINTS),
    *(records.CLIENTS, records.DONE),
)
_AT_THE_END = (records.CLIENTS, records.DONE)
_RESULTS = (
    *("accuracy", "best_accuracy", "accuracy_averaged", "best_accuracy_averaged"),
    *("delay_s", "energy_j", "fairness", "late", "lost", "diverged"),
)


def main(folders: list[str]) -> None:
    """Prints what is known about one run."""
    if len(folders) != 1:
        raise InputError(
            f"name the folder of one run, not {len(folders)} (dpsparfl list and "
            "dpsparfl compare take several)."
        )
    folder = pathlib.Path(folders[0])
    if not (folder / records.MANIFEST).is_file():
        raise InputError(_why_not(folder))
    run = records.load_run(folder, folder.resolve().name)
    for heading, sentences in _parts(run):
        _print(heading, sentences)


def _why_not(folder: pathlib.Path) -> str:
    found = records.FoundRuns([folder])  # refuses a folder without any
    return (
        f"{folder} is no run itself, but {len(found):,} of them lie below it: name one "
        f"({found.paths[0].relative_to(folder.resolve())}, say), or list them with "
        "dpsparfl list."
    )


def _parts(run: records.RecordedRun) -> Iterator[tuple[str, list[str]]]:
    yield "run", [f"{run.name}: {_state(run)}"]
    base, changes = _settings(run.manifest["config"])
    yield "settings", [f"{base}: {', '.join(changes) or 'nothing'}"]
    yield "privacy", _privacy(run)
    yield "result", [_result(run)]
    yield "warnings", list(run.warnings)
    yield "made by", [_made_by(run.manifest)]
    yield "files", _files(run)
    yield "go on", [_next(run)]


def _print(heading: str, sentences: Sequence[str]) -> None:
    """Sentences beside their heading, cut after some lines."""
    empty = " " * 10
    lines = [
        line
        for sentence in sentences
        for line in textwrap.wrap(
            sentence,
            _WIDTH - len(empty),
            break_on_hyphens=False,
            break_long_words=False,  # paths stay what they are
        )
    ]
    most = _MOST_LINES.get(heading, 4)
    if len(lines) > most:
        lines[most - 1 :] = [f"... and {len(lines) - most + 1} lines more"]
    for number, line in enumerate(lines):
        print(f"{heading if not number else '':<10}{line}")


def _state(run: records.RecordedRun) -> str:
    if run.done:
        reason = run.facts.get("reason", "")
        return f"finished after {run.facts['rounds']} rounds" + (
            f" ({reason})" if reason else ""
        )
    planned = run.manifest.get("planned_rounds", "?")
    state = f"unfinished, at round {len(run.rounds)} of {planned}"
    try:
        refuse_held(run.path / records.LOCK)
    except StorageError:  # not ours to open
        return state
    except InputError:
        return f"{state}, being trained right now"
    return state


def _settings(content: dict[str, Any]) -> tuple[str, list[str]]:
    """The preset that a run is nearest to, and what differs from it."""
    usual = config_values.as_dict(config.RunConfig())
    whole = {
        section: {**usual[section], **given} if isinstance(given, dict) else given
        for section, given in content.items()
        if section in usual
    }
    bases = {"the defaults, but for": usual} | {
        f"preset {name}, but for": config_values.as_dict(preset.settings)
        for name, preset in presets.PRESETS.items()
    }
    apart = {
        name: groups.differing_settings([values, whole])
        for name, values in bases.items()
    }
    base = min(apart, key=lambda name: len(apart[name]))  # the first of several
    names = [*apart[base], "seed"]
    return base, [f"{name}={_value(whole, name)}" for name in names]


def _value(content: dict[str, Any], name: str) -> str:
    return tables.cut(groups.as_text(groups.setting_of(content, name)), _LONGEST_VALUE)


def _privacy(run: records.RecordedRun) -> list[str]:
    words = records.privacy_words(run.manifest)
    if not run.private:
        return [f"{words[0].upper()}{words[1:]}: epsilons mean nothing here."]
    sentences = [f"Private, with {words}."]
    numbers = _summary(run)
    so_far = "" if run.done else " so far"
    if numbers["epsilon_max"] is not None:
        sentences[0] += (
            f" Spent{so_far}: epsilon {numbers['epsilon_max']:.3f} by who spent most, "
            f"{numbers['epsilon_mean']:.3f} on average."
        )
    return [*sentences, *_budgets(run)]


def _budgets(run: records.RecordedRun) -> list[str]:
    """Who asked for how much, and who has no epsilon left."""
    if run.done and "afforded" in run.clients:
        asked, afforded, served = (
            run.clients[name].to_numpy(float)
            for name in ("epsilon_asked", "afforded", "participations")
        )
    else:
        try:
            plan = run.schedule
        except InputError:
            return [f"Budgets are unknown: {records.SCHEDULE} cannot be read."]
        asked, afforded = plan.budget, plan.affordable
        served = np.zeros(len(asked))
        for clients in run.rounds.get("clients", ()):
            served[clients] += 1
    never = int(np.sum(afforded == 0))
    retired = int(np.sum(served >= afforded)) - never
    sentence = (
        f"{len(asked):,} clients with budgets from {np.min(asked):.3f} to "
        f"{np.max(asked):.3f}: {retired:,} retired (no participation left)"
    )
    return [
        f"{sentence}, {never:,} could never take part." if never else f"{sentence}."
    ]


def _summary(run: records.RecordedRun) -> columns.Row:
    if run.rounds.empty:
        return dict.fromkeys((*columns.summary_columns(), "fairness"))
    return rows.summarise(run.rounds.to_dict("records"), run.clients.to_dict("records"))


def _result(run: records.RecordedRun) -> str:
    numbers = _summary(run)
    heads = {**columns.summary_columns(), "fairness": ("fairness", "{:.3f}")}
    told = [
        f"{heads[name][0]} {heads[name][1].format(numbers[name])}"
        for name in _RESULTS
        if numbers[name] is not None and (numbers[name] or name in _RESULTS[:7])
    ]
    return ", ".join(told) or "nothing so far"


def _made_by(manifest: dict[str, Any]) -> str:
    versions, device = manifest.get("versions", {}), manifest.get("device", {})
    told = [
        f"{name} {versions[name]}"
        for name in ("dpsparfl_jax", "jax", "python")
        if name in versions
    ]
    if device:
        told.append(
            f"{device.get('count', 1)} device(s) of kind {device.get('kind')}, "
            f"{device.get('cores')} cores"
        )
    return ", ".join(told) or "unknown"


def _files(run: records.RecordedRun) -> list[str]:
    there = [name for name in _FILES if (run.path / name).exists()]
    expected = [name for name in _FILES if run.done or name not in _AT_THE_END]
    missing = [name for name in expected if name not in there]
    return [
        f"{run.path}: {', '.join(there)}",
        *([f"missing: {', '.join(missing)}"] if missing else []),
    ]


def _next(run: records.RecordedRun) -> str:
    report = f"dpsparfl report {run.path} draws its charts"
    if run.done:
        return f"{report}."
    found = (run.path / records.CHECKPOINTS).glob("*")
    saved = max((int(one.name) for one in found if one.name.isdigit()), default=0)
    where = f"after round {saved}" if saved else "at the first round (no checkpoint)"
    return (
        f"The command that started it, with --resume (a sweep's needs no flag), begins "
        f"again {where}; {report}."
    )


if __name__ == "__main__":
    cli.run(main)
