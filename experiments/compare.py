"""How recorded runs differ: in settings, and in what came of them.

    dpsparfl compare runs/first runs/second [--csv=differences.csv]
    dpsparfl compare runs/grid/policy=random,seed=0 runs/grid --epsilon=4

looks for runs in the folders and below. Runs that differ in their seed alone are one
setting. Every setting is compared with that of the run that is named first, seed by
seed, with 95% Student-t intervals of the paired differences. Accuracies are compared at
equal delay and epsilon too: at what all runs reach, or at what --delay, --epsilon and
--mean_epsilon say. It never trains.
"""

import math
import pathlib
import textwrap
from collections.abc import Mapping, Sequence

import pandas as pd
from absl import flags

from dpsparfl_jax import records
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.records import groups
from dpsparfl_jax.records.comparisons import COSTS, Caps
from dpsparfl_jax.storage import write_whole

from . import cautions, cli, comparing, damage, tables
from .comparing import Difference, Estimate, label

_CSV = flags.DEFINE_string("csv", "", "file for all numbers, one a line")
_PLOT = flags.DEFINE_string(
    "plot", "", "PNG, PDF or SVG file for a picture of the differences; empty is none"
)
_CAPS = {  # by cost
    cost: flags.DEFINE_float(
        name,
        None,
        f"{words} at which accuracies are compared; none: what all runs reach",
    )
    for cost, name, words in (
        ("delay_s", "delay", "simulated delay (s)"),
        ("epsilon_max", "epsilon", "largest epsilon of a client"),
        ("epsilon_mean", "mean_epsilon", "mean epsilon over clients"),
    )
}
_SIDE_BY_SIDE = 4  # settings that have columns; more of them have lines
_LONGEST_VALUE = 32  # characters of a setting's value
_TOLD = 5  # settings whose seeds or privacy are told of one by one


def main(folders: list[str]) -> None:
    """Prints tables of the runs in these folders."""
    if not folders:
        raise InputError("name at least two recorded runs, or a folder with several.")
    cli.check_output("csv", _CSV.value)
    cli.check_output("plot", _PLOT.value)
    if _PLOT.value:
        cli.check_picture(_PLOT.value)
    _check_caps()
    made = comparing.in_order(_finished(folders))
    if _PLOT.value and len(made) < 2:
        raise InputError(
            "--plot draws differences, and these runs differ in nothing but their "
            "seeds: name runs of another setting too."
        )
    caps = _chosen_caps(comparing.caps_of(made))
    shown = made if _CSV.value else made[: tables.MOST_LINES]
    curves = comparing.Curves()
    differences = [
        comparing.difference(made[0], other, curves, caps) for other in shown[1:]
    ]
    _print_results(made)
    if len(made) > 1:
        _print_differences(differences[: tables.MOST_LINES - 1], caps)
    _say(cautions.on_seeds(shown, differences))
    _say(cautions.on_caps(shown, differences, caps))
    _say(cautions.on_privacy(shown))
    if _PLOT.value:
        _draw(made, differences)
    if _CSV.value:
        text = _frame(made, differences, caps).to_csv(index=False, lineterminator="\n")
        write_whole(pathlib.Path(_CSV.value), text)


def _check_caps() -> None:
    """Refuses caps that no run could be compared at, before runs are read."""
    for flag in _CAPS.values():
        if flag.value is not None and not 0 < flag.value < math.inf:
            raise InputError(f"--{flag.name}={flag.value:g} must be a number above 0.")


def _chosen_caps(common: Mapping[str, Caps]) -> dict[str, Caps]:
    """What all runs reach, or what was asked for; refuses what some do not reach."""
    caps = dict(common)
    for cost, flag in _CAPS.items():
        if flag.value is None:
            continue
        words = COSTS[cost].words
        if cost not in common:
            raise InputError(
                f"--{flag.name}: these runs have no {words} that can be compared (they "
                "are not private, or differ in delta or accountant): leave it out."
            )
        most = math.floor(common[cost].high * 1000) / 1000
        if flag.value > common[cost].high:
            raise InputError(
                f"--{flag.name}={flag.value:g} is more than all of these runs reach: "
                f"choose a {words} of at most {most:g}."
            )
        caps[cost] = Caps(flag.value, flag.value)
    return caps


def _finished(folders: Sequence[str]) -> list[records.IndexedRun]:
    """Finished runs; says how many others are left out."""
    damaged = damage.Damaged()
    runs = damage.read(records.FoundRuns(folders), damaged)
    damaged.end()
    finished = [run for run in runs if run.done]
    left_out = len(runs) - len(finished)
    if len(finished) < 2:
        raise InputError(
            f"there are {len(finished)} finished runs here, and {left_out} unfinished "
            "ones: name at least two that are finished."
        )
    if left_out:
        print(f"{left_out:,} unfinished run(s) are left out.")
    return finished


def _print_table(lines: Sequence[Sequence[str]]) -> None:
    """A line a setting, or a column if there are few."""
    if len(lines) <= _SIDE_BY_SIDE + 1:
        lines = list(zip(*lines, strict=True))
    print(f"{tables.aligned(lines, to_the_left=1)}\n")


def _print_results(made: Sequence[groups.Group]) -> None:
    heads, names = comparing.headings(), list(made[0].settings)
    told = [
        name
        for name in comparing.RESULTS
        if any(comparing.result(group, name).seeds for group in made)
    ]
    lines = [["", *names, "seeds", *(heads[name][0] for name in told)]]
    for number, group in enumerate(made[: tables.MOST_LINES]):
        settings = [_text(value) for value in group.settings.values()]
        cells = [_cell(comparing.result(group, name), heads[name][1]) for name in told]
        lines.append(
            [label(number), *settings, str(len(comparing.by_seed(group))), *cells]
        )
    if not names:
        print("These runs differ in nothing but their seeds.")
    print("Means over seeds, with half of their 95% interval (Student's t):\n")
    _print_table(lines)
    if len(made) > tables.MOST_LINES:
        more = len(made) - tables.MOST_LINES
        print(f"and {more:,} more settings (--csv=FILE writes all of them).\n")


def _text(value: object) -> str:
    return tables.cut(groups.as_text(value), _LONGEST_VALUE)


def _cell(found: Estimate, form: str) -> str:
    if not found.seeds:
        return "-"
    if found.seeds == 1:
        return form.format(found.mean)
    return f"{form.format(found.mean)} ± {form.format(found.high - found.mean)}"


def _print_differences(
    differences: Sequence[Difference], caps: Mapping[str, Caps]
) -> None:
    heads, told = comparing.headings(), _told(differences)
    titles = [_title(*heads[name]) for name in told]
    equal = [cost for cost, name in comparing.AT_EQUAL.items() if name in told]
    ends = [f"that equal {_unit(cost)}" for cost in equal]
    lines = [["", "paired seeds", *titles, *ends]]
    for number, found in enumerate(differences, start=1):
        cells = [_signed(found.values[name], heads[name][1]) for name in told]
        cells += [_range(caps[cost], heads[cost][1]) for cost in equal]
        lines.append([f"{label(number)} - #1", str(len(found.seeds)), *cells])
    print("Paired differences, with their 95% interval (Student's t):\n")
    _print_table(lines)


def _unit(cost: str) -> str:
    return f"{COSTS[cost].words} (s)" if cost == "delay_s" else COSTS[cost].words


def _range(caps: Caps, form: str) -> str:
    low, high = (form.format(end) for end in caps)
    return low if low == high else f"{low} to {high}"


def _title(heading: str, form: str) -> str:
    return f"{heading} (points)" if form.endswith("%}") else heading


def _signed(found: Estimate, form: str) -> str:
    if not found.seeds:
        return "-"
    numbers = [found.mean, found.low, found.high]
    if form.endswith("%}"):
        form, numbers = "{:.2f}", [100 * number for number in numbers]
    mean, low, high = (_with_sign(number, form) for number in numbers)
    return mean if found.seeds == 1 else f"{mean} ({low} to {high})"


def _with_sign(number: float, form: str) -> str:
    text = form.replace("{:", "{:+").format(number)
    return text if text.strip("+-0.,") else text.replace("-", "+")


def _say(sentences: Sequence[str]) -> None:
    for sentence in sentences[:_TOLD]:
        print(textwrap.fill(sentence, 100))
    if len(sentences) > _TOLD:
        print(f"and {len(sentences) - _TOLD:,} more like that.")


def _draw(made: Sequence[groups.Group], differences: Sequence[Difference]) -> None:
    """The picture of the first differences, each in the colour of its policy."""
    from dpsparfl_jax.report import difference_pictures, palette, picture_style, seeds

    most = difference_pictures.MOST_SHOWN
    shown = made[: most + 1]
    looks = palette.looks([seeds.policy_of(group.runs[0]) for group in shown])
    names = [group.name for group in shown]
    panels: dict[str, list[difference_pictures.Row]] = {}
    heads = comparing.headings()
    for name in _told(differences):
        heading, form = heads[name]
        words, _, unit = heading.partition(" (")
        scale = 100 if form.endswith("%}") else 1
        unit = "points" if scale == 100 else unit.rstrip(")") or words.partition(",")[0]
        row = [[scale * end for end in d.values[name][:3]] for d in differences]
        rows = panels.setdefault(f"difference from {names[0]} ({unit})", [])
        rows.append(difference_pictures.Row(words, row[:most]))
    settings = dict(zip(names[1:], looks[1:], strict=True))
    figure = difference_pictures.difference_figure(panels, settings)
    picture_style.save(figure, _PLOT.value)
    if len(made) > len(shown):
        print(f"{_PLOT.value} shows the first {most} of {len(made) - 1:,} differences.")


def _told(differences: Sequence[Difference]) -> list[str]:
    """Numbers of which there is a difference."""
    return [
        name
        for name in comparing.DIFFERENCES
        if any(found.values[name].seeds for found in differences)
    ]


def _frame(
    made: Sequence[groups.Group],
    differences: Sequence[Difference],
    caps: Mapping[str, Caps],
) -> pd.DataFrame:
    """One line a number: of every setting, then of every difference."""
    table = []
    for number, group in enumerate(made):
        settings = {
            name: groups.without_path(value) for name, value in group.settings.items()
        }
        results = {name: comparing.result(group, name) for name in comparing.RESULTS}
        told = [("", results)]
        if number:
            found = differences[number - 1]
            ends = {
                f"equal_{cost}{end}": Estimate(
                    cap, math.nan, math.nan, len(found.seeds)
                )
                for cost, both in caps.items()
                for end, cap in zip(("_from", ""), both, strict=True)
            }
            told.append(("#1", {**found.values, **ends}))
        table += [
            {"setting": label(number), "less": less, **settings, "number": name}
            | one._asdict()
            for less, numbers in told
            for name, one in numbers.items()
        ]
    return pd.DataFrame(table)


if __name__ == "__main__":
    cli.run(main)
