"""Charts of groups of runs: means over seeds, with bands."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from dpsparfl_jax.records import groups
from dpsparfl_jax.records.columns import label
from dpsparfl_jax.report import palette
from dpsparfl_jax.report.charts import Chart, Shown, lines, private_lines
from dpsparfl_jax.report.seeds import policy_of

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


def show(
    drawn: Sequence[groups.Group], first: Sequence[int], band: str = "range"
) -> list[Shown]:
    """Groups as charts need them; the `first` numbers have colours of their own."""
    others = [number for number in range(len(drawn)) if number not in first]
    order = [*first, *others]
    found = palette.looks([policy_of(drawn[number].runs[0]) for number in order])
    looks = dict(zip(order, found, strict=True))
    return [
        _show(number, looks[number], group, band) for number, group in enumerate(drawn)
    ]


def _show(number: int, look: palette.Look, group: groups.Group, band: str) -> Shown:
    """A column of its rounds has its mean, and `_low` and `_high` beside it."""
    names = groups.short_names(list(group.settings))
    values = map(groups.as_text, group.settings.values())
    return Shown(
        number,
        group.name,
        *look,
        groups.bands(group.runs, band),
        pd.DataFrame(),
        None,
        group.private,
        dict(zip(names, values, strict=True)),
    )


CHARTS = {
    "accuracy_rounds": Chart("Accuracy by round", "round",
        label("accuracy"), lines("accuracy"), percent=True),
    "accuracy_delay": Chart("Accuracy by delay",
        label("cumulative_delay_s", "delay so far"),
        label("accuracy"),
        lines("accuracy", "cumulative_delay_s"),
        "At the mean over seeds of each round's delay.", True),
    "accuracy_averaged": Chart("Accuracy of the average of models", "round",
        label("accuracy_averaged", "accuracy"), lines("accuracy_averaged"),
        percent=True),
    "accuracy_epsilon": Chart("Accuracy by largest epsilon",
        "largest epsilon of a client so far",
        label("accuracy"), private_lines("accuracy", "epsilon_max"),
        "At the mean over seeds of what the client that has spent most has spent; "
        "private runs only.", True),
    "loss": Chart("Loss", "round", "loss (nats)", lines("loss")),
    "epsilon": Chart("Privacy spent", "round",
        "largest epsilon spent", private_lines("epsilon_max"),
        "Of the client that has spent most.", from_zero=True),
    "delay": Chart("Delay", "round", label("cumulative_delay_s", "delay so far"),
        lines("cumulative_delay_s"), from_zero=True),
    "energy": Chart("Energy of all clients", "round",
        label("cumulative_energy_j", "energy so far"),
        lines("cumulative_energy_j"), from_zero=True),
    "keep_rate": Chart("Keep rate", "round", label("keep_rate_mean", "mean keep rate"),
        lines("keep_rate_mean"), "Mean over the clients that send."),
    "delay_queue": Chart("Delay queue", "round", label("delay_queue"),
        lines("delay_queue")),
    "clients": Chart("Clients with budget left", "round", "clients",
        lines("live_clients"), from_zero=True),
}  # fmt: skip
FIGURES = {
    key: (key,)
    for key in (
        *("accuracy_rounds", "accuracy_delay", "accuracy_epsilon", "epsilon", "energy"),
    )
} | {"delay": ("delay", "keep_rate")}
