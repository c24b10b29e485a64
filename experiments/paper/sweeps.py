"""The runs behind the paper's figures: sweeps of settings, at two scales.

A sweep is a preset, some series (curves, or the points of one) and seeds. Schedules are
planned until the budgets end, for more seeds than are trained: they never look at
training, and cost little. The quick scale has fewer rounds, seeds and series, on the
same images and networks.
"""

import types
from collections.abc import Mapping
from typing import NamedTuple

from dpsparfl_jax import config_values
from dpsparfl_jax.config import RunConfig

from .. import grid, presets

Changes = Mapping[str, str]  # of settings, by section.field
_NONE: Changes = types.MappingProxyType({})


class Scale(NamedTuple):
    """How much of everything."""

    trained_seeds: tuple[int, ...]
    planned_seeds: tuple[int, ...]
    rounds: int  # trained, at most; budgets may end earlier
    changes: Changes  # of all trained runs
    measured_every: int  # rounds between measured gradients
    measured_images: int | None  # of a client; None: all


SCALES = {
    "quick": Scale(
        (0,),
        (0, 1, 2),
        3,
        {"length.eval_every": "1", "data.test_examples": "100"},
        measured_every=1,
        measured_images=50,
    ),
    "full": Scale(
        (0, 1, 2),
        tuple(range(10)),
        100,
        {"length.eval_every": "10"},
        measured_every=10,
        measured_images=None,
    ),
}


class Series(NamedTuple):
    """One curve, or one point of it."""

    label: str
    changes: Changes
    value: float | None = None  # on the x axis
    quick: bool = True  # whether the quick scale has it
    once: bool = False  # for orientation: the first seed alone, in no claim


class Sweep(NamedTuple):
    """Series that share a preset."""

    preset: str
    series: tuple[Series, ...]
    changes: Changes = _NONE  # of all series
    quick: Changes = _NONE  # further ones at the quick scale
    trained: bool = True
    quick_only: bool = False  # trained at the quick scale alone, planned as in full
    seeds: tuple[int, ...] = ()  # instead of the scale's
    whole: bool = False  # trained until the budgets end, at the full scale


def _points(label: str, setting: str, values: str, quick: str) -> tuple[Series, ...]:
    return tuple(
        Series(
            label.format(value), {setting: value}, float(value), value in quick.split()
        )
        for value in values.split()
    )


_POLICIES = tuple(
    Series(label, {"schedule.policy": policy})
    for label, policy in {
        "DP-SparFL": "dp_sparfl",
        "delay minimization": "delay_min",
        "round robin": "round_robin",
        "random": "random",
    }.items()
)
_NOT_SPARSE = Series("all kept", {"schedule.keep_rate": "1"}, quick=False, once=True)
_NOT_PRIVATE = Series(
    "no noise, no clipping, all kept",
    {
        "schedule.keep_rate": "1",
        "privacy.noise": "false",
        "training.clip_norm": "1e6",
        "length.rounds": "50",
    },
    once=True,
)
_BOUNDS = (_NOT_SPARSE, _NOT_PRIVATE)
_CLIPPING = tuple(
    Series(
        mode,
        {"training.clipping": mode, "schedule.keep_rate": keep},
        float(keep),
        keep in ("0.1", "0.5"),
    )
    for mode in ("adjusted", "unadjusted")
    for keep in ("0.1", "0.3", "0.5", "0.7", "0.9")
)
# What the paper leaves open was chosen on another seed than those of its figures.
_STUDY_SEEDS = (1000,)
_STUDY_PLANS = tuple(range(1000, 1010))


def _clip_norms(batches: Mapping[str, str]) -> tuple[Series, ...]:
    return tuple(
        Series(
            f"b = {batch}",
            {"training.batch_size": batch, "training.clip_norm": clip},
            float(clip),
        )
        for batch, clips in batches.items()
        for clip in clips.split()
    )


def _only_planned(setting: str, values: str) -> Sweep:
    series = _points("DP-SparFL", setting, values, values)
    return Sweep("paper_fashion", series, trained=False, seeds=_STUDY_PLANS)


def _policies_over(setting: str, values: str) -> tuple[Series, ...]:
    return tuple(
        Series(policy.label, {**policy.changes, setting: value}, float(value))
        for policy in _POLICIES
        for value in values.split()
    )


_AVERAGED = {"server.averaging": "ema", "length.least_channels": "5"}


def _better(*papers: Series, efficient: Changes, best: Changes) -> tuple[Series, ...]:
    """The paper's setting, and what may be done at the same epsilons."""
    return (
        *papers,
        Series("efficient", {**_AVERAGED, **efficient}),
        Series("scattering", {**_AVERAGED, **best}),
    )


_AS_IN_PAPER = (Series("paper", {}), Series("paper, averaged, ended early", _AVERAGED))
# What the paper's small steps leave: the server's rate was chosen on validation images
# of seed 1000, among 1, 2 and 4, each constant and falling.
_FASTER_SERVER = Series(
    "paper, averaged, faster server",
    {
        **_AVERAGED,
        "server.average_decay": "0.8",
        "server.optimizer": "sgd",
        "server.learning_rate": "4",
        "server.rate_schedule": "cosine",
    },
)
# Runs so long that one must do for both: an average changes nothing of the models that
# it is made of, and all channels are in use until the last round or the one before.
_PAPER_AND_AVERAGE = Series("paper", {"server.averaging": "ema"})


_OPTIONS: Mapping[str, Changes] = {
    "paper": {},
    "noise-aware keep rates": {"schedule.noise_aware": "true"},
    "updates over s": {"server.rescale": "true"},
    "planned divisor": {"server.divide_by": "planned"},
    "inverse noise": {"server.weights": "inverse_noise"},
    "client rates fall": {"training.rate_schedule": "cosine"},
    "server momentum": {
        "server.optimizer": "momentum",
        "server.momentum": "0.5",
        "server.learning_rate": "0.5",
    },
    "client momentum": {
        "training.optimizer": "momentum",
        "training.learning_rate": "2e-4",
    },
}
# As the presets `efficient_*`. Rates were chosen on validation images of seed 1000.
_EFFICIENT = {
    "privacy.noise_multiplier": "1",
    "training.batch_size": "64",
    "training.local_steps": "20",
    "training.clip_norm": "10",
    "training.learning_rate": "0.08",
    "training.rate_schedule": "cosine",
    "server.average_decay": "0.8",
}
_SCATTERING = {
    "data.features": "scattering",
    "model.name": "logistic",
    "privacy.noise_multiplier": "2",
    "training.batch_size": "256",
    "training.local_steps": "5",
    "training.clip_norm": "1",
    "training.learning_rate": "2",
    "server.average_decay": "0.8",
}
_IN_COLOUR = {"schedule.delay_target_s": "110"}
_LAMBDAS = _points("lambda = {}", "schedule.tradeoff", "1 10 50 200", "1 50 200")
# At the quick scale batches are so large that budgets end within its few rounds: what
# they afford can be seen in the accuracy.
_SOON = {"training.batch_size": "20"}

SWEEPS: dict[str, Sweep] = {
    "clipping_fashion": Sweep("paper_fig2_fashion", _CLIPPING),
    "clipping_cifar": Sweep("paper_fig2_cifar", _CLIPPING),
    "tradeoff": Sweep(
        "paper_fashion", _LAMBDAS + _BOUNDS, {"schedule.warm_start": "false"}
    ),
    "tradeoff_warm": Sweep("paper_fashion", _LAMBDAS, trained=False),
    "privacy_level": Sweep(
        "paper_fashion",
        _points("[2, {}]", "privacy.epsilon_hi", "5 10 15 20", "5 20"),
        quick=_SOON,
    ),
    "policies_mnist": Sweep("paper_mnist", _POLICIES + _BOUNDS),
    "policies_cifar": Sweep("paper_cifar", _POLICIES),
    "policies_cifar_ours": Sweep(
        "nearest_cifar", _POLICIES + _BOUNDS, quick={"length.rounds": "2"}
    ),
    "noniid": Sweep("paper_fashion_noniid", _POLICIES + _BOUNDS),
    "imbalance": Sweep("paper_fashion_imbalanced", _POLICIES + _BOUNDS),
    "fairness": Sweep("paper_mnist", _LAMBDAS, trained=False),
    "delay_targets": Sweep(
        "paper_mnist",
        tuple(
            Series(
                f"lambda = {tradeoff}",
                {"schedule.tradeoff": tradeoff, "schedule.delay_target_s": target},
                float(target),
                quick=target != "160",
            )
            for tradeoff in ("1", "50")
            for target in ("80", "120", "160", "200")
        ),
        # The energy of a round stays the same.
        {"schedule.energy_budget_j": "24"},
        trained=False,
    ),
    "solver": Sweep(
        "paper_fashion",
        (
            Series("joint", {"schedule.solver": "joint"}),
            Series("paper", {"schedule.solver": "paper"}),
        ),
    ),
    "accountant": Sweep(
        "paper_fashion",
        (
            Series("PLD", {"privacy.accountant": "pld"}),
            Series("RDP", {"privacy.accountant": "rdp"}),
        ),
        quick=_SOON,
    ),
    "clip_fashion": Sweep(
        "paper_fashion",
        _clip_norms({"8": "10 20 40", "10": "20"}),
        seeds=_STUDY_SEEDS,
    ),
    "clip_mnist": Sweep(
        "paper_mnist",
        _clip_norms({"8": "10 20 40"}),
        {"length.rounds": "10"},
        seeds=_STUDY_SEEDS,
    ),
    "clip_cifar": Sweep(
        "paper_cifar",
        _clip_norms({"2": "5 10 20"}),
        {"length.rounds": "10"},
        seeds=_STUDY_SEEDS,
    ),
    "delay_target": _only_planned(
        "schedule.delay_target_s", "60 80 100 120 160 200 240"
    ),
    "keep_min": _only_planned("schedule.keep_min", "0.02 0.05 0.1 0.2 0.3"),
    "cycles": _only_planned("wireless.cycles_per_sample", "1e6 3e6 1e7 3e7 1e8"),
    "energy": _only_planned("schedule.energy_power_w", "0.03 0.05 0.1 0.2 0.5 1"),
    # Trained at the quick scale: the full one would take days for a small effect.
    "robust_error": Sweep(
        "paper_fashion",
        _policies_over("wireless.gain_error_db", "0 0.5 1 2 4"),
        {"schedule.on_late": "drop"},
        quick_only=True,
    ),
    "robust_margin": Sweep(
        "paper_fashion",
        _policies_over("schedule.margin_db", "0 0.5 1 2 3 5"),
        {"schedule.on_late": "drop", "wireless.gain_error_db": "1"},
        quick_only=True,
    ),
    "robust_late": Sweep(
        "paper_fashion",
        tuple(
            Series(
                kind,
                {"schedule.on_late": kind, "schedule.margin_db": margin},
                float(margin),
            )
            for kind in ("wait", "drop", "retry")
            for margin in ("0", "0.5", "1", "2", "3", "5")
        ),
        {"wireless.gain_error_db": "1"},
        trained=False,
        quick_only=True,
    ),
    # More accuracy at the paper's epsilons.
    "accuracy_fashion": Sweep(
        "paper_fashion",
        _better(*_AS_IN_PAPER, _FASTER_SERVER, efficient=_EFFICIENT, best=_SCATTERING),
        whole=True,
    ),
    "accuracy_mnist": Sweep(
        "paper_mnist",
        _better(_PAPER_AND_AVERAGE, efficient=_EFFICIENT, best=_SCATTERING),
        whole=True,
    ),
    "accuracy_cifar": Sweep(
        "paper_cifar",
        _better(
            _PAPER_AND_AVERAGE,
            efficient={**_EFFICIENT, **_IN_COLOUR},
            best={**_SCATTERING, **_IN_COLOUR, "training.learning_rate": "1"},
        ),
        whole=True,
    ),
    "accuracy_noniid": Sweep(
        "paper_fashion_noniid",
        _better(*_AS_IN_PAPER, efficient=_EFFICIENT, best=_SCATTERING),
        whole=True,
    ),
    # One option each, beside the paper's setting.
    "accuracy_options": Sweep(
        "paper_fashion",
        tuple(Series(label, changes) for label, changes in _OPTIONS.items()),
        whole=True,
    ),
    # Trained apart, where gradients are measured on the way.
    "bound": Sweep(
        "paper_fashion",
        (Series("DP-SparFL", {"schedule.policy": "dp_sparfl"}),),
        trained=False,
    ),
}


class SweepRun(NamedTuple):
    """One run of a sweep."""

    sweep: str
    series: Series
    seed: int
    name: str
    home: str  # its folder among all runs: equal runs of several sweeps share one
    trained: RunConfig | None  # None: it is only planned
    planned: RunConfig


def runs_of(sweep: str, scale: str, base: Changes) -> list[SweepRun]:
    """All runs of a sweep; `base` says where images lie and other things of speed.

    A run that an earlier sweep has too is trained once, and kept with that one.
    """
    homes: dict[str, str] = {}
    for other, what in SWEEPS.items():
        if what.preset == SWEEPS[sweep].preset:
            runs = _own_runs(other, scale, base)
            for run in runs:
                if run.trained is not None:
                    homes.setdefault(config_values.digest(run.trained), run.home)
        if other == sweep:
            break
    return [
        run._replace(home=homes[config_values.digest(run.trained)])
        if run.trained is not None
        else run
        for run in runs
    ]


def _own_runs(sweep: str, scale: str, base: Changes) -> list[SweepRun]:
    what, size = SWEEPS[sweep], SCALES[scale]
    most = size._replace(rounds=0) if what.whole and scale == "full" else size
    preset = presets.get_preset(what.preset).settings
    # Curves are compared with each other, seed by seed; only one run is for release.
    paired = {"privacy.noise_key": "paired"}
    quick = what.quick if scale == "quick" else {}
    common = {**paired, **what.changes, **quick, **base}
    runs = []
    for series in what.series:
        if scale == "quick" and not series.quick:
            continue
        planned = SCALES["full"] if what.quick_only else size
        seeds = what.seeds or planned.planned_seeds
        for seed in seeds[: 1 if series.once else None]:
            changes = {**common, **series.changes, "seed": str(seed)}
            trained = what.trained and seed in (what.seeds or size.trained_seeds)
            trained = trained and (scale == "quick" or not what.quick_only)
            name = grid.run_name({**series.changes, "seed": str(seed)})
            runs.append(
                SweepRun(
                    sweep,
                    series,
                    seed,
                    name,
                    f"{sweep}/{name}",
                    _trained_run(preset, changes, most) if trained else None,
                    _planned_run(preset, changes),
                )
            )
    return runs


def _trained_run(preset: RunConfig, changes: Changes, size: Scale) -> RunConfig:
    wanted = int(changes.get("length.rounds", preset.length.rounds))
    rounds = min(filter(None, (size.rounds, wanted)), default=0)  # 0: no limit
    return grid.change(
        preset, {**changes, **size.changes, "length.rounds": str(rounds)}
    )


def _planned_run(preset: RunConfig, changes: Changes) -> RunConfig:
    """Until the budgets end; without noise they never do."""
    endless = changes.get("privacy.noise") == "false"
    rounds = changes["length.rounds"] if endless else "0"
    return grid.change(preset, {**changes, "length.rounds": rounds})
