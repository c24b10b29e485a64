"""Tables as text: of runs and settings for the terminal, and in Markdown."""

from collections.abc import Iterable, Sequence

from dpsparfl_jax import records
from dpsparfl_jax.records import columns, groups, rows

MOST_LINES = 40  # of a table, unless all are asked for
_OF_RUNS = ("rounds", "accuracy", "delay_s", "energy_j", "epsilon_max", "fairness")
_OF_GROUPS = ("accuracy", "delay_s", "energy_j", "epsilon_max")


def of_runs(runs: Sequence[records.RecordedRun]) -> str:
    """One line a run."""
    headings = {**columns.summary_columns(), "fairness": ("fairness", "{:.3f}")}
    lines = [["run", *(headings[name][0] for name in _OF_RUNS), "s/round", "planning"]]
    for run in runs:
        if not run.done:
            rounds = f"{len(run.rounds)} (unfinished)"
            lines.append([run.name, rounds, *["-"] * (len(_OF_RUNS) + 1)])
            continue
        summary = rows.summarise(
            run.rounds.to_dict("records"), run.clients.to_dict("records")
        )
        cells = [_cell(name, summary[name], headings[name][1]) for name in _OF_RUNS]
        device_s, planning_s = run.rounds["device_s"], run.manifest["planning_s"]
        share = planning_s / (planning_s + device_s.sum())
        # The median leaves out compilation.
        lines.append([run.name, *cells, f"{device_s.median():.2f}", f"{share:.1%}"])
    return aligned(lines, to_the_left=1)


def _cell(name: str, value: float | None, form: str) -> str:
    if value is None:
        return "infinite" if name.startswith("epsilon") else "-"
    return form.format(value)


def cut(text: str, most: int) -> str:
    """A text, or its beginning if it is longer than so many characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def of_groups(made: Sequence[groups.Group], *, whole: bool) -> str:
    """One line a setting, the best accuracy first: means and ranges over seeds."""
    headings = columns.summary_columns()
    settings = list(made[0].settings)
    ranked = sorted(made, key=_accuracy, reverse=True)
    shown = ranked if whole else ranked[:MOST_LINES]
    lines = [
        [
            *groups.short_names(settings),
            "runs",
            *(headings[name][0] for name in _OF_GROUPS),
        ]
    ]
    for group in shown:
        values = [groups.as_text(value) for value in group.settings.values()]
        cells = [_range(group, name, headings[name][1]) for name in _OF_GROUPS]
        lines.append([*values, str(len(group.runs)), *cells])
    text = aligned(lines, to_the_left=0)
    if len(shown) < len(ranked):
        text += f"\nand {len(ranked) - len(shown):,} more settings with less accuracy."
    return text


def _accuracy(group: groups.Group) -> float:
    found = group.spread("accuracy")
    return -1.0 if found is None else found.mean


def _range(group: groups.Group, name: str, form: str) -> str:
    """A mean, and from where to where the runs of a group go."""
    if name.startswith("epsilon") and not group.private:
        return "not private"
    found = group.spread(name)
    if found is None:
        return _cell(name, None, form)
    low, high = form.format(found.low), form.format(found.high)
    range_text = f" ({low} to {high})" if low != high else ""
    return form.format(found.mean) + range_text


def aligned(lines: Sequence[Sequence[str]], *, to_the_left: int) -> str:
    """Columns side by side, the first ones to the left and others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if number < to_the_left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a line for its heads, a rule, and a line a row."""
    lines = (heads, ["---"] * len(heads), *rows)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
