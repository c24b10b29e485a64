"""Privacy-loss accounting: tighter than Renyi's, so more rounds for the same epsilon.

dp-accounting says what one step's privacy loss is; its distribution on a grid of losses
is the pessimistic one of Doroshenko et al. 2022 ("connect the dots": exact delta at
every grid point, never below in between). Composing steps is a convolution power, which
is taken here for several numbers of participations at once; dp-accounting composes one
number at a time, which is why it is not asked for whole curves.
"""

import functools
import importlib.metadata
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft, signal, special

from dpsparfl_jax.privacy.mechanism import Mechanism, Release
from dpsparfl_jax.registry import ACCOUNTANTS

Losses = NDArray[np.float64]
_DIRECTIONS = ("REMOVE", "ADD")  # of the neighbouring relation
_TILTS = np.geomspace(1e-2, 1e4, 80)  # at which Chernoff's bound is tried
_TAIL = 1e-15  # probability outside the window of a composition; counted as infinite
_ROUNDING = 2.0**-52  # a step: rounding of its spectrum, grows with its power; likewise
_LARGEST_STEP = 2**17  # grid points of one step: beyond it the grid is made coarser
_POINTS_PER_STD = 4  # of one step's loss: below it the grid is made finer
_LARGEST_WINDOW = 2**22  # grid points of a composition: beyond it epsilon is infinite
_ROWS = 8  # numbers of participations composed at once


class _StepLoss(NamedTuple):
    """One step's privacy loss on the grid, in one direction."""

    lowest: int  # first loss, in grid steps
    probability: Losses
    infinite: float
    log_moments_up: NDArray[np.float64]  # log E[exp(tilt * loss)] of the finite losses
    log_moments_down: NDArray[np.float64]  # log E[exp(-tilt * loss)]


class _Power(NamedTuple):
    """A step that is composed so many times, for each row of a chunk."""

    step: _StepLoss
    times: NDArray[np.int64]


@ACCOUNTANTS.register("pld")
class PldAccountant:
    """Composes privacy-loss distributions and converts them."""

    name = "pld"

    def __init__(self, interval: float = 1e-3) -> None:
        """Losses are multiples of `interval`, finer or coarser where they must be."""
        self.interval = interval

    @property
    def version(self) -> str:
        """Changes whenever the same input may give another number."""
        library = importlib.metadata.version("dp-accounting")
        return f"2 {self.interval!r} dp-accounting {library}"

    def interval_for(self, mechanism: Mechanism) -> float:
        """The grid of losses: half or double the nominal one as often as is needed.

        Fine enough to resolve the smallest losses, or composing millions of tiny ones
        would round each up; then coarse enough for the largest to fit.
        """
        releases = [mechanism.participation, mechanism.setup or mechanism.participation]
        interval = self.interval
        while interval * _POINTS_PER_STD > min(_loss_std(each) for each in releases):
            interval /= 2
        return max(_coarse_enough(each, interval) for each in releases)

    def epsilon(
        self, mechanism: Mechanism, participations: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Epsilon after each of these numbers of participations."""
        releases = [mechanism.participation]
        counts = [participations * mechanism.participation.count]
        if mechanism.setup is not None:
            releases.append(mechanism.setup)
            counts.append(np.full_like(participations, mechanism.setup.count))
        interval = self.interval_for(mechanism)
        delta = mechanism.delta_left(participations)
        epsilon = np.zeros(len(participations))
        for direction in _DIRECTIONS:
            steps = [_step_loss(release, interval, direction) for release in releases]
            powers = [_Power(*pair) for pair in zip(steps, counts, strict=True)]
            one_way = _epsilon_one_way(powers, delta, interval)
            epsilon = np.maximum(epsilon, one_way)
        return epsilon


def _privacy_loss(release: Release, direction: str) -> Any:
    # Takes a second to load: not before a curve must be computed.
    from dp_accounting.pld import privacy_loss_mechanism as library

    return library.GaussianPrivacyLoss(
        release.noise_multiplier,
        sampling_prob=release.sampling_rate,
        adjacency_type=library.AdjacencyType[direction],
    )


def _loss_std(release: Release) -> float:
    """About the standard deviation of one step's loss: q sqrt(exp(1/sigma^2) - 1)."""
    exponent = min(release.noise_multiplier**-2, 100.0)
    return release.sampling_rate * float(np.sqrt(np.expm1(exponent)))


@functools.lru_cache(maxsize=64)
def _coarse_enough(release: Release, interval: float) -> float:
    """`interval`, doubled until one step's losses fit the grid."""
    for direction in _DIRECTIONS:
        bounds = _privacy_loss(release, direction).connect_dots_bounds()
        while bounds.epsilon_upper - bounds.epsilon_lower > _LARGEST_STEP * interval:
            interval *= 2
    return interval


@functools.lru_cache(maxsize=16)
def _step_loss(release: Release, interval: float, direction: str) -> _StepLoss:
    """Probabilities whose delta is exact at every grid point (connect the dots)."""
    loss = _privacy_loss(release, direction)
    bounds = loss.connect_dots_bounds()
    low = int(np.floor(bounds.epsilon_lower / interval))
    high = int(np.ceil(bounds.epsilon_upper / interval))
    losses = np.arange(low, high + 1) * interval
    with np.errstate(over="ignore"):  # next to no noise: factors beyond exp(700)
        delta = loss.get_delta_for_epsilon(losses)
        growth = np.expm1(interval)
    # An outcome of loss between two grid points is split between them such that its
    # probability under both neighbouring data sets is kept; all below the grid goes to
    # its first point, all above it counts as infinite.
    rise = np.diff(delta)
    share = rise / growth
    probability = np.zeros(len(delta))
    probability[:-1] += share
    probability[1:] -= share + rise  # so that rounding loses no mass
    probability[0] += 1 - delta[0]
    positive = np.maximum(probability, 0)
    moments = [
        np.array(
            [special.logsumexp(sign * tilt * losses, b=positive) for tilt in _TILTS]
        )
        for sign in (1, -1)
    ]
    return _StepLoss(low, probability, float(delta[-1]), *moments)


def _epsilon_one_way(
    powers: list[_Power], delta: NDArray[np.float64], interval: float
) -> NDArray[np.float64]:
    low, high = _window(powers, interval)
    width = high - low + 1
    epsilon = np.full(len(delta), np.inf)
    rows = np.flatnonzero(width <= _LARGEST_WINDOW)
    for now in np.split(rows, range(_ROWS, len(rows), _ROWS)) if rows.size else []:
        length = fft.next_fast_len(int(np.max(width[now])), real=True)
        epsilon[now] = _smallest_epsilon(
            _compose(powers, now, low[now], length),
            _infinite_mass(powers, now),
            low[now],
            delta[now],
            interval,
        )
    return epsilon


def _window(
    powers: list[_Power], interval: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Grid points outside which a composition has probability below `_TAIL`.

    Chernoff's bound at the best of several tilts on both sides, and the support.
    """
    up = sum(times[:, None] * step.log_moments_up for step, times in powers)
    down = sum(times[:, None] * step.log_moments_down for step, times in powers)
    price = np.log(2 / _TAIL)
    high = np.ceil(np.min((up + price) / _TILTS, axis=1) / interval)
    low = np.floor(np.max(-(down + price) / _TILTS, axis=1) / interval)
    bottom = sum(times * step.lowest for step, times in powers)
    top = bottom + sum(times * (len(step.probability) - 1) for step, times in powers)
    low, high = np.maximum(low, bottom), np.minimum(high, top)
    return low.astype(np.int64), high.astype(np.int64)


def _compose(
    powers: list[_Power],
    rows: NDArray[np.intp],
    low: NDArray[np.int64],
    length: int,
) -> Losses:
    """Probabilities of the composed loss on `low + (0 .. length-1)`, one row each."""
    exponent = np.zeros((len(rows), length // 2 + 1), np.complex128)
    shift = -low
    for step, times in powers:
        folded = np.zeros(length)
        np.add.at(folded, np.arange(len(step.probability)) % length, step.probability)
        spectrum = fft.rfft(folded)
        exponent += times[rows][:, None] * np.log(
            np.where(spectrum == 0, 1e-300, spectrum)
        )
        shift = shift + times[rows] * step.lowest
    turns = (shift % length)[:, None] * np.arange(length // 2 + 1) % length
    exponent -= 2j * np.pi / length * turns
    return fft.irfft(np.exp(exponent), length, axis=1)


def _infinite_mass(powers: list[_Power], rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """Losses above the grid, outside the window, and what rounding may have hidden."""
    finite = sum(times[rows] * np.log1p(-step.infinite) for step, times in powers)
    steps = sum(times[rows] for _, times in powers)
    return _TAIL + _ROUNDING * steps - np.expm1(finite)


def _smallest_epsilon(
    probability: Losses,
    infinite: NDArray[np.float64],
    low: NDArray[np.int64],
    delta: NDArray[np.float64],
    interval: float,
) -> NDArray[np.float64]:
    """Least epsilon >= 0 whose delta is within the target, one row each.

    delta(e) = infinite + sum over losses l > e of p(l) (1 - exp(e - l)).  With
    above(j) = sum_{i >= j} p_i  and  scaled(j) = sum_{i >= j} p_i exp(l_j - l_i),
    delta(l_j) = infinite + above(j) - scaled(j), and between grid points
    epsilon = l_j + log((infinite + above(j) - target) / scaled(j)).
    """
    backward = probability[:, ::-1]
    above = infinite[:, None] + np.cumsum(backward, axis=1)[:, ::-1]
    decay = np.exp(-interval)
    scaled = signal.lfilter([1.0], [1.0, -decay], backward, axis=1)[:, ::-1]
    within = above - scaled <= delta[:, None]
    rows = np.arange(len(low))
    first_private = np.argmax(within, axis=1)  # first grid point that is private enough
    # Beyond the last grid point only infinite losses remain.
    exists = within[rows, first_private]
    excess = above[rows, first_private] - delta
    loss = (low + first_private) * interval
    with np.errstate(divide="ignore", invalid="ignore"):
        between = loss + np.log(excess / scaled[rows, first_private])
    # No excess: at the first point all losses together are within the target, and
    # epsilon is 0; elsewhere it is an effect of rounding, and the point itself is safe.
    none = np.where(first_private == 0, 0.0, loss)
    epsilon = np.maximum(np.where(excess > 0, between, none), 0.0)
    return np.where(exists & (infinite <= delta), epsilon, np.inf)
