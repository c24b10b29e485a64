"""One round's allocation problem, and what solves it, as plain values.

Minimise over matchings of clients to channels, keep rates s and powers P
    V = sum over selected of [ w_i - r_i g_i(s_i) ] + q max over selected of delay
with delay = c_i + bits(s_i) / rate(P), energy P * airtime <= E_i, P <= P_max,
s_min <= s_i <= s_max_i, each client and channel used at most once, and as many clients
as any feasible matching has (or as many as are worth it, if channels may stay idle).
g_i(s) = s - k_i s^2 / 2 is the paper's s for k_i = 0.
Paper: problem P2.  Departs: BUILD_NOTES "per-round problem".
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.errors import InputError

Array = NDArray[np.float64]


class RoundProblem(NamedTuple):
    """Everything that one round's decision depends on.

    Shapes: U clients (of a policy's observation: the live ones), N channels; float64.
    `check_problem` refuses numbers that have no meaning.

    Examples:
        Two clients with the same queues and one channel; the second hears better:

        >>> import numpy as np
        >>> from dpsparfl_jax.scheduling.joint import solve_joint
        >>> from dpsparfl_jax.scheduling.problem import RoundProblem
        >>> problem = RoundProblem(
        ...     weight=np.zeros(2), reward=np.full(2, 50.0), curvature=np.zeros(2),
        ...     delay_price=0.3, base_delay_s=np.full(2, 10.0),
        ...     snr_per_w=np.array([[1e4], [1e6]]), energy_j=np.full(2, 24.0),
        ...     max_power_w=1.0, bandwidth_hz=15e3,
        ...     bits_fixed=1e6, bits_per_rate=32e6,
        ...     keep_min=0.1, keep_max=np.ones(2),
        ... )
        >>> best = solve_joint(problem)
        >>> best.client, best.keep_rate
        (array([1]), array([1.]))
    """

    weight: Array  # [U] w: cost of selecting a client (its fairness queue)
    reward: Array  # [U] r: lambda p_i, what keeping everything is worth
    curvature: Array  # [U] k: how fast noise eats the reward; 0 is the paper's
    delay_price: float  # q: the delay queue, per second
    base_delay_s: Array  # [U] c: downlink and local training
    snr_per_w: Array  # [U, N] gain over noise; 0 forbids an edge
    energy_j: Array  # [U] E: left for sending; <= 0 forbids a client
    max_power_w: float
    bandwidth_hz: float
    bits_fixed: float  # n0: sent whatever is kept
    bits_per_rate: float  # n1: bits = n0 + n1 s
    keep_min: float
    keep_max: Array  # [U]
    full_keep: float = 1.0  # what is sent by those who do not choose a keep rate
    latest_s: float = np.inf  # no client may take longer
    may_idle: bool = False  # whether clients who cost more than they bring stay out

    @property
    def num_clients(self) -> int:
        """U."""
        return self.snr_per_w.shape[0]

    @property
    def num_channels(self) -> int:
        """N."""
        return self.snr_per_w.shape[1]


PER_CLIENT = (  # the fields with a row a client
    *("weight", "reward", "curvature", "base_delay_s"),
    *("snr_per_w", "energy_j", "keep_max"),
)


def take_clients(problem: RoundProblem, rows: NDArray[np.intp]) -> RoundProblem:
    """The same round with some of its clients only."""
    return problem._replace(
        **{name: getattr(problem, name)[rows] for name in PER_CLIENT}
    )


class Allocation(NamedTuple):
    """A decision: K clients on K channels. All arrays are [K], in order of channels.

    `client` are rows of the problem that was solved. The delay of the round is the
    largest of `delay_s`. A policy that has no value or bound to tell gives nan and
    -inf; the value is then found for it, with the weights of those it chose.

    Examples:
        >>> import numpy as np
        >>> from dpsparfl_jax.scheduling.problem import Allocation, empty_allocation
        >>> chosen = Allocation(
        ...     client=np.array([3]), channel=np.array([0]), keep_rate=np.array([0.5]),
        ...     power_w=np.array([0.2]), delay_s=np.array([80.0]),
        ...     value=np.nan, lower_bound=-np.inf, nodes=0,
        ... )
        >>> chosen.delay_s.max()
        np.float64(80.0)
        >>> empty_allocation().client.size
        0
    """

    client: NDArray[np.intp]
    channel: NDArray[np.intp]
    keep_rate: Array
    power_w: Array
    delay_s: Array  # of each client, base delay included
    value: float  # V; 0 for an empty one
    lower_bound: float  # certified: no allocation has a smaller V; -inf if unknown
    nodes: int  # intervals that the search looked at


def check_problem(problem: RoundProblem) -> None:
    """Refuses numbers that have no meaning."""
    per_client = [getattr(problem, name) for name in PER_CLIENT if name != "snr_per_w"]
    if any(values.shape != (problem.num_clients,) for values in per_client):
        raise InputError("a round problem needs one number a client in every column.")
    finite = [np.isfinite(values).all() for values in per_client]
    if not all(finite) or not np.all(problem.snr_per_w >= 0):
        raise InputError("gains must be at least 0, and no number nan or infinite.")
    if not np.all(np.isfinite(problem.snr_per_w)):
        raise InputError("gains must be finite.")
    if problem.max_power_w <= 0 or problem.bandwidth_hz <= 0:
        raise InputError("the largest power and the bandwidth must be positive.")
    if problem.delay_price < 0 or np.any(problem.reward < 0):
        raise InputError("rewards and the price of delay must not be negative.")
    if np.any(problem.curvature < 0) or np.any(
        problem.curvature * problem.keep_max > 1 + 1e-12
    ):
        raise InputError(
            "rewards must grow with the keep rate up to its largest value."
        )
    rates = (problem.keep_min > 0) & (problem.keep_max >= problem.keep_min)
    if not np.all(rates & (problem.keep_max <= 1)):
        raise InputError("keep rates must satisfy 0 < least <= largest <= 1.")
    if problem.bits_per_rate <= 0 or problem.bits_fixed < 0:
        raise InputError("payload bits must be positive.")
    if not problem.latest_s > 0:
        raise InputError("the longest delay of a round must be positive.")


def empty_allocation() -> Allocation:
    """Nobody sends."""
    none, nothing = np.zeros(0, np.intp), np.zeros(0)
    return Allocation(none, none, nothing, nothing, nothing, 0.0, 0.0, 0)


def reward_of(
    problem: RoundProblem, keep_rate: Array, client: NDArray[np.intp]
) -> Array:
    """What these clients' keep rates are worth, r g(s)."""
    curved = keep_rate - problem.curvature[client] * keep_rate**2 / 2
    return problem.reward[client] * curved


def value_of(
    problem: RoundProblem, client: NDArray[np.intp], keep_rate: Array, delay_s: Array
) -> float:
    """V of an allocation; 0 for an empty one."""
    if client.size == 0:
        return 0.0
    gained = reward_of(problem, keep_rate, client)
    cost = np.sum(problem.weight[client] - gained)
    return float(cost + problem.delay_price * np.max(delay_s))
