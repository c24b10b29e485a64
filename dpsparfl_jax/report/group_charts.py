"""Charts of groups of runs: means over seeds, with bands from least to largest."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from dpsparfl_jax.records import groups
from dpsparfl_jax.records.columns import label
from dpsparfl_jax.report import charts
from dpsparfl_jax.report.charts import Chart, Curve, Shown

MOST_DRAWN = 36  # groups that have curves


def rank(made: Sequence[groups.Group]) -> list[groups.Group]:
    """Groups by their last accuracy, the best first; those without one are last."""

    def accuracy(group: groups.Group) -> float:
        found = group.spread("accuracy")
        return -math.inf if found is None else found.mean

    return sorted(made, key=accuracy, reverse=True)


def choose(count: int, most: int) -> list[int]:
    """Numbers of the best, of the worst and of an even choice between them."""
    if count <= most:
        return list(range(count))
    return sorted(set(np.linspace(0, count - 1, most).round().astype(int).tolist()))


def show(drawn: Sequence[groups.Group], first: Sequence[int]) -> list[Shown]:
    """Groups as charts need them; the `first` numbers have colours of their own."""
    others = [number for number in range(len(drawn)) if number not in first]
    looks = {number: look for look, number in enumerate([*first, *others])}
    return [_show(number, looks[number], group) for number, group in enumerate(drawn)]


def _show(number: int, look: int, group: groups.Group) -> Shown:
    """A column of its rounds has its mean, and `_low` and `_high` beside it."""
    again = look // len(charts.COLOURS) % len(charts.DASHES)
    return Shown(
        number,
        group.name,
        charts.COLOURS[look % len(charts.COLOURS)],
        charts.DASHES[again],
        charts.MARKERS[again],
        groups.bands(group.runs),
        pd.DataFrame(),
        None,
    )


def _banded(y: str, x: str = "round") -> Callable[[Sequence[Shown]], list[Curve]]:
    """A band and a line for each group; no band where all seeds are the same."""

    def curves(shown: Sequence[Shown]) -> list[Curve]:
        bands, lines = [], []
        for one in shown:
            across, mean, low, high = (
                charts.numbers(one.rounds, name)
                for name in (x, y, f"{y}_low", f"{y}_high")
            )
            there = np.isfinite(across) & np.isfinite(mean)
            across, low, high = across[there], low[there], high[there]
            if not across.size:
                continue
            look = ((one.number,), one)
            if np.any(low < high):
                around = np.append(across, across[::-1]), np.append(high, low[::-1])
                bands.append(Curve(one.name, *around, "band", *look))
            lines.append(Curve(one.name, across, mean[there], "line", *look))
        return bands + lines

    return curves


_BAND = f"Mean over seeds; bands, up to {charts.FEW} settings: least to largest."
CHARTS = {
    "accuracy_rounds": Chart("Test accuracy by round", "round",
        label("accuracy", "test accuracy"), _banded("accuracy"), _BAND, True),
    "accuracy_delay": Chart("Test accuracy by delay",
        label("cumulative_delay_s", "delay so far, mean"),
        label("accuracy", "test accuracy"),
        _banded("accuracy", "cumulative_delay_s"), "At the mean delay of each round.",
        True),
    "accuracy_averaged": Chart("Accuracy of the average of models", "round",
        label("accuracy_averaged", "test accuracy"), _banded("accuracy_averaged"),
        percent=True),
    "loss": Chart("Test loss", "round", label("loss", "test loss"), _banded("loss")),
    "epsilon": Chart("Privacy spent", "round", "epsilon of who spent most",
        _banded("epsilon_max"), from_zero=True),
    "delay": Chart("Delay", "round", label("cumulative_delay_s", "delay so far"),
        _banded("cumulative_delay_s"), from_zero=True),
    "energy": Chart("Energy of all clients", "round",
        label("cumulative_energy_j", "energy so far"),
        _banded("cumulative_energy_j"), from_zero=True),
    "keep_rate": Chart("Keep rate", "round", label("keep_rate_mean", "mean keep rate"),
        _banded("keep_rate_mean"), "Mean over the clients that send."),
    "delay_queue": Chart("Delay queue", "round", label("delay_queue"),
        _banded("delay_queue")),
    "clients": Chart("Clients with budget left", "round", "clients",
        _banded("live_clients"), from_zero=True),
}  # fmt: skip
FIGURES = {
    key: (key,) for key in ("accuracy_rounds", "accuracy_delay", "epsilon", "energy")
} | {"delay": ("delay", "keep_rate")}
