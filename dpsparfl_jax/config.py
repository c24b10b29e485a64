"""Every setting once: default, bounds, unit and help; derived values are properties.

Sections are frozen and check themselves when made. Command-line flags are generated
from them (`experiments/cli.py`); the library itself reads no flag.
"""

import dataclasses
from typing import Any

from dpsparfl_jax.cell_config import ScheduleConfig, WirelessConfig
from dpsparfl_jax.data_config import DataConfig
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.options import Section, opt


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig(Section):
    """What is trained."""

    name: str = opt(
        "mnist_cnn",
        "mnist_cnn, cifar_cnn, small_cnn, logistic, or a model that you registered",
        paper="Setup",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig(Section):
    """One client's local training."""

    local_steps: int = opt(60, "local steps tau of a round", low=1, paper="Setup")
    batch_size: float = opt(8.0, "expected Poisson batch size b", above=0)
    learning_rate: float = opt(0.002, "client learning rate", above=0, paper="Setup")
    optimizer: str = opt("sgd", "client optimizer", choices=("sgd", "momentum", "adam"))
    clip_norm: float = opt(1.0, "clip norm C of an unmasked gradient", above=0)
    clipping: str = opt(
        "adjusted",
        "clip at sqrt(s)*C, at C, or not at all",
        choices=("adjusted", "unadjusted", "off"),
        paper="section III",
    )
    mask: str = opt(
        "bernoulli",
        "each coordinate kept with probability s, or exactly round(s*D) of them",
        choices=("bernoulli", "fixed_count"),
        paper="section II",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyConfig(Section):
    """The Gaussian mechanism of every local step, and what clients allow it to cost."""

    noise: bool = opt(True, "add noise; off is for orientation, it is not private")
    noise_multiplier: float = opt(
        0.6, "noise standard deviation / clip bound", above=0, paper="Setup (MNIST)"
    )
    generator: str = opt(
        "threefry",
        "hash behind the noise; threefry13 is faster with fewer rounds",
        choices=("threefry", "threefry13"),
    )
    overflow_probability: float = opt(
        1e-10,
        "largest probability that one step's Poisson batch exceeds its padded size; "
        "steps times this belongs to delta",
        above=0,
        high=0.01,
    )
    delta: float = opt(
        1e-3, "delta of every client's guarantee", above=0, below=1, paper="Setup"
    )
    epsilon_lo: float = opt(
        2.0, "least epsilon that a client may ask for", above=0, paper="Setup"
    )
    epsilon_hi: float = opt(
        10.0, "largest epsilon that a client may ask for", above=0, paper="Setup"
    )
    epsilons: str = opt(
        "",
        "epsilon of each client, as in 2,5,10; empty draws them uniformly from "
        "epsilon_lo to epsilon_hi",
    )
    accountant: str = opt(
        "pld",
        "rdp is the paper's, pld is tighter and affords more participations; or an "
        "accountant that you registered",
    )
    max_participations: int = opt(
        2000, "participations after which a client retires whatever its budget", low=1
    )
    clip_calibration: str = opt(
        "none",
        "where the clip norm comes from: none keeps training.clip_norm; median is the "
        "median of clients' gradient norms (the paper's way, not private), heldout "
        "that of test images, private a noisy quantile that clients pay for",
        choices=("none", "median", "heldout", "private"),
    )
    clip_quantile: float = opt(
        0.5, "private calibration: quantile of gradient norms", above=0, below=1
    )
    clip_rounds: int = opt(40, "private calibration: rounds", low=1)
    clip_sampling_rate: float = opt(
        0.1, "private calibration: share of records sampled a round", above=0, high=1
    )
    clip_noise_multiplier: float = opt(
        20.0, "private calibration: noise standard deviation / sensitivity", above=0
    )

    def __post_init__(self) -> None:
        """Refuses an empty range of budgets."""
        super().__post_init__()
        if self.epsilon_lo > self.epsilon_hi:
            raise InputError(
                f"epsilon_lo must be at most epsilon_hi, but is {self.epsilon_lo:g} "
                f"against {self.epsilon_hi:g}."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LengthConfig(Section):
    """How long a run is."""

    rounds: int = opt(0, "rounds at most; 0 goes on until the budgets end", low=0)
    eval_every: int = opt(
        1, "rounds between evaluations on test images; the last round has one", low=1
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PerfConfig(Section):
    """Speed only: none of this moves a result beyond float rounding."""

    execution: str = opt(
        "auto",
        "how tasks are run: map on CPU, chunked elsewhere, unless set",
        choices=("auto", "map", "vmap", "chunked"),
    )
    chunk_size: int = opt(32, "tasks per chunk when chunked", low=1)
    clipping_method: str = opt(
        "ghost", "how gradients are clipped", choices=("ghost", "vmap")
    )
    padded_sizes: int = opt(
        6, "padded batch sizes compiled when tasks run one by one", low=1
    )
    eval_batch_size: int = opt(250, "test images per evaluation batch", low=1)
    devices: int = opt(0, "devices that share the tasks; 0 takes all", low=0)
    batch_memory_mb: float = opt(
        2000.0, "memory that runs batched into one program may take, in MB", above=0
    )
    checkpoint_every: int = opt(
        20, "rounds between checkpoints of a recorded run; 0 saves the last only", low=0
    )
    tensorboard: bool = opt(True, "write TensorBoard events beside the records")
    cache_dir: str = opt(
        "~/.cache/dpsparfl_jax",
        "folder of computed epsilon curves and compiled programs; empty keeps none",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One run: all sections and the seed that everything random derives from."""

    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)
    privacy: PrivacyConfig = dataclasses.field(default_factory=PrivacyConfig)
    wireless: WirelessConfig = dataclasses.field(default_factory=WirelessConfig)
    schedule: ScheduleConfig = dataclasses.field(default_factory=ScheduleConfig)
    run: LengthConfig = dataclasses.field(default_factory=LengthConfig)
    perf: PerfConfig = dataclasses.field(default_factory=PerfConfig)
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuses a seed that is not a 64-bit natural number, and unclipped noise."""
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed must be in 0..2^63-1, but is {self.seed!r}.")
        if self.privacy.noise and self.training.clipping == "off":
            raise InputError(
                "noise without clipping protects nothing: set --training.clipping to "
                "adjusted, or --privacy.noise=false."
            )
        if not self.privacy.noise and self.privacy.clip_calibration == "private":
            raise InputError(
                "a private clip norm is of no use without noise: set "
                "--privacy.noise=true or another --privacy.clip_calibration."
            )


def as_dict(settings: RunConfig) -> dict[str, Any]:
    """All settings as plain values, for a JSON file."""
    return dataclasses.asdict(settings)


def from_dict(values: dict[str, Any]) -> RunConfig:
    """The settings that `as_dict` gave; refuses unknown names and bad values."""
    base = RunConfig()
    try:
        sections = {
            name: type(getattr(base, name))(**content) if name in SECTIONS else content
            for name, content in values.items()
        }
        return RunConfig(**sections)
    except (AttributeError, TypeError) as reason:
        raise InputError(f"this is no configuration of ours ({reason}).") from None


def differences(there: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """Settings that two configurations (as dicts) do not share, a phrase each."""
    found = []
    for section in sorted({*there, *here}):
        old, new = there.get(section, {}), here.get(section, {})
        if not isinstance(old, dict):
            old, new = {"": old}, {"": new}
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                label = f"{section}.{name}" if name else section
                found.append(f"{label} was {old.get(name)!r}, is {new.get(name)!r}")
    return found


__all__ = [
    "SECTIONS",
    "DataConfig",
    "LengthConfig",
    "ModelConfig",
    "PerfConfig",
    "PrivacyConfig",
    "RunConfig",
    "ScheduleConfig",
    "TrainingConfig",
    "WirelessConfig",
    "as_dict",
    "differences",
    "from_dict",
]

SECTIONS = tuple(
    field.name
    for field in dataclasses.fields(RunConfig)
    if dataclasses.is_dataclass(field.type)
)
