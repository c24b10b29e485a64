"""A made-up study in which every claim of the paper is true, until it is broken."""

import math

import numpy as np
import pandas as pd

from experiments.paper import claim_data, claim_tests

POLICIES = ("DP-SparFL", "delay minimization", "round robin", "random")
SETTINGS = {setting.key: setting for setting in claim_tests.SETTINGS}
FIGURES = {
    "clipping_fashion": "clipping",
    "clipping_cifar": "clipping",
    "tradeoff_warm": "tradeoff",
    "policies_mnist": "policies_delay",
    "policies_cifar": "policies_delay",
    "policies_cifar_ours": "policies_delay",
}  # of sweeps that are not named as their figure


class Study:
    """Made-up tables of a study in which every claim is true."""

    def __init__(self, seeds=4):
        self.seeds = range(seeds)
        self.random = np.random.default_rng(0)
        rows = [*self.points(), *self.policies(), *self.pairs()]
        self.runs = pd.DataFrame(rows, columns=[*claim_data.KEY, *self.blank()])
        self.curves = {"policies_accuracy": [], "noniid": [], "imbalance": []}
        for setting in SETTINGS.values():
            self.curves[setting.figure] += self.panels(setting.tag)
        columns = [*claim_data.POINT, "y"]
        self.curves = {
            name: pd.DataFrame(rows, columns=columns)
            for name, rows in self.curves.items()
        }

    def blank(self):
        return dict.fromkeys(claim_data.MEASURES, math.nan)

    def rows(self, sweep, series, value=math.nan, **measures):
        """A run a seed; every measure differs a little from seed to seed."""
        return [
            {"sweep": sweep, "series": series, "value": value, "seed": seed}
            | self.blank()
            | {name: x * self.random.uniform(0.999, 1) for name, x in measures.items()}
            for seed in self.seeds
        ]

    def points(self):
        for sweep in ("clipping_fashion", "clipping_cifar"):
            for keep in (0.1, 0.5, 0.9):
                yield from self.rows(sweep, "adjusted", keep, accuracy=0.8)
                yield from self.rows(sweep, "unadjusted", keep, accuracy=0.7)
        for tradeoff, accuracy in ((1, 0.5), (10, 0.6), (50, 0.8), (200, 0.7)):
            found = {"accuracy": accuracy, "mean_delay_s": 100 + math.log10(tradeoff)}
            for sweep in ("tradeoff", "tradeoff_warm", "fairness"):
                yield from self.rows(sweep, f"lambda = {tradeoff}", tradeoff, **found)
        yield from self.rows("tradeoff", "all kept", accuracy=0.99, mean_delay_s=1)
        for bound in (5, 10, 15, 20):
            found = {"common_delay_s": 300 - bound, "delay_s": 300 + bound}
            found["accuracy"] = 0.5 + bound / 100
            yield from self.rows("privacy_level", f"[2, {bound}]", bound, **found)

    def policies(self):
        for setting in SETTINGS.values():
            for place, name in enumerate(POLICIES):
                yield from self.rows(
                    setting.sweep,
                    name,
                    common_delay_s=1000 + 100 * place,
                    mean_delay_s=120,
                    delay_target_s=120,
                    first_delay_s=100 + 10 * place,
                    last_delay_s=200,
                    participation_gap=0,
                    accuracy=0.8 - 0.05 * place,
                    epsilon_margin=0.1,
                )
            yield from self.rows(setting.sweep, "all kept", common_delay_s=1)

    def pairs(self):
        yield from self.rows("solver", "joint", keep_rate=0.5, mean_delay_s=120)
        yield from self.rows("solver", "paper", keep_rate=0.4, mean_delay_s=120)
        yield from self.rows("accountant", "PLD", rounds=90)
        yield from self.rows("accountant", "RDP", rounds=60)

    def panels(self, tag):
        """Slower policies are evaluated alike often, up to other rounds and times."""
        for seed in self.seeds:
            for place, name in enumerate((*POLICIES, "all kept")):
                for count in (10, 20, 30, 40 + 10 * place):
                    y = 0.5 - 0.05 * place + count / 200 * self.random.uniform(0.99, 1)
                    yield f"accuracy{tag}", name, seed, count, y
                    yield f"accuracy_time{tag}", name, seed, count * (1 + place), y

    def change(self, sweep, **functions):
        """Puts every measure of a sweep through its function."""
        rows = self.runs["sweep"] == sweep
        for name, function in functions.items():
            self.runs.loc[rows, name] = function(self.runs.loc[rows, name])

    def swap(self, sweep, one, other):
        self.change(sweep, series=lambda names: names.replace({one: other, other: one}))

    def upside_down(self, setting, *panels):
        points = self.curves[setting.figure]
        rows = points["panel"].isin([panel + setting.tag for panel in panels])
        points.loc[rows, "y"] = 1 - points.loc[rows, "y"]

    def write(self, folder):
        folder.mkdir(exist_ok=True)
        figures = self.runs["sweep"].replace(FIGURES)
        for figure, rows in self.runs.groupby(figures):
            rows.to_csv(folder / f"{figure}_runs.csv", index=False)
        for figure, points in self.curves.items():
            points.to_csv(folder / f"{figure}.csv", index=False)
        return folder


def mirror(center):
    return lambda values: 2 * center - values


def scale(factor):
    return lambda values: factor * values


def break_accuracy(study, setting):
    study.upside_down(setting, "accuracy", "accuracy_time")
    study.change(setting.sweep, accuracy=mirror(0.5))


def break_lambda_delay(study):
    for sweep in ("tradeoff", "tradeoff_warm"):
        study.change(sweep, mean_delay_s=mirror(100))


def break_everywhere(**functions):
    def change(study):
        for setting in SETTINGS.values():
            study.change(setting.sweep, **functions)

    return change


def of_settings(claim, keys, change):
    return {
        f"{claim}:{key}": lambda study, setting=SETTINGS[key]: change(study, setting)
        for key in keys
    }


# What makes one claim false and leaves the others true.
BREAKS = {
    "clipping:fashion": lambda s: s.swap("clipping_fashion", "adjusted", "unadjusted"),
    "clipping:cifar": lambda s: s.swap("clipping_cifar", "adjusted", "unadjusted"),
    "lambda_optimum": lambda s: s.change("tradeoff", accuracy=mirror(0.5)),
    "lambda_delay": break_lambda_delay,
    "privacy_accuracy": lambda s: s.change("privacy_level", accuracy=mirror(0.5)),
    "privacy_delay": lambda s: s.change("privacy_level", common_delay_s=mirror(300)),
    **of_settings(
        "policies_accuracy",
        SETTINGS,
        break_accuracy,
    ),
    **of_settings(
        "policies_delay",
        SETTINGS,
        lambda s, setting: s.change(setting.sweep, common_delay_s=mirror(1000)),
    ),
    **of_settings(
        "delay_minimization",
        ("mnist", "cifar10", "cifar10_ours"),
        lambda s, setting: s.change(
            setting.sweep, first_delay_s=mirror(150), last_delay_s=scale(0.1)
        ),
    ),
    "epsilon": lambda s: s.change("noniid", epsilon_margin=scale(-1)),
    "constraints:delay": break_everywhere(mean_delay_s=scale(1.05)),
    "constraints:participation": break_everywhere(
        participation_gap=lambda gap: gap + 0.1
    ),
    "solver": lambda s: s.swap("solver", "joint", "paper"),
    "accountant": lambda s: s.swap("accountant", "PLD", "RDP"),
}
