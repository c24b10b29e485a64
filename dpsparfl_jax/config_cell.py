"""Settings of the cell: its radio, and who sends in it. See `config.py`."""

import dataclasses

from dpsparfl_jax import units
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.options import Section, opt
from dpsparfl_jax.registry import POLICIES, SOLVERS

FAIRNESS_RULES = ("signed", "paper", "c7")  # by which fairness queues move


@dataclasses.dataclass(frozen=True, kw_only=True)
class WirelessConfig(Section):
    """The cell: radio, payload, and what local training costs a client."""

    num_channels: int = opt(5, "uplink channels N", low=1, paper="Setup")
    area_m: float = opt(
        100.0, "side of the square in metres", above=0, high=1e9, paper="Setup"
    )
    geometry: str = opt(
        "points",
        "channels are points in the square, or one access point in its centre",
        choices=("points", "centre"),
        paper="Setup (points)",
    )
    min_distance_m: float = opt(
        1.0, "least distance that path loss sees", above=0, high=1e9
    )
    bandwidth_hz: float = opt(
        15e3, "bandwidth of one uplink channel", above=0, paper="Setup"
    )
    downlink: str = opt(
        "shared",
        "downlink bandwidth: that of all N channels, or of a single one (the paper)",
        choices=("shared", "single"),
    )
    ap_power_dbm: float = opt(
        23.0, "access point's power in dBm", low=-200, high=100, paper="Setup"
    )
    max_power_dbm: float = opt(
        30.0, "a client's largest power in dBm", low=-200, high=100, paper="Setup"
    )
    noise_dbm: float = opt(
        -107.0, "receiver noise power in dBm", low=-300, high=100, paper="Setup"
    )
    interference_w: float = opt(
        0.0,
        "interference power in W, added to the noise of a client's channels",
        low=0,
        each="client or pair",
        paper="section III-A, I_ij",
    )
    downlink_gain: float = opt(
        0.0,
        "power gain of the downlink; 0 takes it from the distance",
        low=0,
        each="client",
    )
    downlink_fading: bool = opt(
        False, "Rayleigh fading of the downlink too, new each round"
    )
    fading: bool = opt(True, "Rayleigh block fading, new each round")
    shadowing_db: float = opt(
        0.0, "standard deviation of fixed log-normal shadowing in dB", low=0, high=60
    )
    gain_error_db: float = opt(
        0.0,
        "standard deviation in dB of true uplink gains around those that plans know",
        low=0,
        high=60,
    )
    outage: float = opt(
        0.0,
        "probability that nothing of an upload arrives in the time planned for it",
        low=0,
        below=1,
    )
    value_bits: int = opt(32, "bits of one sent gradient coordinate", low=1)
    payload: str = opt(
        "mask",
        "beside the values, send the mask (one bit a coordinate) or its 64-bit seed",
        choices=("mask", "seed"),
        paper="section II (mask)",
    )
    cycles_per_sample: float = opt(
        1e7, "CPU cycles Phi of one example's gradient", above=0, each="client"
    )
    cpu_low_hz: float = opt(1.2e9, "slowest CPU speed of a round", above=0)
    cpu_high_hz: float = opt(
        2.4e9, "fastest CPU speed of a round", above=0, paper="Setup"
    )
    capacitance: float = opt(
        1e-28, "effective CPU capacitance chi", low=0, each="client"
    )
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
        """Noise power at a receiver in W, without interference."""
        return float(units.dbm_to_w(self.noise_dbm))

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
class ScheduleConfig(Section):
    """Who takes part in a round, on which channel, with what keep rate and power."""

    policy: str = opt(
        "dp_sparfl", "who sends, and how", named=POLICIES, paper="section IV"
    )
    solver: str = opt(
        "joint",
        "how dp_sparfl solves a round: exactly, by fast descent, or by the paper's "
        "successive procedure (as printed, with strict pruning, or from keep_min up)",
        named=SOLVERS,
    )
    tradeoff: float = opt(
        50.0, "lambda: worth of kept gradients against queues", above=0, paper="Setup"
    )
    delay_target_s: float = opt(
        120.0, "average round delay d_avg aimed at, in s", above=0
    )
    keep_min: float = opt(0.1, "least keep rate s_th", above=0, high=1)
    keep_rate: float = opt(
        0.0,
        "fixes every keep rate, for any policy; 0 leaves it to the policy",
        low=0,
        high=1,
    )
    energy_power_w: float = opt(
        0.2,
        "energy budget of a round as a mean power over delay_target_s, in W",
        above=0,
        paper="Setup (200 mW)",
    )
    energy_budget_j: float = opt(
        0.0, "energy budget of a round in J; 0 takes it from energy_power_w", low=0
    )
    delay_unit: str = opt(
        "target",
        "unit of the delay queue: delay_target_s, or seconds (the paper)",
        choices=("target", "seconds"),
    )
    warm_start: bool = opt(
        True, "start the delay queue at its equilibrium, found in pilot rounds"
    )
    round_limit_s: float = opt(
        0.0, "longest round in s: who would take longer cannot send; 0 has none", low=0
    )
    clients: str = opt(
        "most",
        "how many send: as many as can (the paper), or those who are worth it: a "
        "channel stays idle if its client costs more than it brings",
        choices=("most", "worthwhile"),
    )
    fairness: str = opt(
        "signed",
        "fairness queue: signed, the printed one (at most beta), or that of "
        "constraint C7 (at least beta)",
        choices=FAIRNESS_RULES,
    )
    margin_db: float = opt(
        0.0, "plans take uplink gains to be smaller by this, in dB", low=0, high=200
    )
    late_probability: float = opt(
        0.0,
        "margin that makes an upload late with this probability, from gain_error_db; "
        "0 takes margin_db",
        low=0,
        below=0.5,
    )
    on_late: str = opt(
        "wait",
        "an upload that is not done by the planned end of the round: wait for it, drop "
        "it (its epsilon is spent), or send all of it again",
        choices=("wait", "drop", "retry"),
    )
    noise_aware: bool = opt(False, "count the DP noise that a keep rate adds")
    smoothness: float = opt(1.0, "noise_aware: smoothness L of the loss", above=0)
    gradient_over_clip: float = opt(
        1.0, "noise_aware: gradient norm bound G over the clip norm", above=0
    )

    def __post_init__(self) -> None:
        """Refuses a procedure that cannot leave channels idle."""
        super().__post_init__()
        if self.clients == "worthwhile" and self.solver.startswith("paper"):
            raise InputError(
                "the paper's procedure gives as many clients a channel as it can: set "
                "schedule.clients to most, or schedule.solver to joint or descent."
            )
        if self.margin_db and self.late_probability:
            raise InputError(
                "schedule.late_probability chooses the margin: leave "
                "schedule.margin_db at 0, or give the margin alone."
            )

    @property
    def energy_j(self) -> float:
        """Energy that a client may spend in a round, in J."""
        return self.energy_budget_j or self.energy_power_w * self.delay_target_s
