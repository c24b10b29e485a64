"""Charts of recorded runs as lists of curves.

The page and the PNG files only differ in how they draw them; a run has the same colour
and dashes in both. Runs that differ in their seed alone may be shown as one: columns of
its rounds are then means, with `NAME_low` and `NAME_high` beside them.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpsparfl_jax.records import RecordedRun
from dpsparfl_jax.records.columns import label
from dpsparfl_jax.report import palette

Floats = NDArray[np.float64]
_WINDOWS = 40  # of rounds, in which keep rates are pooled
FEW = 6  # runs up to which a legend takes little room and bands can be told apart


class Shown(NamedTuple):
    """One run, or one setting with several seeds, as charts need it."""

    number: int
    name: str
    colour: str
    dashes: tuple[int, ...]
    marker: tuple[str, str]
    rounds: pd.DataFrame
    clients: pd.DataFrame  # of the first seed
    target_s: float | None
    private: bool = True
    settings: Mapping[str, str] = MappingProxyType({})  # in which runs differ


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
    thin_note: str = ""  # what thin curves are, said where there are some


def show(number: int, run: RecordedRun, look: palette.Look) -> Shown:
    """A run, its looks and what follows from its rounds."""
    return Shown(
        number,
        run.name,
        *look,
        with_derived(run.rounds),
        run.clients,
        run.manifest["config"].get("schedule", {}).get("delay_target_s"),
        run.private,
    )


def with_derived(rounds: pd.DataFrame) -> pd.DataFrame:
    """Rounds with columns that follow from the recorded ones."""
    if rounds.empty:
        return rounds
    return rounds.assign(
        mean_delay_s=rounds["cumulative_delay_s"] / rounds["round"],
        sending=rounds["clients"].map(len),
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


def lines(y: str, x: str = "round") -> Callable[[Sequence[Shown]], list[Curve]]:
    """A line for each, and a band over seeds where these differ."""

    def curves(runs: Sequence[Shown]) -> list[Curve]:
        started = [one for one in runs if len(one.rounds)]
        bands = [_seeds_band(one, x, y) for one in started]
        means = [_line(one, x, y) for one in started]
        return [*filter(None, bands), *(mean for mean in means if mean.x.size)]

    return curves


def _seeds_band(one: Shown, x: str, y: str) -> Curve | None:
    """From the least to the largest of the seeds; None where all are the same."""
    across, low, high = (
        numbers(one.rounds, name) for name in (x, f"{y}_low", f"{y}_high")
    )
    there = np.isfinite(across) & np.isfinite(low) & np.isfinite(high)
    if not np.any(low[there] < high[there]):
        return None
    return around(one, across[there], low[there], high[there])


def around(one: Shown, across: Floats, low: Floats, high: Floats) -> Curve:
    """A band between two curves."""
    x, y = np.append(across, across[::-1]), np.append(high, low[::-1])
    return Curve(one.name, x, y, "band", (one.number,), one)


def _accuracies(x: str = "round") -> Callable[[Sequence[Shown]], list[Curve]]:
    """Of the last model, and of the average of models where there is one."""

    def curves(runs: Sequence[Shown]) -> list[Curve]:
        name = "accuracy_averaged"
        told = [one for one in runs if one.private or not x.startswith("epsilon")]
        beside = [_line(one, x, name, "thin", ": averaged") for one in told]
        return lines("accuracy", x)(told) + [one for one in beside if one.x.size]

    return curves


def private_lines(y: str, x: str = "round") -> Callable[[Sequence[Shown]], list[Curve]]:
    """Lines of those whose epsilons mean something."""
    return lambda runs: lines(y, x)([one for one in runs if one.private])


def _delays(y: str) -> Callable[[Sequence[Shown]], list[Curve]]:
    """One line a run, and the targets they aim at."""

    def curves(runs: Sequence[Shown]) -> list[Curve]:
        made = lines(y)(runs)
        aims = {one.target_s for one in runs if one.target_s and len(one.rounds)}
        last = max([float(np.max(one.x)) for one in made if len(one.x)], default=1.0)
        across = np.array([1.0, last])
        for aim in sorted(aims):
            whose = tuple(one.number for one in runs if one.target_s == aim)
            up = np.full(2, float(aim))
            made.append(Curve(f"target {aim:g} s", across, up, "guide", whose))
        return made

    return curves


def _fairness(runs: Sequence[Shown]) -> list[Curve]:
    bands = []
    for one in runs:
        low, high = (_line(one, "round", f"fairness_queue_{e}") for e in ("min", "max"))
        if low.x.size == high.x.size > 0:
            bands.append(around(one, low.x, low.y, high.y))
    means = [_line(one, "round", "fairness_queue_mean") for one in runs]
    return bands + [mean for mean in means if mean.x.size]


def keep_quantiles(one: Shown, shares: Sequence[float]) -> tuple[Floats, Floats]:
    """Windows of rounds [W], and quantiles [shares, W] of what senders keep in them."""
    if "keep_rates" in one.rounds:
        told = one.rounds["keep_rates"].tolist()
    else:  # of an earlier version
        told = [[mean] for mean in numbers(one.rounds, "keep_rate_mean")]
    rates = np.fromiter(itertools.chain.from_iterable(told), float)
    whose = np.repeat(numbers(one.rounds, "round"), [len(row) for row in told])
    rates, whose = rates[np.isfinite(rates)], whose[np.isfinite(rates)]
    rounds = np.unique(whose)
    count = min(len(rounds), max(8, min(_WINDOWS, len(rounds) // 4)))
    if not count:
        return np.empty(0), np.empty((len(shares), 0))
    windows = np.array_split(rounds, count)
    ends = np.searchsorted(whose, [window[-1] for window in windows], side="right")
    found = [np.quantile(part, shares) for part in np.split(rates, ends[:-1])]
    return np.array([window.mean() for window in windows]), np.array(found).T


def _keep_rates(runs: Sequence[Shown]) -> list[Curve]:
    """The median of what senders keep, and a band with the middle eight tenths."""
    bands, medians = [], []
    for one in runs:
        across, (low, middle, high) = keep_quantiles(one, (0.1, 0.5, 0.9))
        if across.size:
            bands.append(around(one, across, low, high))
            own = ((one.number,), one)
            medians.append(Curve(one.name, across, middle, "line", *own))
    return bands + medians


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
    private = [
        one for one in runs if one.private and np.isfinite(spent[one.number]).any()
    ]
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


def note_of(chart: Chart, shown: Sequence[Shown]) -> str:
    """What a chart of these has to say beside its title."""
    has_thin = any(curve.kind == "thin" for curve in chart.curves(shown))
    return f"{chart.note} {chart.thin_note if has_thin else ''}".strip()


CHARTS = {
    "accuracy_rounds": Chart(
        "Accuracy by round", "round", label("accuracy"),
        _accuracies(), percent=True, thin_note="Fine dots: the average of models.",
    ),
    "accuracy_delay": Chart(
        "Accuracy by delay", label("cumulative_delay_s", "delay so far"),
        label("accuracy"),
        _accuracies("cumulative_delay_s"), percent=True,
    ),
    "accuracy_epsilon": Chart(
        "Accuracy by largest epsilon", "largest epsilon that a client has spent",
        label("accuracy"), _accuracies("epsilon_max"),
        "Of the client that has spent most; private runs only.", True
    ),
    "accuracy_epsilon_mean": Chart(
        "Accuracy by mean epsilon", "mean epsilon that clients have spent",
        label("accuracy"), _accuracies("epsilon_mean"),
        "Mean over all clients; private runs only.", True
    ),
    "accuracy_energy": Chart(
        "Accuracy by energy",
        label("cumulative_energy_j", "energy of all clients so far"),
        label("accuracy"),
        _accuracies("cumulative_energy_j"), percent=True,
    ),
    "loss": Chart("Loss", "round", "loss (nats)", lines("loss")),
    "keep_rate": Chart("Keep rates", "round", "share of coordinates kept", _keep_rates,
        "Median of the clients that send, in windows of rounds; bands, up to "
        f"{FEW} curves: 10% to 90% of them.", True, True),
    "delay": Chart("Round delay", "round", label("round_delay_s"),
        _delays("round_delay_s"),
        "Of the slowest client that sends; dashed: the target.", from_zero=True),
    "mean_delay": Chart("Mean round delay so far", "round", "mean delay (s)",
        _delays("mean_delay_s"), "Dashed: the target.", from_zero=True),
    "delay_queue": Chart("Delay queue", "round", label("delay_queue"),
        lines("delay_queue")),
    "fairness_queue": Chart("Fairness queue", "round", "fairness queue", _fairness,
        f"Mean of clients; bands, up to {FEW} curves: from the least to the largest."),
    "epsilon_rounds": Chart("Privacy spent", "round",
        "largest epsilon spent", private_lines("epsilon_max"),
        "Of the client that has spent most.", from_zero=True),
    "epsilon": Chart("Privacy spent by client", "client", "epsilon", _epsilons,
        "Dots: spent. Horizontal marks: the client's budget.", from_zero=True),
    "participation": Chart("Participation by client",
        "share of rounds that it should have (beta)", "share of rounds that it had",
        _shares, "A dot a client; on the diagonal: as often as it should."),
    "energy": Chart("Energy of all clients", "round",
        label("cumulative_energy_j", "energy so far"),
        lines("cumulative_energy_j"), from_zero=True),
    "clients": Chart("Clients", "round", "clients", _cohorts,
        "Lines: clients with budget left. Fine dots: clients that send.",
        from_zero=True),
}  # fmt: skip
