"""The comparisons that the claims imply: pure functions of the tables.

Each gives the family of one claim, as PROTOCOL.md has it.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from . import protocol
from .claim_data import Tables, column, wide
from .statistics import Comparison, Effect, exact, relative

Family = list[Effect | Comparison]
OURS = "DP-SparFL"
BASELINES = ("delay minimization", "round robin", "random")
_TRAINED = protocol.TRAINED_SEEDS
_EXTREMES, _BETWEEN = (1.0, 200.0), (10.0, 50.0, 100.0)  # lambda
_TOLD_TARGETS = (80.0, 120.0, 160.0, 200.0)  # s


class Setting(NamedTuple):
    """Where the four policies were compared, and where our tables tell of it."""

    key: str
    name: str
    sweep: str
    sparse: str  # the sweep whose baselines keep as much as ours
    margin: float  # of accuracies, in points
    accuracy_in_paper: str
    delay_in_paper: str


MNIST = Setting(
    "mnist",
    "IID MNIST",
    "policies_mnist",
    "sparse_mnist",
    protocol.ACCURACY_MARGIN,
    "Fig. 5 (a)",
    "Fig. 6 (a)",
)
CIFAR = Setting(
    "cifar10",
    "IID CIFAR-10 in our nearest setting",
    "policies_cifar_ours",
    "sparse_cifar",
    protocol.ACCURACY_MARGIN,
    "Fig. 5 (b)",
    "Fig. 6 (b)",
)
NONIID = Setting(
    "noniid",
    "non-IID Fashion-MNIST",
    "noniid",
    "sparse_noniid",
    protocol.UNLIKE_MARGIN,
    "Fig. 7 (a)",
    "Fig. 7 (b)",
)
IMBALANCE = Setting(
    "imbalance",
    "imbalanced Fashion-MNIST",
    "imbalance",
    "sparse_imbalance",
    protocol.UNLIKE_MARGIN,
    "Fig. 8 (a)",
    "Fig. 8 (b)",
)
IID = (MNIST, CIFAR)
SETTINGS = (*IID, NONIID, IMBALANCE)


def _accuracy_gain(
    label: str, gain: pd.Series, margin: float = protocol.ACCURACY_MARGIN
) -> Effect:
    """A difference of accuracies, given as shares."""
    return Effect(label, 100 * gain, "pp", _TRAINED, margin=margin)


def _less_delay(label: str, values: pd.Series, than: pd.Series) -> Effect:
    change = relative(values, than)
    return Effect(label, change, "%", side=-1, margin=protocol.DELAY_MARGIN)


def _told(label: str, values: pd.Series, unit: str) -> Effect:
    return Effect(label, values, unit, told=True)


def clipping(sweep: str, tables: Tables) -> Family:
    """Adjusted minus unadjusted clipping, at every keep rate."""
    runs = tables.sweep(sweep)
    runs = runs[runs["value"].notna()]
    adjusted, unadjusted = (
        wide(runs[runs["series"] == name], "settled_accuracy", "value")
        for name in ("adjusted", "unadjusted")
    )
    return [
        _accuracy_gain(
            f"keep rate {rate:g}", column(adjusted, rate) - column(unadjusted, rate)
        )
        for rate in sorted(runs["value"].unique())
    ]


def _by_value(tables: Tables, sweep: str, measure: str) -> pd.DataFrame:
    """A row a seed, a column a value, in order; without series that have no value."""
    runs = tables.sweep(sweep)
    table = wide(runs[runs["value"].notna()], measure, "value")
    return table.sort_index(axis=1)


def interior_optimum(tables: Tables) -> Family:
    """A lambda between the extremes against both of them.

    In every seed it is the one that is best on average over the other seeds, so that
    no seed judges what it chose.
    """
    accuracy = _by_value(tables, "tradeoff", "settled_accuracy")
    accuracy = accuracy.reindex(columns=[*_EXTREMES, *_BETWEEN]).dropna()
    chosen = pd.Series(np.nan, index=accuracy.index, dtype=float)
    for seed in accuracy.index if len(accuracy) > 1 else ():
        best = accuracy.drop(index=seed)[[*_BETWEEN]].mean().idxmax()
        chosen[seed] = accuracy.loc[seed, best]
    return [
        _accuracy_gain(f"lambda* over {end:g}", chosen - column(accuracy, end))
        for end in _EXTREMES
    ]


def delay_over_lambda(tables: Tables) -> Family:
    """The slope of delay over log lambda, relative to the mean delay of a seed."""
    starts = {"tradeoff": "zero", "tradeoff_warm": "equilibrium"}
    return [
        Effect(
            f"queue from {start}",
            _relative_slope(_by_value(tables, sweep, "mean_delay_s").dropna()),
            "% per tenfold lambda",
            margin=protocol.DELAY_MARGIN,
        )
        for sweep, start in starts.items()
    ]


def _relative_slope(table: pd.DataFrame) -> pd.Series:
    """Least-squares slope of rows on log10 of columns, in per cent of their means."""
    if len(table.columns) < 2:
        return pd.Series(dtype=float)
    place = np.log10(np.asarray(table.columns, float))
    place -= place.mean()
    return 100 * (table @ (place / (place @ place))) / table.mean(axis=1)


def accuracy_over_epsilon(tables: Tables) -> Family:
    """Every wider range of epsilon against the next narrower one."""
    accuracy = _by_value(tables, "privacy_level", "settled_accuracy")
    return [
        _accuracy_gain(
            f"[2, {high:g}] over [2, {low:g}]", accuracy[high] - accuracy[low]
        )
        for low, high in pairwise(accuracy.columns)
    ]


def delay_over_epsilon(tables: Tables) -> Family:
    """Delays of the widest range of epsilon against the narrowest."""
    family: Family = []
    for measure, words in (
        ("common_delay_s", "over the same rounds"),
        ("delay_s", "until budgets end"),
    ):
        delay = _by_value(tables, "privacy_level", measure)
        if len(delay.columns) > 1:
            low, high = delay.columns[0], delay.columns[-1]
            label = f"[2, {high:g}] against [2, {low:g}] {words}"
            effect = _less_delay(label, delay[high], delay[low])
            family.append(effect._replace(told=measure == "delay_s"))
    return family


def accuracy_of_policies(
    setting: Setting, tables: Tables, *, sparse: bool = False
) -> Family:
    """Ours against every baseline: settled accuracies, and told what else there is."""
    runs = tables.sweep(setting.sparse if sparse else setting.sweep)
    settled = wide(runs, "settled_accuracy")
    family: Family = [
        _accuracy_gain(
            name, column(settled, OURS) - column(settled, name), setting.margin
        )
        for name in BASELINES
    ]
    for measure, words in (
        ("equal_time_accuracy", "at equal time"),
        ("best_accuracy", "best on the way"),
        ("accuracy", "at the end"),
    ):
        table = wide(runs, measure)
        for name in BASELINES:
            gain = column(table, OURS) - column(table, name)
            family.append(_told(f"{name}, {words}", 100 * gain, "pp"))
    reached = wide(runs, "reach_s")
    for name in BASELINES:
        change = relative(column(reached, OURS), column(reached, name))
        family.append(_told(f"{name}, time to reach an accuracy", change, "%"))
    return family


def delay_of_policies(
    setting: Setting, tables: Tables, *, sparse: bool = False
) -> Family:
    """Our cumulative delay against that of every baseline, over the same rounds."""
    runs = tables.sweep(setting.sparse if sparse else setting.sweep)
    delay = wide(runs, "common_delay_s")
    return [
        _less_delay(name, column(delay, OURS), column(delay, name))
        for name in BASELINES
    ]


def late_delay(tables: Tables) -> Family:
    """Delay minimization at its start against the others, and at its end."""
    quick, *others = BASELINES
    family: Family = []
    for setting, images in ((MNIST, "MNIST"), (CIFAR, "CIFAR-10")):
        runs = tables.sweep(setting.sweep)
        first, last = wide(runs, "first_delay_s"), wide(runs, "last_delay_s")
        start = column(first, quick)
        family += [
            _less_delay(f"{images}, start against {name}", start, column(first, name))
            for name in others
        ]
        rise = relative(column(last, quick), start)
        label = f"{images}, end against start"
        family.append(Effect(label, rise, "%", margin=protocol.DELAY_MARGIN))
    return family


def within_epsilon(tables: Tables) -> Family:
    """The least that any client of any run had left; sweeps may share runs."""
    noisy = tables.runs[tables.runs["epsilon_margin"].notna()]
    label, seeds = f"least over {len(noisy)} rows", noisy["seed"].nunique()
    return [exact(label, noisy["epsilon_margin"], "epsilon", seeds=seeds, least=0)]


def delay_target(tables: Tables) -> Family:
    """Our average delay against its target, in every setting."""
    family: Family = []
    for setting in SETTINGS:
        runs = tables.sweep(setting.sweep)
        mean, target = wide(runs, "mean_delay_s"), wide(runs, "delay_target_s")
        off = relative(column(mean, OURS), column(target, OURS))
        family.append(
            Effect(
                *(setting.name, off, "%"),
                side=-1,
                tolerance=protocol.DELAY_TOLERANCE,
            )
        )
    return family


def share(tables: Tables) -> Family:
    """The client that is furthest behind its share halfway, in every setting."""
    family: Family = []
    for setting in SETTINGS:
        gap = column(wide(tables.sweep(setting.sweep), "participation_gap"), OURS)
        family.append(
            Effect(
                *(setting.name, gap, "of rounds"),
                side=-1,
                tolerance=protocol.SHARE_TOLERANCE,
            )
        )
    return family


def convergence_bound(tables: Tables) -> Family:
    """The measured mean squared gradient norm over Theorem 1's bound of it."""
    points = tables.bound
    found = points.pivot(index=["seed", "x"], columns="series", values="y")
    measured = column(found, "measured, mean so far")
    ratio = (measured / column(found, "bound")).dropna()
    seeds = ratio.index.get_level_values("seed").nunique() if len(ratio) else 0
    label = f"largest of {len(ratio)} measurements"
    asked = protocol.GRADIENT_SEEDS
    return [exact(label, ratio, "of the bound", seeds=seeds, seeds_asked=asked, most=1)]


def queue_bound(tables: Tables) -> Family:
    """The norm of all queues over Theorem 3's bound of it, in all rounds.

    Over all lambda and both starts of the delay queue; not where all is kept, because
    no policy meets the delay target then, which the theorem assumes.
    """
    runs = tables.runs[tables.runs["sweep"].isin(["tradeoff", "tradeoff_warm"])]
    ratio = runs.loc[runs["value"].notna(), "queue_ratio"].dropna()
    seeds = runs.loc[ratio.index, "seed"].nunique()
    label = f"largest of {len(ratio)} runs"
    asked = protocol.PLANNED_SEEDS
    return [exact(label, ratio, "of the bound", seeds=seeds, seeds_asked=asked, most=1)]


def _gain(tables: Tables, sweep: str, measure: str, one: str, other: str) -> pd.Series:
    table = wide(tables.sweep(sweep), measure)
    return column(table, one) - column(table, other)


def solver(tables: Tables) -> Family:
    """What our solver keeps more than the paper's, and at which delay."""
    kept = _gain(tables, "solver", "keep_rate", "joint", "paper")
    delay = wide(tables.sweep("solver"), "mean_delay_s")
    cost = relative(column(delay, "joint"), column(delay, "paper"))
    return [
        Effect("kept", 100 * kept, "pp", margin=protocol.KEEP_MARGIN),
        Effect("delay", cost, "%", side=-1, tolerance=protocol.DELAY_TOLERANCE),
    ]


def solver_accuracy(tables: Tables) -> Family:
    """Accuracies of both solvers."""
    gain = _gain(tables, "solver", "settled_accuracy", "joint", "paper")
    return [_accuracy_gain("joint over paper's", gain)]


def accountant(tables: Tables) -> Family:
    """Rounds that budgets afford by either accountant, and accuracies."""
    rounds = _gain(tables, "accountant", "rounds", "PLD", "RDP")
    gain = _gain(tables, "accountant", "settled_accuracy", "PLD", "RDP")
    return [Effect("rounds", rounds, "rounds"), _accuracy_gain("accuracy", gain)]


def noise_aware(tables: Tables) -> Family:
    """Accuracies with and without noise-aware keep rates."""
    series = "noise-aware", "not noise-aware"
    gain = _gain(tables, "noise_aware", "settled_accuracy", *series)
    return [_accuracy_gain("noise-aware over not", gain)]


def robustness(tables: Tables) -> Family:
    """A margin of 2 dB against none, where gains are known to 1 dB."""
    runs = tables.sweep("robust_margin")
    ours = runs[runs["series"] == OURS]
    wasted = wide(ours, "epsilon_wasted", "value")
    accuracy = wide(ours, "settled_accuracy", "value")
    saved = 100 * (column(wasted, 2.0) - column(wasted, 0.0))
    return [
        Effect("epsilon spent for nothing", saved, "pp", side=-1),
        _accuracy_gain("accuracy", column(accuracy, 2.0) - column(accuracy, 0.0)),
    ]


def delay_choice(tables: Tables) -> Family:
    """Told: mean delays and keep rates over targets, beside delay minimization's."""
    runs = tables.sweep("delay_targets")
    runs = runs[runs["series"] == "lambda = 50"]
    delay, kept = wide(runs, "mean_delay_s", "value"), wide(runs, "keep_rate", "value")
    least = column(wide(tables.sweep(MNIST.sweep), "mean_delay_s"), BASELINES[0])
    family: Family = []
    for target in _TOLD_TARGETS:
        label = f"target {target:g} s"
        change = relative(column(delay, target), least)
        family += [
            _told(f"{label}, delay", change, "%"),
            _told(f"{label}, keep rate", column(kept, target), "kept"),
        ]
    return family
