"""A made-up study in which every claim of the paper is true, until it is broken."""

import math

import numpy as np
import pandas as pd

from dpsparfl_jax import config_values
from experiments.paper import claim_data, claim_tests, trained

POLICIES = ("DP-SparFL", "delay minimization", "round robin", "random")
SETTINGS = {setting.key: setting for setting in claim_tests.SETTINGS}
FIGURES = {
    "clipping_fashion": "clipping",
    "clipping_cifar": "clipping",
    "tradeoff_warm": "tradeoff",
    "policies_mnist": "policies_delay",
    "policies_cifar_ours": "policies_delay",
}  # of sweeps that are not named as their figure


def finished(settings, schedule=""):
    """What is kept of a run that was trained to its end."""
    seen = pd.DataFrame([[2.0, 0.5, math.nan, 7.0]], columns=trained.EVALUATED)
    digest = config_values.digest(settings)
    return trained.Trained(digest, schedule, dict.fromkeys(trained.FACTS, 1.0), seen)


class Study:
    """Made-up tables of a study in which every claim is true."""

    def __init__(self, planned=10, trained=5):
        self.planned, self.trained = planned, trained
        self.random = np.random.default_rng(0)
        rows = [*self.points(), *self.policies(), *self.pairs()]
        self.runs = pd.DataFrame(rows, columns=[*claim_data.KEY, *claim_data.MEASURES])
        bound = [
            ("bound", series, seed, x, y)
            for seed in range(3)
            for x in (10, 20)
            for series, y in (("measured, mean so far", 8.0), ("bound", 400.0))
        ]
        self.bound = pd.DataFrame(bound, columns=[*claim_data.POINT, "y"])

    def rows(self, sweep, series, value=math.nan, **measures):
        """A run a seed; every measure differs a little from seed to seed."""
        for seed in range(self.planned):
            row = {"sweep": sweep, "series": series, "value": value, "seed": seed}
            for name, x in measures.items():
                if name not in claim_data.PLANNED and seed >= self.trained:
                    x = x if name in ("epsilon_wasted", "queue_ratio") else math.nan
                row[name] = x * self.random.uniform(0.999, 1)
            yield row

    def points(self):
        for sweep in ("clipping_fashion", "clipping_cifar"):
            for keep in (0.1, 0.5, 0.9):
                yield from self.rows(sweep, "adjusted", keep, settled_accuracy=0.8)
                yield from self.rows(sweep, "unadjusted", keep, settled_accuracy=0.7)
        lambdas = {1: 0.5, 10: 0.6, 50: 0.8, 100: 0.75, 200: 0.58}
        for tradeoff, accuracy in lambdas.items():
            found = {
                "settled_accuracy": accuracy,
                "mean_delay_s": 100 + 10 * math.log10(tradeoff),
                "queue_ratio": 0.5,
            }
            for sweep in ("tradeoff", "tradeoff_warm"):
                yield from self.rows(sweep, f"lambda = {tradeoff}", tradeoff, **found)
        yield from self.rows("tradeoff", "all kept", mean_delay_s=1, queue_ratio=2)
        for bound in (5, 10, 15, 20):
            found = {"common_delay_s": 300 - bound, "delay_s": 300 + bound}
            found["settled_accuracy"] = 0.5 + bound / 100
            yield from self.rows("privacy_level", f"[2, {bound}]", bound, **found)
        for target in (80, 120, 160, 200):
            yield from self.rows(
                *("delay_targets", "lambda = 50", target),
                mean_delay_s=target,
                keep_rate=target / 400,
            )

    def policies(self):
        for setting in SETTINGS.values():
            for sweep in (setting.sweep, setting.sparse):
                for place, name in enumerate(POLICIES):
                    yield from self.rows(
                        sweep,
                        name,
                        common_delay_s=1000 + 100 * place,
                        mean_delay_s=120,
                        delay_target_s=120,
                        first_delay_s=100 + 10 * place,
                        last_delay_s=200,
                        participation_gap=0,
                        epsilon_margin=0.1,
                        settled_accuracy=0.8 - 0.05 * place,
                        equal_time_accuracy=0.8 - 0.1 * place,
                        reach_s=1000 + 500 * place,
                    )
            yield from self.rows(setting.sweep, "all kept", common_delay_s=1)

    def pairs(self):
        yield from self.rows(
            *("solver", "joint"), keep_rate=0.5, mean_delay_s=120, settled_accuracy=0.8
        )
        yield from self.rows(
            *("solver", "paper"), keep_rate=0.4, mean_delay_s=120, settled_accuracy=0.7
        )
        yield from self.rows("accountant", "PLD", rounds=90, settled_accuracy=0.8)
        yield from self.rows("accountant", "RDP", rounds=60, settled_accuracy=0.7)
        yield from self.rows("noise_aware", "noise-aware", settled_accuracy=0.8)
        yield from self.rows("noise_aware", "not noise-aware", settled_accuracy=0.7)
        for margin, wasted, accuracy in ((0, 0.5, 0.7), (2, 0.1, 0.8)):
            yield from self.rows(
                *("robust_margin", "DP-SparFL", margin),
                epsilon_wasted=wasted,
                settled_accuracy=accuracy,
            )

    def change(self, sweep, **functions):
        """Puts every measure of a sweep through its function."""
        rows = self.runs["sweep"] == sweep
        for name, function in functions.items():
            self.runs.loc[rows, name] = function(self.runs.loc[rows, name])

    def put(self, sweep, measure, of_series):
        """Gives a measure of some series these values, one a seed."""
        rows = self.runs["sweep"].eq(sweep) & (self.runs["seed"] < self.trained)
        for series, values in of_series.items():
            self.runs.loc[rows & self.runs["series"].eq(series), measure] = values

    def swap(self, sweep, one, other):
        self.change(sweep, series=lambda names: names.replace({one: other, other: one}))

    def tables(self):
        return claim_data.Tables(self.runs, self.bound)

    def write(self, folder):
        folder.mkdir(exist_ok=True)
        figures = self.runs["sweep"].replace(FIGURES)
        for figure, rows in self.runs.groupby(figures):
            rows.to_csv(folder / f"{figure}_runs.csv", index=False)
        self.bound.to_csv(folder / "bound.csv", index=False)
        return folder


def mirror(center):
    return lambda values: 2 * center - values


def scale(factor):
    return lambda values: factor * values


def break_lambda_delay(study):
    for sweep in ("tradeoff", "tradeoff_warm"):
        study.change(sweep, mean_delay_s=mirror(100))


def break_late_delay(study):
    for key in ("mnist", "cifar10"):
        study.change(
            SETTINGS[key].sweep, first_delay_s=mirror(150), last_delay_s=scale(0.1)
        )


def break_everywhere(**functions):
    def change(study):
        for setting in SETTINGS.values():
            study.change(setting.sweep, **functions)

    return change


def break_theorem1(study):
    study.bound.loc[study.bound["series"] == "bound", "y"] = 7.0


def break_solver(study):
    """Less is kept, and more time is taken."""
    study.change("solver", keep_rate=mirror(0.5))
    study.runs.loc[study.runs["series"] == "joint", "mean_delay_s"] *= 1.05


def break_robustness(study):
    study.change(
        "robust_margin",
        epsilon_wasted=mirror(0.3),
        settled_accuracy=mirror(0.5),
    )


def in_settings(claim, where, **functions):
    """The same change makes a claim about each setting false."""
    return {
        f"{claim}:{key}": lambda study, setting=setting: study.change(
            getattr(setting, where), **functions
        )
        for key, setting in SETTINGS.items()
    }


# What makes one claim false and leaves the others true.
BREAKS = {
    "clipping:fashion": lambda s: s.swap("clipping_fashion", "adjusted", "unadjusted"),
    "clipping:cifar": lambda s: s.swap("clipping_cifar", "adjusted", "unadjusted"),
    "lambda_optimum": lambda s: s.change("tradeoff", settled_accuracy=mirror(0.5)),
    "lambda_delay": break_lambda_delay,
    "privacy_accuracy": lambda s: s.change(
        "privacy_level", settled_accuracy=mirror(0.5)
    ),
    "privacy_delay": lambda s: s.change("privacy_level", common_delay_s=mirror(300)),
    **in_settings("policies_accuracy", "sweep", settled_accuracy=mirror(0.5)),
    **in_settings("policies_delay", "sweep", common_delay_s=mirror(1000)),
    "delay_minimization": break_late_delay,
    "epsilon": lambda s: s.change("noniid", epsilon_margin=scale(-1)),
    "constraints:delay": break_everywhere(mean_delay_s=scale(1.05)),
    "constraints:participation": break_everywhere(
        participation_gap=lambda gap: gap + 0.1
    ),
    "theorem1": break_theorem1,
    "theorem3": lambda s: s.change("tradeoff_warm", queue_ratio=scale(3)),
    **in_settings("sparse_delay", "sparse", common_delay_s=mirror(1000)),
    "sparse_accuracy": lambda s: s.change(
        "sparse_noniid", settled_accuracy=mirror(0.5)
    ),
    "solver": break_solver,
    "solver_accuracy": lambda s: s.change("solver", settled_accuracy=mirror(0.5)),
    "accountant": lambda s: s.swap("accountant", "PLD", "RDP"),
    "noise_aware": lambda s: s.swap("noise_aware", "noise-aware", "not noise-aware"),
    "robustness": break_robustness,
}
