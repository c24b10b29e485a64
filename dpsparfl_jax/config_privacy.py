"""Settings of privacy, and of what records may tell. See `config.py`."""

import dataclasses

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.options import EPSILONS, Section, opt
from dpsparfl_jax.registry import ACCOUNTANTS


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyConfig(Section):
    """The Gaussian mechanism of every local step, and what clients allow it to cost."""

    noise: bool = opt(True, "add noise; off is for orientation, it is not private")
    noise_multiplier: float = opt(
        0.6,
        "noise standard deviation / clip bound",
        above=0,
        each="client",
        paper="Setup (MNIST)",
    )
    generator: str = opt(
        "threefry",
        "hash behind the noise; threefry13 is faster with fewer rounds",
        choices=("threefry", "threefry13"),
        static=True,
    )
    noise_key: str = opt(
        "own",
        "what masks, batches and noise of a run depend on beside its seed: on all its "
        "settings (own), or on nothing (paired: runs of one seed then share noise, "
        "which is good for comparisons, and of which only one may be released)",
        choices=("own", "paired"),
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
        form=EPSILONS,
    )
    accountant: str = opt(
        "pld",
        "rdp is the paper's, pld is tighter and affords more participations",
        named=ACCOUNTANTS,
    )
    max_participations: int = opt(
        2000, "participations after which a client retires whatever its budget", low=1
    )
    most_mechanisms: int = opt(
        64,
        "mechanisms (sampling rates, noise) that are accounted for one by one; where "
        "clients have more, their sampling rates are rounded up to so many, so that "
        "nobody is charged too little",
        low=1,
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
class RecordsConfig(Section):
    """What is written down about a run."""

    private_only: bool = opt(
        False,
        "leave out what is measured on clients' raw records and no epsilon covers: "
        "training loss, gradient norms, label counts",
        moves="nothing",
    )
