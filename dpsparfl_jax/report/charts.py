"""Charts of recorded runs as lists of curves.

The page and the PNG files only differ in how they draw them; a run has the same colour
and dashes in both.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpsparfl_jax.records import RecordedRun
from dpsparfl_jax.records.columns import label

Floats = NDArray[np.float64]
# Okabe and Ito's colours, without those too pale on white; then other dashes.
COLOURS = "#0072B2 #D55E00 #009E73 #CC79A7 #E69F00 #56B4E9 #4D4D4D".split()
DASHES: tuple[tuple[int, ...], ...] = (
    *((), (6, 3), (2, 2), (8, 3, 2, 3), (12, 4), (8, 2, 2, 2, 2, 2), (4, 1), (1, 4)),
    (14, 3, 4, 3),
)
MARKERS = (  # for plotly and for matplotlib
    *(("circle", "o"), ("square", "s"), ("diamond", "D"), ("triangle-up", "^")),
    *(("triangle-down", "v"), ("pentagon", "p"), ("star", "*"), ("hexagon", "h")),
    ("cross", "P"),
)
GUIDE = "#767676"  # targets, diagonals and budgets
FEW = 6  # runs up to which a legend takes little room and bands can be told apart


class Shown(NamedTuple):
    """One run as charts need it."""

    number: int
    name: str
    colour: str
    dashes: tuple[int, ...]
    marker: tuple[str, str]
    rounds: pd.DataFrame
    clients: pd.DataFrame
    target_s: float | None


class Curve(NamedTuple):
    """Points and what they are: line, thin, band, dots, marks or guide."""

    name: str
    x: Floats
    y: Floats
    kind: str
    runs: tuple[int, ...] = ()  # whom it goes with; nobody: always shown
    look: Shown | None = None
    clients: Floats | None = None  # of its points


class Chart(NamedTuple):
    """A chart's words and its curves."""

    title: str
    x_label: str
    y_label: str
    curves: Callable[[Sequence[Shown]], list[Curve]]
    note: str = ""
    percent: bool = False  # y is a share
    from_zero: bool = False


def show(number: int, run: RecordedRun) -> Shown:
    """A run, its looks and what follows from its rounds."""
    rounds = run.rounds.copy()
    if len(rounds):
        rounds["mean_delay_s"] = rounds["cumulative_delay_s"] / rounds["round"]
        rounds["sending"] = rounds["clients"].map(len)
    again = number // len(COLOURS) % len(DASHES)
    return Shown(
        number,
        run.name,
        COLOURS[number % len(COLOURS)],
        DASHES[again],
        MARKERS[again],
        rounds,
        run.clients,
        run.manifest["config"].get("schedule", {}).get("delay_target_s"),
    )


def numbers(frame: pd.DataFrame, column: str) -> Floats:
    """A column as floats; not a number where there is none."""
    if column not in frame:
        return np.full(len(frame), np.nan)
    return frame[column].to_numpy(dtype=float, na_value=np.nan)


def _line(one: Shown, x: str, y: str, kind: str = "line", label: str = "") -> Curve:
    across, up = numbers(one.rounds, x), numbers(one.rounds, y)
    finite = np.isfinite(across) & np.isfinite(up)
    return Curve(one.name + label, across[finite], up[finite], kind, (one.number,), one)


def _lines(y: str, x: str = "round") -> Callable[[Sequence[Shown]], list[Curve]]:
    return lambda runs: [_line(one, x, y) for one in runs if len(one.rounds)]


def _accuracies(x: str = "round") -> Callable[[Sequence[Shown]], list[Curve]]:
    """Of the last model, and of the average of models where there is one."""

    def curves(runs: Sequence[Shown]) -> list[Curve]:
        name = "accuracy_averaged"
        beside = [_line(one, x, name, "thin", ": averaged") for one in runs]
        return _lines("accuracy", x)(runs) + [one for one in beside if one.x.size]

    return curves


def _delays(y: str) -> Callable[[Sequence[Shown]], list[Curve]]:
    """One line a run, and the targets they aim at."""

    def curves(runs: Sequence[Shown]) -> list[Curve]:
        lines = _lines(y)(runs)
        aims = {one.target_s for one in runs if one.target_s and len(one.rounds)}
        last = max([float(line.x[-1]) for line in lines if len(line.x)], default=1.0)
        across = np.array([1.0, last])
        for aim in sorted(aims):
            whose = tuple(one.number for one in runs if one.target_s == aim)
            up = np.full(2, float(aim))
            lines.append(Curve(f"target {aim:g} s", across, up, "guide", whose))
        return lines

    return curves


def _fairness(runs: Sequence[Shown]) -> list[Curve]:
    bands = []
    for one in runs:
        low, high = (_line(one, "round", f"fairness_queue_{e}") for e in ("min", "max"))
        x, y = np.append(high.x, low.x[::-1]), np.append(high.y, low.y[::-1])
        if len(one.rounds):
            bands.append(Curve(one.name, x, y, "band", (one.number,), one))
    return bands + _lines("fairness_queue_mean")(runs)


def _cohorts(runs: Sequence[Shown]) -> list[Curve]:
    started = [one for one in runs if len(one.rounds)]
    sending = [_line(one, "round", "sending", "thin", ": sending") for one in started]
    live = [_line(one, "round", "live_clients", label=": live") for one in started]
    return live + sending


def _dots(one: Shown, x: Floats, y: Floats) -> Curve:
    finite = np.isfinite(x) & np.isfinite(y)
    who = numbers(one.clients, "client")[finite]
    return Curve(one.name, x[finite], y[finite], "dots", (one.number,), one, who)


def _epsilons(runs: Sequence[Shown]) -> list[Curve]:
    """Spent by every client, runs side by side; a mark where a budget ends."""
    spent = {one.number: numbers(one.clients, "epsilon_spent") for one in runs}
    private = [one for one in runs if np.isfinite(spent[one.number]).any()]
    dots, marks = [], dict[bytes, Curve]()
    for place, one in enumerate(private):
        client, asked = (numbers(one.clients, c) for c in ("client", "epsilon_asked"))
        aside = client + 0.7 * ((place + 0.5) / len(private) - 0.5)
        dots.append(_dots(one, aside, spent[one.number]))
        new = Curve("budget", aside, asked, "marks", (), one, client)
        mark = marks.get(asked.tobytes(), new)
        marks[asked.tobytes()] = mark._replace(runs=(*mark.runs, one.number))
    if len(marks) == 1:  # the same clients everywhere
        (mark,) = marks.values()
        return [mark._replace(x=np.round(mark.x), look=None), *dots]
    return [*marks.values(), *dots]


def _shares(runs: Sequence[Shown]) -> list[Curve]:
    dots = [
        _dots(one, numbers(one.clients, "rate"), numbers(one.clients, "share"))
        for one in runs
        if len(one.clients)
    ]
    top = max([float(np.max(dot.x, initial=0.0)) for dot in dots], default=0.0)
    ends = np.array([0.0, top])
    return [Curve("share = rate", ends, ends, "guide"), *dots] if dots else []


CHARTS = {
    "accuracy_rounds": Chart(
        "Test accuracy by round", "round", label("accuracy", "test accuracy"),
        _accuracies(), "Fine dots: the average of models, where there is one.", True
    ),
    "accuracy_delay": Chart(
        "Test accuracy by delay", label("cumulative_delay_s", "delay so far"),
        label("accuracy", "test accuracy"),
        _accuracies("cumulative_delay_s"), percent=True,
    ),
    "loss": Chart("Test loss", "round", label("loss", "test loss"), _lines("loss")),
    "keep_rate": Chart("Keep rate", "round", label("keep_rate_mean", "mean keep rate"),
        _lines("keep_rate_mean"),
        "Mean over the clients that send."),
    "delay": Chart("Round delay", "round", label("round_delay_s"),
        _delays("round_delay_s"),
        "Of the slowest client that sends; dashed: the target."),
    "mean_delay": Chart("Mean round delay so far", "round", "mean delay (s)",
        _delays("mean_delay_s"), "Dashed: the target."),
    "delay_queue": Chart("Delay queue", "round", label("delay_queue"),
        _lines("delay_queue")),
    "fairness_queue": Chart("Fairness queue", "round", "fairness queue", _fairness,
        f"Mean of clients; bands, up to {FEW} runs: from the least to the largest."),
    "epsilon": Chart("Privacy spent by client", "client", "epsilon", _epsilons,
        "Dots: spent. Horizontal marks: the client's budget.", from_zero=True),
    "participation": Chart("Participation by client", "participation rate beta",
        "share of rounds", _shares, "On the diagonal: as often as it should."),
    "energy": Chart("Energy of all clients", "round",
        label("cumulative_energy_j", "energy so far"),
        _lines("cumulative_energy_j"), from_zero=True),
    "clients": Chart("Clients", "round", "clients", _cohorts,
        "Lines: clients with budget left. Fine dots: clients that send.",
        from_zero=True),
}  # fmt: skip
