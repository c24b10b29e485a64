"""The runs behind the paper's figures: sweeps of settings, at two scales.

A sweep is a preset, some series (curves, or the points of one) and seeds. Schedules are
planned until the budgets end, for more seeds than are trained: they never look at
training, and cost little. The full scale is that of PROTOCOL.md; the quick scale has
fewer rounds, seeds and series, on the same images and networks.
"""

from collections.abc import Mapping
from typing import NamedTuple

from dpsparfl_jax import config_values
from dpsparfl_jax.config import RunConfig

from .. import grid, presets
from . import protocol
from .protocol import Worlds
from .protocol_sweeps import PROTOCOL_SWEEPS
from .sweep_types import Changes, Series, Sweep


class Scale(NamedTuple):
    """How much of everything; sweeps with worlds of their own need less of it."""

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


def _large_batches(noise: str, rate: str, target_s: str) -> Changes:
    """What MNIST and CIFAR-10 gain from still, and more of the gradients kept.

    Chosen in the same way: on MNIST among clip norms 1 and 3, rates from 0.4 to 1.6 and
    delay targets of 120 and 200 s, on CIFAR-10 among rates 0.3 and 0.8.
    """
    return {
        "privacy.noise_multiplier": noise,
        "training.batch_size": "256",
        "training.local_steps": "5",
        "training.clip_norm": "3",
        "training.learning_rate": rate,
        "training.rate_schedule": "cosine",
        "server.average_decay": "0.8",
        "schedule.delay_target_s": target_s,
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
SWEEPS: dict[str, Sweep] = {
    **PROTOCOL_SWEEPS,
    # More accuracy at the paper's epsilons.
    "accuracy_fashion": Sweep(
        "paper_fashion",
        _better(*_AS_IN_PAPER, _FASTER_SERVER, efficient=_EFFICIENT, best=_SCATTERING),
        whole=True,
    ),
    "accuracy_mnist": Sweep(
        "paper_mnist",
        _better(
            _PAPER_AND_AVERAGE,
            efficient=_large_batches("1.79", "0.5", "200"),
            best=_SCATTERING,
        ),
        whole=True,
    ),
    "accuracy_cifar": Sweep(
        "paper_cifar",
        _better(
            _PAPER_AND_AVERAGE,
            efficient=_large_batches("1.59", "0.8", "150"),
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
    "noise_aware": Sweep(
        "paper_fashion",
        (
            Series("noise-aware", {"schedule.noise_aware": "true"}),
            Series("not noise-aware", {"schedule.noise_aware": "false"}),
        ),
        worlds=protocol.FASHION,
    ),
    # Trained apart, where gradients are measured on the way.
    "bound": Sweep(
        "paper_fashion",
        (Series("DP-SparFL", {"schedule.policy": "dp_sparfl"}),),
        trained=False,
        worlds=protocol.GRADIENTS,
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
    runs = _own_runs(sweep, scale, base)
    for other, what in SWEEPS.items():
        if other == sweep:
            break
        if what.trained and what.preset == SWEEPS[sweep].preset:
            for run in _own_runs(other, scale, base):
                if run.trained is not None:
                    homes.setdefault(config_values.digest(run.trained), run.home)
    return [
        run._replace(home=homes.get(config_values.digest(run.trained), run.home))
        if run.trained is not None
        else run
        for run in runs
    ]


def worlds_of(sweep: str, scale: str) -> Worlds:
    """Seeds of a sweep: its own at the full scale if it has some, or the scale's."""
    own, size = SWEEPS[sweep].worlds, SCALES[scale]
    if own is not None and scale == "full":
        return own
    return Worlds(size.trained_seeds, size.planned_seeds)


def measured_rounds(length: int, scale: str) -> range:
    """After which rounds gradients of a run of that length are measured."""
    size = SCALES[scale]
    last = length if scale == "full" else min(size.rounds, length)
    return range(0, last + 1, size.measured_every)


def _own_runs(sweep: str, scale: str, base: Changes) -> list[SweepRun]:
    what, worlds = SWEEPS[sweep], worlds_of(sweep, scale)
    preset = presets.get_preset(what.preset).settings
    common = {**_common_changes(what, scale), **base}
    runs = []
    for series in what.series:
        if scale == "quick" and not series.quick:
            continue
        for seed in worlds.planned[: 1 if series.once else None]:
            changes = {**common, **series.changes, "seed": str(seed)}
            is_trained = what.trained and series.trained and seed in worlds.trained
            name = grid.run_name({**series.changes, "seed": str(seed)})
            runs.append(
                SweepRun(
                    sweep,
                    series,
                    seed,
                    name,
                    f"{sweep}/{name}",
                    _trained_run(preset, changes, what, scale) if is_trained else None,
                    _planned_run(preset, changes),
                )
            )
    return runs


def _common_changes(what: Sweep, scale: str) -> dict[str, str]:
    """Of all series. Curves are compared with each other, seed by seed."""
    clipped = {}
    if scale == "full" and what.worlds is not None:
        chosen = protocol.CHOSEN_CLIP_NORMS.get(what.preset)
        clipped = {"training.clip_norm": chosen} if chosen else {}
    quick = what.quick if scale == "quick" else {}
    return {"privacy.noise_key": "paired", **clipped, **what.changes, **quick}


def _trained_run(
    preset: RunConfig, changes: Changes, what: Sweep, scale: str
) -> RunConfig:
    """As long as planned or as the sweep says, but for scales that end earlier."""
    size, by_protocol = SCALES[scale], scale == "full" and what.worlds is not None
    most = 0 if scale == "full" and (what.whole or by_protocol) else size.rounds
    wanted = int(changes.get("length.rounds", preset.length.rounds))
    rounds = min(filter(None, (most, wanted)), default=0)  # 0: no limit
    seen = protocol.EVALUATIONS if by_protocol else size.changes
    return grid.change(preset, {**changes, **seen, "length.rounds": str(rounds)})


def _planned_run(preset: RunConfig, changes: Changes) -> RunConfig:
    """Until the budgets end; without noise they never do."""
    endless = changes.get("privacy.noise") == "false"
    rounds = changes["length.rounds"] if endless else "0"
    return grid.change(preset, {**changes, "length.rounds": rounds})
