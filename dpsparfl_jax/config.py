"""Every setting once: default, bounds, unit and help; derived values are properties.

Sections are frozen and check themselves when made. Command-line flags are generated
from them (`experiments/cli.py`); the library itself reads no flag.
"""

import dataclasses

from dpsparfl_jax import units
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.options import Section, opt


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig(Section):
    """Where images come from."""

    name: str = opt("mnist", "image set: the file <dir>/<name>.npz")
    dir: str = opt("", "folder that holds the image set")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig(Section):
    """What is trained."""

    name: str = opt("mnist_cnn", "name of a registered model", paper="Setup")


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
        "name of a registered accountant: rdp is the paper's, pld is tighter and "
        "affords more participations",
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
class WirelessConfig(Section):
    """The cell: radio, payload, and what local training costs a client."""

    num_channels: int = opt(5, "uplink channels N", low=1, paper="Setup")
    area_m: float = opt(100.0, "side of the square in metres", above=0, paper="Setup")
    geometry: str = opt(
        "points",
        "channels are points in the square, or one access point in its centre",
        choices=("points", "centre"),
        paper="Setup (points)",
    )
    min_distance_m: float = opt(1.0, "least distance that path loss sees", above=0)
    bandwidth_hz: float = opt(
        15e3, "bandwidth of one uplink channel", above=0, paper="Setup"
    )
    downlink: str = opt(
        "shared",
        "downlink bandwidth: that of all N channels, or of a single one (the paper)",
        choices=("shared", "single"),
    )
    ap_power_dbm: float = opt(23.0, "access point's power in dBm", paper="Setup")
    max_power_dbm: float = opt(30.0, "a client's largest power in dBm", paper="Setup")
    noise_dbm: float = opt(-107.0, "receiver noise power in dBm", paper="Setup")
    interference_w: float = opt(
        0.0, "interference power in W, added to the noise", low=0
    )
    fading: bool = opt(True, "Rayleigh block fading, new each round")
    shadowing_db: float = opt(
        0.0, "standard deviation of fixed log-normal shadowing in dB", low=0
    )
    value_bits: int = opt(32, "bits of one sent gradient coordinate", low=1)
    payload: str = opt(
        "mask",
        "beside the values, send the mask (one bit a coordinate) or its 64-bit seed",
        choices=("mask", "seed"),
        paper="section II (mask)",
    )
    cycles_per_sample: float = opt(
        1e7, "CPU cycles Phi of one example's gradient", above=0
    )
    cpu_low_hz: float = opt(1.2e9, "slowest CPU speed of a round", above=0)
    cpu_high_hz: float = opt(
        2.4e9, "fastest CPU speed of a round", above=0, paper="Setup"
    )
    capacitance: float = opt(1e-28, "effective CPU capacitance chi", low=0)
    local_work: str = opt(
        "batch",
        "examples a step computes: the expected batch, or the whole set (the paper)",
        choices=("batch", "dataset"),
    )

    def __post_init__(self) -> None:
        """Refuses an empty range of CPU speeds."""
        super().__post_init__()
        if self.cpu_low_hz > self.cpu_high_hz:
            raise InputError(
                f"cpu_low_hz must be at most cpu_high_hz, but is {self.cpu_low_hz:g} "
                f"against {self.cpu_high_hz:g}."
            )

    @property
    def noise_w(self) -> float:
        """Noise and interference power at a receiver, in W."""
        return float(units.dbm_to_w(self.noise_dbm)) + self.interference_w

    @property
    def ap_power_w(self) -> float:
        """The access point's power, in W."""
        return float(units.dbm_to_w(self.ap_power_dbm))

    @property
    def max_power_w(self) -> float:
        """A client's largest power, in W."""
        return float(units.dbm_to_w(self.max_power_dbm))

    @property
    def downlink_hz(self) -> float:
        """Bandwidth of the downlink."""
        channels = self.num_channels if self.downlink == "shared" else 1
        return channels * self.bandwidth_hz


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
    cache_dir: str = opt(
        "~/.cache/dpsparfl_jax", "folder of computed epsilon curves; empty keeps none"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One run: all sections and the seed that everything random derives from."""

    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    wireless: WirelessConfig = WirelessConfig()
    perf: PerfConfig = PerfConfig()
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


SECTIONS = tuple(
    field.name
    for field in dataclasses.fields(RunConfig)
    if dataclasses.is_dataclass(field.type)
)
