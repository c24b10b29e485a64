"""Named configurations: a quick one, and one for every experiment of the paper.

`paper_*` have all values that the paper's Setup section states (defaults of `config`
that are marked so), and its noise multiplier for each image set. Where the paper is
silent the values are ours: batch size, clip norm, delay target, CPU cycles, energy. The
paper takes the median of gradient norms as clip norm; we set a public constant of that
size. `efficient_*` spend the same epsilons better: noise multiplier, batch and local
steps by `experiments.budget --advise` (batches of at most 64; on MNIST and CIFAR-10 of
at most 256, in longer rounds that keep more), clip norm and rates by validation
images, an average of models, and an end before channels idle.

A preset may have a grid: what `experiments.run` runs side by side. `dpsparfl presets`
lists all of them.
"""

import dataclasses
import math
from typing import Any, NamedTuple

from dpsparfl_jax import config
from dpsparfl_jax.errors import InputError, unknown

POLICIES = "schedule.policy=dp_sparfl,delay_min,round_robin,random"


class Preset(NamedTuple):
    """A configuration, and what is run side by side."""

    about: str
    settings: config.RunConfig
    grid: str = ""


def _paper(
    data: str, model: str, noise: float, batch: float, clip: float, target_s: float
) -> config.RunConfig:
    cycles = 1e7 if model == "mnist_cnn" else 3e7
    return config.RunConfig(
        data=config.DataConfig(name=data),
        model=config.ModelConfig(name=model),
        training=config.TrainingConfig(batch_size=batch, clip_norm=clip),
        privacy=config.PrivacyConfig(noise_multiplier=noise),
        wireless=config.WirelessConfig(cycles_per_sample=cycles),
        schedule=config.ScheduleConfig(delay_target_s=target_s),
        length=config.LengthConfig(eval_every=5),
    )


def _efficient(data: str, model: str, target_s: float) -> config.RunConfig:
    settings = _paper(data, model, 1.0, 64, 10, target_s)
    training = dataclasses.replace(
        settings.training,
        local_steps=20,
        learning_rate=0.08,
        rate_schedule="cosine",
    )
    server = dataclasses.replace(settings.server, averaging="ema", average_decay=0.8)
    length = dataclasses.replace(settings.length, least_channels=5)
    return dataclasses.replace(
        settings, training=training, server=server, length=length
    )


def _large_batches(
    data: str, model: str, noise: float, rate: float, target_s: float
) -> config.RunConfig:
    settings = _efficient(data, model, target_s)
    training = dataclasses.replace(
        settings.training,
        batch_size=256,
        local_steps=5,
        clip_norm=3,
        learning_rate=rate,
    )
    privacy = dataclasses.replace(settings.privacy, noise_multiplier=noise)
    return dataclasses.replace(settings, training=training, privacy=privacy)


def _with_partition(settings: config.RunConfig, partition: str) -> config.RunConfig:
    data = dataclasses.replace(settings.data, partition=partition)
    return dataclasses.replace(settings, data=data)


def _clipping(settings: config.RunConfig) -> config.RunConfig:
    """A fixed keep rate and random clients, so that clipping alone differs."""
    schedule = dataclasses.replace(settings.schedule, policy="random", keep_rate=0.5)
    length = dataclasses.replace(settings.length, rounds=50)
    return dataclasses.replace(settings, schedule=schedule, length=length)


_MNIST = _paper("mnist", "mnist_cnn", 0.6, 8, 20, 120.0)
_FASHION = _paper("fashion_mnist", "mnist_cnn", 0.5, 10, 20, 120.0)
_CIFAR = _paper("cifar10", "cifar_cnn", 0.4, 2, 10, 70.0)
_CLIPPING_GRID = (
    "training.clipping=adjusted,unadjusted;schedule.keep_rate=0.1,0.3,0.5,0.7,0.9"
)
_UNEQUAL_CPUS: Any = "5e5..2e6"  # cycles, drawn for each client: a range, not a float
# Clients that are unequal in what policies look at: epsilons from 2 to 10, channels
# behind walls, CPUs of other speeds. It ends before the budgets do, because policies
# that spend everything have been equally fair by then; and in so few rounds fairness
# queues need a small lambda to be heard.
_QUICKSTART = config.RunConfig(
    data=config.DataConfig(num_clients=10, test_examples=100),
    model=config.ModelConfig(name="small_cnn"),
    training=config.TrainingConfig(
        local_steps=30, batch_size=16, learning_rate=0.2, clip_norm=4.0
    ),
    wireless=config.WirelessConfig(
        num_channels=3, shadowing_db=8.0, cycles_per_sample=_UNEQUAL_CPUS
    ),
    schedule=config.ScheduleConfig(tradeoff=10.0, delay_target_s=1.0),
    length=config.LengthConfig(rounds=30),
    perf=config.PerfConfig(padded_sizes=3),
)

PRESETS: dict[str, Preset] = {
    "quickstart": Preset(
        "the four policies among unequal clients, on drawn glyphs with a small network",
        _QUICKSTART,
        POLICIES,
    ),
    "paper_mnist": Preset("the paper's Setup on MNIST", _MNIST),
    "paper_fashion": Preset("the paper's Setup on Fashion-MNIST", _FASHION),
    "paper_cifar": Preset("the paper's Setup on CIFAR-10", _CIFAR),
    "paper_fashion_noniid": Preset(
        "the paper's Setup on non-IID Fashion-MNIST (Dirichlet 0.2)",
        _with_partition(_FASHION, "dirichlet"),
    ),
    "paper_fashion_imbalanced": Preset(
        "the paper's Setup on imbalanced Fashion-MNIST (300 to 2100)",
        _with_partition(_FASHION, "imbalanced"),
    ),
    "paper_fig2_fashion": Preset(
        "Fig. 2: adjusted and unadjusted clipping, Fashion-MNIST",
        _clipping(_FASHION),
        _CLIPPING_GRID,
    ),
    "paper_fig2_cifar": Preset(
        "Fig. 2: adjusted and unadjusted clipping, CIFAR-10",
        _clipping(_CIFAR),
        _CLIPPING_GRID,
    ),
    "paper_fig3": Preset(
        "Fig. 3: lambda, Fashion-MNIST",
        _FASHION,
        "schedule.tradeoff=1,10,50,100,200",
    ),
    "paper_fig4": Preset(
        "Fig. 4: ranges of epsilon, Fashion-MNIST",
        _FASHION,
        "privacy.epsilon_hi=5,10,15,20",
    ),
    "paper_fig5_6_mnist": Preset("Figs. 5, 6: policies, MNIST", _MNIST, POLICIES),
    "paper_fig5_6_cifar": Preset("Figs. 5, 6: policies, CIFAR-10", _CIFAR, POLICIES),
    "paper_fig7": Preset(
        "Fig. 7: policies, non-IID Fashion-MNIST",
        _with_partition(_FASHION, "dirichlet"),
        POLICIES,
    ),
    "paper_fig8": Preset(
        "Fig. 8: policies, imbalanced Fashion-MNIST",
        _with_partition(_FASHION, "imbalanced"),
        POLICIES,
    ),
    "nearest_cifar": Preset(
        "CIFAR-10, noise 0.6: ours, nearest to the paper's that learns",
        _paper("cifar10", "cifar_cnn", 0.6, 16, 20, 90.0),
    ),
    "efficient_mnist": Preset(
        "MNIST, settings that spend epsilon well",
        _large_batches("mnist", "mnist_cnn", 1.79, 0.5, 200.0),
    ),
    "efficient_fashion": Preset(
        "Fashion-MNIST, settings that spend epsilon well",
        _efficient("fashion_mnist", "mnist_cnn", 120.0),
    ),
    "efficient_fashion_noniid": Preset(
        "Fashion-MNIST, non-IID, settings that spend epsilon well",
        _with_partition(_efficient("fashion_mnist", "mnist_cnn", 120.0), "dirichlet"),
    ),
    "efficient_cifar": Preset(
        "CIFAR-10, settings that spend epsilon well",
        _large_batches("cifar10", "cifar_cnn", 1.59, 0.8, 150.0),
    ),
}


def listing() -> str:
    """A line for every preset: what it is, and how many runs its grid has."""
    width = max(map(len, PRESETS)) + 2
    lines = []
    for name, preset in PRESETS.items():
        count = math.prod(axis.count(",") + 1 for axis in preset.grid.split(";"))
        runs = f" ({count} runs)" if preset.grid else ""
        lines.append(f"{name:<{width}}{preset.about}{runs}")
    return "\n".join(lines)


def get_preset(name: str) -> Preset:
    """The preset of that name."""
    if name not in PRESETS:
        raise InputError(unknown("preset", name, list(PRESETS)))
    return PRESETS[name]
