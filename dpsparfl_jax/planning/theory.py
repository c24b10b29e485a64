"""What theory says of a run: convergence bound, best keep rate, delay and queues.

The bound is the paper's Theorem 1 with its errors corrected (BUILD_NOTES "convergence
bound"): for eta L tau <= (sqrt 7 - 1) / 3,
    mean ||grad F||^2 <= 2 (F_0 - F*) / (eta tau T) + 3 e + 3 G^2 mean sum p_i (1 - s_i)
                         + eta L Theta mean sum [ p_i^2 s_i^2 + 1.5 x p_i s_i^2 ]
with x = eta L tau, e the divergence of clients' gradients, and s^2 Theta, Theta = D
(sigma C / b)^2, the energy of one step's noise on D coordinates at keep rate s.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsparfl_jax.client_values import client_values
from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning.schedule import Schedule

Array = NDArray[np.float64]
LARGEST_STEP = (np.sqrt(7) - 1) / 3  # of eta L tau, for the bound to hold


class BoundTerms(NamedTuple):
    """The terms of the convergence bound; their sum is the bound."""

    start: float  # 2 (F_0 - F*) / (eta tau T)
    divergence: float  # 3 e
    sparsification: float  # 3 G^2 mean sum p (1 - s)
    noise: float  # the DP noise
    holds: bool  # whether the step size is small enough for the bound

    @property
    def total(self) -> float:
        """The bound on the mean squared gradient norm."""
        return self.start + self.divergence + self.sparsification + self.noise


def noise_energy(settings: RunConfig, num_parameters: int, num_clients: int) -> Array:
    """Theta [U]: squared norm of one step's noise at keep rate 1, D (sigma C / b)^2."""
    privacy, training = settings.privacy, settings.training
    if not privacy.noise:
        return np.zeros(num_clients)
    noise = client_values(privacy, "noise_multiplier", settings.seed, num_clients)
    return num_parameters * (noise * training.clip_norm / training.batch_size) ** 2


def best_keep_rate(settings: RunConfig, theta: Array, weight: float) -> Array:
    """Keep rates that balance sparsification against noise `theta`; may exceed 1.

    Each minimises 3 G^2 (1 - s) + eta L Theta (p + 1.5 x) s^2 over s.
    """
    training, schedule = settings.training, settings.schedule
    step = training.learning_rate * schedule.smoothness
    x = step * training.local_steps
    squared = (schedule.gradient_over_clip * training.clip_norm) ** 2
    with np.errstate(divide="ignore"):
        return 3 * squared / (2 * step * theta * (weight + 1.5 * x))


def convergence_terms(
    settings: RunConfig,
    schedule: Schedule,
    sizes: ArrayLike,
    num_parameters: int,
    *,
    loss_gap: float,
    divergence: float,
    gradient_bound: float,
) -> BoundTerms:
    """The bound of a schedule; constants are measured or guessed by the caller."""
    _require_rounds(schedule)
    if not schedule.arrived.any():
        raise InputError(
            "nothing arrives in this schedule: there is no convergence bound."
        )
    training, step_l = settings.training, settings.schedule.smoothness
    eta, tau = training.learning_rate, training.local_steps
    x = eta * step_l * tau
    used = schedule.arrived.any(axis=1)
    counts = np.where(schedule.arrived, np.asarray(sizes)[schedule.client], 0)[used]
    p = counts / np.sum(counts, axis=1, keepdims=True)
    keep = schedule.keep_rate[used]
    theta = noise_energy(settings, num_parameters, len(schedule.budget))
    theta = np.where(schedule.arrived, theta[schedule.client], 0.0)[used]
    noise = np.sum((p**2 * keep**2 + 1.5 * x * p * keep**2) * theta, axis=1)
    return BoundTerms(
        2 * loss_gap / (eta * tau * len(p)),
        3 * divergence,
        3 * gradient_bound**2 * float(np.mean(np.sum(p * (1 - keep), axis=1))),
        eta * step_l * float(np.mean(noise)),
        bool(x <= LARGEST_STEP),
    )


class DelayLaw(NamedTuple):
    """The delay queue bounds the mean delay of a finite run."""

    mean_delay_s: float
    bound_s: float  # d_avg + unit (Q_T - Q_0) / T


def delay_law(settings: RunConfig, schedule: Schedule) -> DelayLaw:
    """The law: equality holds if the queue never was cut at 0."""
    _require_rounds(schedule)
    target = settings.schedule.delay_target_s
    unit = target if settings.schedule.delay_unit == "target" else 1.0
    growth = float(schedule.last_delay_queue) - schedule.delay_queue[0]
    mean = float(np.mean(schedule.round_delay_s))
    return DelayLaw(mean, target + unit * growth / schedule.num_rounds)


class QueueStatistics(NamedTuple):
    """Are queues stable? Means over the run's second half against its first."""

    delay_first_half: float
    delay_second_half: float
    fairness_first_half: float  # mean over clients of |Q|
    fairness_second_half: float


def queue_statistics(schedule: Schedule) -> QueueStatistics:
    """Means of the queues over both halves of a run."""
    _require_rounds(schedule, 2)
    half = schedule.num_rounds // 2
    states = schedule.client_states()
    fairness = [np.mean(np.abs(state.fairness_queue)) for state in states]
    return QueueStatistics(
        float(np.mean(schedule.delay_queue[:half])),
        float(np.mean(schedule.delay_queue[half:])),
        float(np.mean(fairness[:half])),
        float(np.mean(fairness[half:])),
    )


class QueueBounds(NamedTuple):
    """The paper's Theorem 3 for one schedule, as numbers: queues and their bounds.

    G = ||Q||^2 / 2 over all queues. Whatever is decided, a round changes it by at most
        b_t + sum over queues of Q_t times its increment,
    with b_t half the sum of the squared increments. A policy that minimises drift plus
    penalty makes the second part, in the mean, no larger than lambda times the range of
    the mean keep rate, if some stationary policy meets all constraints (and channels
    are not left idle by choice); hence
        E ||Q_t||^2 <= ||Q_0||^2 + 2 sum over earlier rounds of (b + lambda (1 - s_th)).
    Departs: BUILD_NOTES "queue bound" (queues are mean rate stable, not strongly).
    """

    drift: Array  # [T - 1] change of G in every round but the last
    drift_bound: Array  # [T - 1] holds for every single round
    norm: Array  # [T] ||Q_t|| before round t
    norm_bound: Array  # [T] holds in the mean
    fairness_gap: Array  # [T] largest |share of rounds so far - beta|; nan before any
    fairness_bound: Array  # [T] of that gap: norm_bound / t, for signed queues
    delay_excess_s: Array  # [T] mean delay so far above the target; nan before any
    delay_bound_s: Array  # [T] of that excess: unit * norm_bound / t


def queue_bounds(settings: RunConfig, schedule: Schedule) -> QueueBounds:
    """Theorem 3's quantities along a schedule, beside what they bound."""
    _require_rounds(schedule, 2)
    plan = settings.schedule
    unit = plan.delay_target_s if plan.delay_unit == "target" else 1.0
    sign = -1.0 if plan.fairness == "c7" else 1.0
    late = (schedule.round_delay_s - plan.delay_target_s) / unit
    surplus_squares, cross, squares, gap = np.zeros((4, schedule.num_rounds))
    for t, state in enumerate(schedule.client_states()):
        surplus = sign * ((state.after - state.before) - schedule.rate)
        surplus_squares[t] = np.sum(surplus**2)
        cross[t] = np.sum(state.fairness_queue * surplus)
        squares[t] = np.sum(state.fairness_queue**2)
        share = state.before / t if t else np.nan
        gap[t] = np.max(np.abs(share - schedule.rate))
    half_squares = (surplus_squares + late**2) / 2
    cross = cross + schedule.delay_queue * late
    squares = squares + schedule.delay_queue**2
    grown = half_squares + plan.tradeoff * (1 - plan.keep_min)
    bound = np.sqrt(squares[0] + 2 * np.append(0.0, np.cumsum(grown)[:-1]))
    before = np.arange(schedule.num_rounds)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (np.cumsum(schedule.round_delay_s) - schedule.round_delay_s) / before
        per_round = bound / before
    return QueueBounds(
        np.diff(squares) / 2,
        (half_squares + cross)[:-1],
        np.sqrt(squares),
        bound,
        gap,
        per_round,
        mean - plan.delay_target_s,
        unit * per_round,
    )


def _require_rounds(schedule: Schedule, least: int = 1) -> None:
    if schedule.num_rounds < least:
        raise InputError(
            f"theory needs a schedule of at least {least} rounds, but this one has "
            f"{schedule.num_rounds} ({schedule.reason})."
        )
