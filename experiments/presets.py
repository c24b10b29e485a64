"""Named configurations of the paper's experiments.

`paper_*` have the paper's stated values; where it is silent (batch size, clip norm,
delay target, CPU cycles, energy), ours. `efficient_*` have a noise multiplier of 1 and
larger batches: about the same epsilon and number of rounds with less noise.
"""

import dataclasses

import numpy as np

from dpsparfl_jax import config
from dpsparfl_jax.errors import InputError

NUM_PARAMETERS = {"mnist_cnn": 1_663_370, "cifar_cnn": 930_826}
CLIENTS, EXAMPLES = 20, 1000
UNEQUAL_SIZES = np.repeat([300, 600, 1800, 2100], 5)


def model_size(name: str) -> int:
    """Parameters of a model, known without making it."""
    if name not in NUM_PARAMETERS:
        raise InputError(
            f"the number of parameters of {name!r} is not known here: choose one of "
            f"{', '.join(NUM_PARAMETERS)}."
        )
    return NUM_PARAMETERS[name]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preset:
    """A configuration and the sizes of its clients."""

    settings: config.RunConfig
    sizes: tuple[int, ...] = (EXAMPLES,) * CLIENTS

    @property
    def num_parameters(self) -> int:
        """Of the preset's model."""
        return model_size(self.settings.model.name)


def _preset(
    data: str, model: str, noise: float, batch: float, target_s: float
) -> Preset:
    cycles = 1e7 if model == "mnist_cnn" else 3e7
    return Preset(
        settings=config.RunConfig(
            data=config.DataConfig(name=data),
            model=config.ModelConfig(name=model),
            training=config.TrainingConfig(batch_size=batch),
            privacy=config.PrivacyConfig(noise_multiplier=noise),
            wireless=config.WirelessConfig(cycles_per_sample=cycles),
            schedule=config.ScheduleConfig(delay_target_s=target_s),
        )
    )


_MNIST = _preset("mnist", "mnist_cnn", 0.6, 8, 120.0)
_FASHION = _preset("fashion_mnist", "mnist_cnn", 0.5, 4, 120.0)
PRESETS: dict[str, Preset] = {
    "paper_mnist": _MNIST,
    "paper_fashion": _FASHION,
    "paper_fashion_imbalanced": dataclasses.replace(
        _FASHION, sizes=tuple(int(size) for size in UNEQUAL_SIZES)
    ),
    "paper_cifar": _preset("cifar10", "cifar_cnn", 0.4, 2, 70.0),
    "efficient_mnist": _preset("mnist", "mnist_cnn", 1.0, 24, 120.0),
    "efficient_fashion": _preset("fashion_mnist", "mnist_cnn", 1.0, 24, 120.0),
    "efficient_cifar": _preset("cifar10", "cifar_cnn", 1.0, 32, 110.0),
}


def get_preset(name: str) -> Preset:
    """The preset of that name."""
    if name not in PRESETS:
        raise InputError(
            f"unknown preset {name!r}: choose one of {', '.join(PRESETS)}."
        )
    return PRESETS[name]
