"""Every setting once: default, bounds, unit, help, and what it moves.

The sections of the cell, `wireless` and `schedule`, are in `config_cell.py`; `privacy`
and `records` are in `config_privacy.py`.

Sections are frozen and check themselves when made; derived values are properties.
Command-line flags are generated from them (`experiments/cli.py`); the library itself
reads no flag. A setting moves results unless it says `moves="rounding"` (the last
digits) or `moves="nothing"`, and `static=True` marks what compiled programs are built
around: resuming, grouping, digests and kept plans all go by these marks.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

from dpsparfl_jax.config_cell import ScheduleConfig, WirelessConfig
from dpsparfl_jax.config_privacy import PrivacyConfig, RecordsConfig
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.options import COUNTS, Section, opt
from dpsparfl_jax.registry import (
    MODELS,
    OPTIMIZERS,
    PARTITIONS,
    SPARSIFIERS,
    Registry,
)

__all__ = [
    "SECTIONS",
    "DataConfig",
    "LengthConfig",
    "ModelConfig",
    "PerfConfig",
    "PrivacyConfig",
    "RecordsConfig",
    "RunConfig",
    "ScheduleConfig",
    "ServerConfig",
    "TrainingConfig",
    "WirelessConfig",
]


SCHEDULES = ("constant", "cosine", "linear")  # of learning rates over rounds


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig(Section):
    """Where images come from, and how clients share them."""

    name: str = opt(
        "glyphs",
        "image set: glyphs is drawn on the spot; mnist, fashion_mnist, cifar10 or any "
        "other is looked for in dir, then in TensorFlow Datasets",
    )
    dir: str = opt(
        "",
        "folder with <name>.npz, as Keras has it, or with the four original idx files",
        moves="nothing",
    )
    tfds_dir: str = opt(
        "",
        "folder of TensorFlow Datasets; empty is ~/tensorflow_datasets",
        moves="nothing",
    )
    glyphs_seed: int = opt(0, "which set of glyphs is drawn", low=0)
    features: str = opt(
        "pixels",
        "what models see of an image: its pixels, or scattering coefficients (fixed "
        "wavelets, which cost no privacy)",
        choices=("pixels", "scattering"),
    )
    partition: str = opt(
        "iid",
        "how clients share the images: at random, by class with Dirichlet weights, in "
        "groups of different sizes, or as partition_file lists them",
        named=PARTITIONS,
        paper="Setup",
    )
    num_clients: int = opt(20, "clients U", low=1, paper="Setup")
    train_examples: int = opt(1000, "training images of a client", low=1, paper="Setup")
    test_examples: int = opt(500, "test images of a client", low=1, paper="Setup")
    dirichlet_alpha: float = opt(
        0.2, "dirichlet: concentration; small is skewed", above=0, paper="Setup"
    )
    group_sizes: str = opt(
        "300,600,1800,2100",
        "imbalanced: training images of a client of each group; groups have equally "
        "many clients",
        form=COUNTS,
        paper="Setup",
    )
    partition_file: str = opt(
        "",
        'file: a JSON file {"train": [[image numbers of client 0], ...], "test": ...}',
    )

    def __post_init__(self) -> None:
        """Refuses a partition file that would not be read, or that is missing."""
        super().__post_init__()
        if (self.partition == "file") != bool(self.partition_file):
            raise InputError(
                "partition=file needs partition_file, and partition_file needs "
                "partition=file: give both or neither."
            )

    @property
    def image_set(self) -> tuple[object, ...]:
        """What says which images are read: equal for runs that can share them."""
        named = self.name, self.dir, self.tfds_dir, self.glyphs_seed, self.features
        if self.name != "glyphs":
            return named
        # As many are drawn as the clients need.
        sizes = self.train_examples, self.test_examples, self.group_sizes
        return *named, self.partition, self.partition_file, self.num_clients, *sizes


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig(Section):
    """What is trained."""

    name: str = opt(
        "mnist_cnn", "the network", named=MODELS, static=True, paper="Setup"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig(Section):
    """One client's local training."""

    local_steps: int = opt(
        60, "local steps tau of a round", low=1, static=True, paper="Setup"
    )
    batch_size: float = opt(8.0, "expected Poisson batch size b", above=0)
    learning_rate: float = opt(0.002, "client learning rate", above=0, paper="Setup")
    rate_schedule: str = opt(
        "constant",
        "how the client learning rate falls over the planned rounds",
        choices=SCHEDULES,
    )
    rate_end: float = opt(
        0.1, "cosine, linear: share of the rate in the last round", above=0, high=1
    )
    optimizer: str = opt("sgd", "client optimizer", named=OPTIMIZERS, static=True)
    momentum: float = opt(0.9, "momentum of the client optimizer", low=0, below=1)
    optimizer_state: str = opt(
        "reset",
        "what a client's optimizer remembers when its client takes part again: "
        "nothing, or all (a copy of the model for each client)",
        choices=("reset", "kept"),
        static=True,
    )
    clip_norm: float = opt(1.0, "clip norm C of an unmasked gradient", above=0)
    clipping: str = opt(
        "adjusted",
        "clip at sqrt(s)*C, at C, or not at all",
        choices=("adjusted", "unadjusted", "off"),
        paper="section III",
    )
    sparsifier: str = opt(
        "bernoulli",
        "which coordinates are kept: each with probability s, exactly round(s*D) of "
        "them, or whole output units of layers with probability s",
        named=SPARSIFIERS,
        static=True,
        paper="section II",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerConfig(Section):
    """What the server does with the mean update of a round."""

    optimizer: str = opt(
        "plain",
        "server optimizer, fed with the negative mean update; plain adds the update",
        named=OPTIMIZERS,
        static=True,
        paper="section II (plain)",
    )
    learning_rate: float = opt(
        1.0, "server learning rate of all optimizers but plain", above=0
    )
    rate_schedule: str = opt(
        "constant",
        "how the server learning rate falls over the planned rounds",
        choices=SCHEDULES,
    )
    rate_end: float = opt(
        0.1, "cosine, linear: share of the rate in the last round", above=0, high=1
    )
    momentum: float = opt(0.9, "momentum of the server optimizer", low=0, below=1)
    averaging: str = opt(
        "none",
        "average of the server's models, evaluated beside the last one: ema weighs "
        "recent models more, tail is the mean of the models of the last rounds",
        choices=("none", "ema", "tail"),
    )
    average_decay: float = opt(
        0.9, "ema: share of the average that a round keeps", low=0, below=1
    )
    average_share: float = opt(
        0.5, "tail: share of the planned rounds, the last ones", above=0, high=1
    )
    weights: str = opt(
        "records",
        "what an update weighs: its client's records, or the inverse variance of the "
        "noise on a coordinate that it kept",
        choices=("records", "inverse_noise"),
        paper="section II (records)",
    )
    divide_by: str = opt(
        "arrived",
        "total weight that sums of updates are divided by: of those that arrived, or "
        "the most that is planned for a round, so that rounds with few clients count "
        "less",
        choices=("arrived", "planned"),
        paper="section II (arrived)",
    )
    rescale: bool = opt(
        False,
        "divide each update by its keep rate: unbiased, but noisier",
    )

    def __post_init__(self) -> None:
        """Refuses a rate that would be ignored."""
        super().__post_init__()
        if self.optimizer == "plain" and self.learning_rate != 1.0:
            raise InputError(
                "learning_rate has no effect on plain addition: choose sgd, momentum "
                "or adam as server.optimizer."
            )
        if self.optimizer == "plain" and self.rate_schedule != "constant":
            raise InputError(
                "rate_schedule has no effect on plain addition: choose sgd, momentum "
                "or adam as server.optimizer."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LengthConfig(Section):
    """How long a run is."""

    rounds: int = opt(0, "rounds at most; 0 goes on until the budgets end", low=0)
    least_channels: int = opt(
        0,
        "the run ends with the last round in which at least so many clients send; 0 "
        "goes on",
        low=0,
    )
    least_live: float = opt(
        0.0,
        "the run ends with the last round before which at least this share of the "
        "clients is live; 0 goes on",
        low=0,
        high=1,
    )
    eval_every: int = opt(
        1, "rounds between evaluations; the last round has one", low=1
    )
    eval_on: str = opt(
        "test",
        "images that models are judged by: test images, or training images that no "
        "client owns, for choices that test images must not see",
        choices=("test", "validation"),
    )
    diverged_rounds: int = opt(
        5,
        "training ends after so many rounds in a row in which all updates have "
        "diverged and were dropped; 0 goes on",
        low=0,
        moves="nothing",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PerfConfig(Section):
    """Speed only: none of this moves a result beyond float rounding."""

    execution: str = opt(
        "auto",
        "how tasks are run: map on CPU, chunked elsewhere, unless set",
        choices=("auto", "map", "vmap", "chunked"),
        moves="rounding",
        static=True,
    )
    chunk_size: int = opt(
        32, "tasks per chunk when chunked", low=1, moves="rounding", static=True
    )
    ordered_sums: bool = opt(
        False,
        "add the updates of chunks one by one in the order of tasks, so that sums do "
        "not depend on the number of devices; tasks that are run by map always are",
        moves="rounding",
        static=True,
    )
    clipping_method: str = opt(
        "ghost",
        "how gradients are clipped",
        choices=("ghost", "vmap"),
        moves="rounding",
        static=True,
    )
    kernels: str = opt(
        "auto",
        "whose kernels convolve on a CPU: our own where they were built and the "
        "processor has AVX2 or AVX-512, or XLA's",
        choices=("auto", "xla"),
        moves="rounding",
        static=True,
    )
    padded_sizes: int = opt(
        8,
        "padded batch sizes compiled when tasks run one by one",
        low=1,
        moves="rounding",
    )
    microbatch: int = opt(
        0,
        "examples whose gradients are in memory at once; 0 takes a whole batch",
        low=0,
        moves="rounding",
        static=True,
    )
    images: str = opt(
        "auto",
        "where clients' images are while a run trains: all on the devices (resident), "
        "or those of the coming rounds (streamed); auto takes what fits",
        choices=("auto", "resident", "streamed"),
        moves="nothing",
    )
    eval_batch_size: int = opt(
        250, "test images per evaluation batch", low=1, moves="rounding", static=True
    )
    devices: int = opt(
        0,
        "devices of each process that share the tasks; 0 takes all (a CPU has one a "
        "core)",
        low=0,
        moves="rounding",
    )
    batch_memory_mb: float = opt(
        2000.0,
        "memory that runs batched into one program may take, in MB",
        above=0,
        moves="nothing",
    )
    checkpoint_every: int = opt(
        20,
        "rounds between checkpoints of a recorded run; 0 saves the last only",
        low=0,
        moves="nothing",
    )
    tensorboard: bool = opt(
        True, "write TensorBoard events beside the records", moves="nothing"
    )
    cache_dir: str = opt(
        "~/.cache/dpsparfl_jax",
        "folder of computed epsilon curves, features and compiled programs; empty "
        "keeps none",
        moves="nothing",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One run: all sections, and the seed that everything random derives from.

    Examples:
        >>> from dpsparfl_jax import ModelConfig, RunConfig, WirelessConfig
        >>> settings = RunConfig(
        ...     model=ModelConfig(name="small_cnn"),
        ...     wireless=WirelessConfig(num_channels=3),
        ...     seed=1,
        ... )
        >>> settings.wireless.num_channels
        3
    """

    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)
    privacy: PrivacyConfig = dataclasses.field(default_factory=PrivacyConfig)
    server: ServerConfig = dataclasses.field(default_factory=ServerConfig)
    wireless: WirelessConfig = dataclasses.field(default_factory=WirelessConfig)
    schedule: ScheduleConfig = dataclasses.field(default_factory=ScheduleConfig)
    length: LengthConfig = dataclasses.field(default_factory=LengthConfig)
    records: RecordsConfig = dataclasses.field(default_factory=RecordsConfig)
    perf: PerfConfig = dataclasses.field(default_factory=PerfConfig)
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuses what is no section, a seed that is none, and unclipped noise."""
        for field in dataclasses.fields(self):
            kind: Any = field.type
            if type(value := getattr(self, field.name)) is not kind:
                words = f"of type {kind.__name__}, but is {value!r}."
                raise InputError(f"{field.name} must be {words}")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed must be in 0..2^63-1, but is {self.seed!r}.")
        if self.training.optimizer == "plain":
            raise InputError(
                "plain addition is for the server: choose another optimizer."
            )
        if self.privacy.noise and self.training.clipping == "off":
            raise InputError(
                "noise without clipping protects nothing: set training.clipping to "
                "adjusted, or privacy.noise to false."
            )
        if not self.privacy.noise and self.server.weights == "inverse_noise":
            raise InputError(
                "weights by inverse noise need noise: set server.weights to records, "
                "or privacy.noise to true."
            )
        if not self.privacy.noise and self.privacy.clip_calibration == "private":
            raise InputError(
                "a private clip norm is of no use without noise: set privacy.noise to "
                "true, or choose another privacy.clip_calibration."
            )

    def check_names(self) -> None:
        """Refuses names that nobody has registered; loads nothing.

        Not part of making the settings: those of a recorded run can be read where its
        policy or model is not at hand.
        """
        for registry, name in self.named():
            registry.check(name)

    def named(self) -> Iterator[tuple[Registry[str], str]]:
        """What goes by a name in the settings: its registry, and the name."""
        for section in SECTIONS:
            values = getattr(self, section)
            for field in dataclasses.fields(values):
                if field.metadata["named"] is not None:
                    yield field.metadata["named"], getattr(values, field.name)


SECTIONS = tuple(
    field.name
    for field in dataclasses.fields(RunConfig)
    if dataclasses.is_dataclass(field.type)
)
