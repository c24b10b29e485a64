"""The comparisons that the claims imply: pure functions of the tables."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from .claim_data import Tables, column, wide
from .statistics import Comparison, compare, relative, smallest
from .verdicts import Part

OURS = "DP-SparFL"
BASELINES = ("delay minimization", "round robin", "random")
DELAY_TOLERANCE = 1.0  # per cent
SHARE_TOLERANCE = 0.05  # of rounds


class Setting(NamedTuple):
    """Where the four policies were compared, and where our tables tell of it."""

    key: str
    name: str
    sweep: str
    figure: str  # with the accuracy curves
    tag: str  # at the end of the names of its panels
    accuracy_in_paper: str
    delay_in_paper: str


MNIST = Setting(
    "mnist",
    "IID MNIST",
    "policies_mnist",
    "policies_accuracy",
    ":mnist",
    "Fig. 5 (a)",
    "Fig. 6 (a)",
)
CIFAR = Setting(
    "cifar10",
    "IID CIFAR-10 with sigma 0.4",
    "policies_cifar",
    "policies_accuracy",
    ":cifar10",
    "Fig. 5 (b)",
    "Fig. 6 (b)",
)
CIFAR_OURS = CIFAR._replace(
    key="cifar10_ours",
    name="IID CIFAR-10 in our nearest setting",
    sweep="policies_cifar_ours",
    tag=":cifar10_ours",
)
NONIID = Setting(
    "noniid",
    "non-IID Fashion-MNIST",
    "noniid",
    "noniid",
    "",
    "Fig. 7 (a)",
    "Fig. 7 (b)",
)
IMBALANCE = Setting(
    "imbalance",
    "imbalanced Fashion-MNIST",
    "imbalance",
    "imbalance",
    "",
    "Fig. 8 (a)",
    "Fig. 8 (b)",
)
IID = (MNIST, CIFAR, CIFAR_OURS)
SETTINGS = (*IID, NONIID, IMBALANCE)


def clipping(sweep: str, tables: Tables) -> list[Part]:
    """Adjusted against unadjusted clipping, a part a keep rate."""
    runs = tables.sweep(sweep)
    runs = runs[runs["value"].notna()]
    accuracy = {
        name: wide(runs[runs["series"] == name], "accuracy", "value")
        for name in ("adjusted", "unadjusted")
    }
    parts = []
    for rate in sorted(runs["value"].unique()):
        gain = column(accuracy["adjusted"], rate) - column(accuracy["unadjusted"], rate)
        comparison = compare(f"keep rate {rate:g}", 100 * gain, "pp")
        parts.append(Part("keep rate", [comparison], float(rate)))
    return parts


def _by_value(tables: Tables, sweep: str, measure: str) -> pd.DataFrame:
    """A row a seed, a column a value, in order; without series that have no value."""
    runs = tables.sweep(sweep)
    table = wide(runs[runs["value"].notna()], measure, "value")
    return table.sort_index(axis=1)


def interior_optimum(tables: Tables) -> list[Part]:
    """The best lambda between the ends against the better of the two ends.

    The best lambda is chosen on the mean over the seeds that then judge it, which
    favours the claim a little; the better end is taken in every seed by itself, which
    works against it.
    """
    accuracy = _by_value(tables, "tradeoff", "accuracy").dropna()
    if len(accuracy.columns) < 3:
        return []
    low, *inner, high = accuracy.columns
    best = accuracy[inner].mean().idxmax() if len(accuracy) else inner[0]
    gain = accuracy[best] - accuracy[[low, high]].max(axis=1)
    label = f"lambda {best:g} over {low:g} and {high:g}"
    return [Part("all lambda", [compare(label, 100 * gain, "pp")])]


def delay_over_lambda(tables: Tables) -> list[Part]:
    """The slope of delay over lambda, a part a start of the delay queue."""
    starts = {"tradeoff": "zero", "tradeoff_warm": "equilibrium"}
    parts = []
    for sweep, start in starts.items():
        slope = _slope(_by_value(tables, sweep, "mean_delay_s").dropna())
        comparison = compare(f"queue from {start}", slope, "s per tenfold lambda")
        parts.append(Part(f"a delay queue that starts at {start}", [comparison]))
    return parts


def _slope(table: pd.DataFrame) -> pd.Series:
    """Least-squares slope of every row on log10 of the columns' values above 0."""
    table = table[[value for value in table.columns if value > 0]]
    if len(table.columns) < 2:
        return pd.Series(dtype=float)
    place = np.log10(np.asarray(table.columns, float))
    place -= place.mean()
    return table @ (place / (place @ place))


def accuracy_over_epsilon(tables: Tables) -> list[Part]:
    """The widest range of epsilon against the narrowest, and every step."""
    accuracy = _by_value(tables, "privacy_level", "accuracy")
    bounds = list(accuracy.columns)
    steps = list(pairwise(bounds))
    pairs = [(bounds[0], bounds[-1]), *steps] if len(steps) > 1 else steps
    parts = []
    for low, high in pairs:
        label = f"[2,{high:g}] over [2,{low:g}]"
        gain = 100 * (accuracy[high] - accuracy[low])
        parts.append(Part(label, [compare(label, gain, "pp")]))
    return parts


def delay_over_epsilon(tables: Tables) -> list[Part]:
    """Delays of the widest range of epsilon against the narrowest."""
    comparisons = []
    for measure, words in (
        ("common_delay_s", "over the same rounds"),
        ("delay_s", "until budgets end"),
    ):
        delay = _by_value(tables, "privacy_level", measure)
        if len(delay.columns) > 1:
            low, high = delay.columns[0], delay.columns[-1]
            label = f"[2,{high:g}] against [2,{low:g}] {words}"
            change = relative(delay[high], delay[low])
            report_only = measure == "delay_s"
            comparisons.append(
                compare(label, change, "%", side=-1, report_only=report_only)
            )
    return [Part("the same rounds", comparisons)] if comparisons else []


def accuracy_of_policies(setting: Setting, tables: Tables) -> list[Part]:
    """Ours against every baseline, after equal rounds, equal time, and at the end."""
    rounds = tables.panel(setting.figure, "accuracy" + setting.tag)
    times = tables.panel(setting.figure, "accuracy_time" + setting.tag)
    ends = wide(tables.sweep(setting.sweep), "accuracy")
    accuracies = {
        "equal rounds": ("an equal number of rounds", _after_equal_rounds(rounds)),
        "equal time": ("equal simulated time", _after_equal_time(times)),
        "at the end": ("training to the end", ends),
    }
    parts = []
    for words, (condition, accuracy) in accuracies.items():
        ours = column(accuracy, OURS)
        comparisons = [
            compare(f"{name}, {words}", 100 * (ours - column(accuracy, name)), "pp")
            for name in BASELINES
        ]
        parts.append(Part(condition, comparisons))
    return parts


def _after_equal_rounds(points: pd.DataFrame) -> pd.DataFrame:
    """Per seed, accuracies after the last round in which all four were evaluated."""
    rounds = points.pivot(index=["seed", "x"], columns="series", values="y")
    rounds = rounds.reindex(columns=[OURS, *BASELINES]).astype(float).dropna()
    return rounds.sort_index().groupby("seed").last()


def _after_equal_time(points: pd.DataFrame) -> pd.DataFrame:
    """Per seed, accuracies at the largest time that all four reach.

    Linear between evaluations: to take the last one before would set back whoever is
    evaluated less often in time. Blank before a policy's first evaluation.
    """
    ends = points.pivot_table(index="seed", columns="series", values="x", aggfunc="max")
    ends = ends.reindex(columns=[OURS, *BASELINES]).astype(float).dropna().min(axis=1)
    interpolated = pd.DataFrame(
        index=ends.index, columns=[OURS, *BASELINES], dtype=float
    )
    for (seed, series), curve in points.sort_values("x").groupby(["seed", "series"]):
        if seed in ends.index and series in interpolated.columns:
            at = float(ends[seed])
            interpolated.loc[seed, series] = np.interp(
                at, curve["x"], curve["y"], left=np.nan
            )
    return interpolated


def delay_of_policies(setting: Setting, tables: Tables) -> list[Part]:
    """Our cumulative delay against that of every baseline, over the same rounds."""
    delay = wide(tables.sweep(setting.sweep), "common_delay_s")
    comparisons = [
        _less(name, column(delay, OURS), column(delay, name)) for name in BASELINES
    ]
    return [Part(setting.name, comparisons)]


def _less(label: str, values: pd.Series, than: pd.Series) -> Comparison:
    return compare(label, relative(values, than), "%", side=-1)


def late_delay(setting: Setting, tables: Tables) -> list[Part]:
    """Delay minimization at its start against the others, and at its end."""
    runs = tables.sweep(setting.sweep)
    quick, *others = BASELINES
    first, last = wide(runs, "first_delay_s"), wide(runs, "last_delay_s")
    start = column(first, quick)
    comparisons = [
        _less(f"start against {name}", start, column(first, name)) for name in others
    ]
    rise = relative(column(last, quick), start)
    return [Part(setting.name, [*comparisons, compare("end against start", rise, "%")])]


def within_epsilon(tables: Tables) -> list[Part]:
    """The least that any client of any run had left."""
    noisy = tables.runs[tables.runs["epsilon_margin"].notna()]
    margin, seeds = noisy["epsilon_margin"], noisy["seed"].nunique()
    label = f"least of {len(noisy)} runs"
    return [Part("all runs", [smallest(label, margin, "epsilon", seeds)])]


def delay_target(tables: Tables) -> list[Part]:
    """Our average delay against its target, a part a setting."""
    parts = []
    for setting in SETTINGS:
        runs = tables.sweep(setting.sweep)
        mean, target = wide(runs, "mean_delay_s"), wide(runs, "delay_target_s")
        off = relative(column(mean, OURS), column(target, OURS))
        comparison = compare(setting.name, off, "%", side=-1, bound=DELAY_TOLERANCE)
        parts.append(Part(setting.name, [comparison]))
    return parts


def share(tables: Tables) -> list[Part]:
    """The client that is furthest behind its share halfway, a part a setting."""
    parts = []
    for setting in SETTINGS:
        gap = column(wide(tables.sweep(setting.sweep), "participation_gap"), OURS)
        comparison = compare(
            setting.name, gap, "of rounds", side=-1, bound=SHARE_TOLERANCE
        )
        parts.append(Part(setting.name, [comparison]))
    return parts


def solver(tables: Tables) -> list[Part]:
    """What our solver keeps more than the paper's, and at which delay."""
    runs = tables.sweep("solver")
    keep, delay = wide(runs, "keep_rate"), wide(runs, "mean_delay_s")
    gain = 100 * (column(keep, "joint") - column(keep, "paper"))
    cost = relative(column(delay, "joint"), column(delay, "paper"))
    comparisons = [
        compare("kept", gain, "pp"),
        compare("delay", cost, "%", side=-1, bound=DELAY_TOLERANCE),
    ]
    return [Part("the same target", comparisons)]


def accountant(tables: Tables) -> list[Part]:
    """Rounds that budgets afford by either accountant."""
    rounds = wide(tables.sweep("accountant"), "rounds")
    gain = column(rounds, "PLD") - column(rounds, "RDP")
    return [Part("the same epsilon", [compare("PLD over RDP", gain, "rounds")])]
