"""Settings that spend epsilon well: the most signal for the training that it costs.

A step of a client adds up b clipped gradients and gets noise of sigma clip norms. Over
the steps that its epsilon affords, gradients that agree add up like their number and
noise like its square root, so what stands out of the noise is
    signal = mean over clients of (b / sigma) sqrt(tau T-hat),
T-hat being the participations afforded and tau the steps of one. Little noise ends a
budget soon; much noise lets it last, but then it costs training. So settings are
compared by signal and by examples, clients * b * mean of (tau T-hat).

Whether a setting is affordable is what the ledger says: the same curves, from the same
store. A curve takes up to seconds, so that every setting of the grid is first sketched
by the same accountant on a coarser grid of losses, at a few numbers of steps. A sketch
says how good a setting can be at best; curves are computed from the most promising one
downwards, until no other can be better.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import interpolate

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy import poisson
from dpsparfl_jax.privacy.curves import CurveStore, affordable
from dpsparfl_jax.privacy.mechanism import Mechanism, Release
from dpsparfl_jax.privacy.pld import PldAccountant

Floats = NDArray[np.float64]
Track = Callable[[Sequence[Any], str], Iterable[Any]]

NOISE_MULTIPLIERS = tuple(float(np.round(z, 2)) for z in np.geomspace(0.4, 4, 21))
BATCH_SIZES = (4, 8, 16, 32, 64, 128, 256)
LOCAL_STEPS = (5, 10, 20, 30, 60)

# A power of two times the accountant's own grid, so that a sketch never affords more.
_QUICK = PldAccountant(interval=8e-3)
_LADDER = math.sqrt(2)  # between numbers of steps of a sketch
_ROWS = 4  # numbers of steps sketched before looking whether the budgets have ended
# Relative, of steps: a grid of a quarter of a step's standard deviation, the coarsest
# that the accountant takes, loses 1%; interpolation is within 0.1%.
_BELOW, _ABOVE = 0.002, 0.015
_RUNGS = 13  # of the frontier: limits of examples, each sqrt(2) times the next
_BEYOND = 2.0  # the frontier goes on to so many times the limit


class Setting(NamedTuple):
    """What may be chosen."""

    noise_multiplier: float  # sigma
    batch_size: float  # b, expected
    local_steps: int  # tau


@dataclasses.dataclass(frozen=True, eq=False)
class Clients:
    """Who spends: clients of equal size, budgets in equal shares."""

    budgets: Floats  # epsilons; their number need not be that of clients
    examples: int  # records of a client
    count: int  # clients
    channels: int  # clients that take part in a round
    delta: float
    overflow_probability: float = 0.0
    limit: int = 10_000  # participations of a client, at most
    coordinates: int = 0  # parameters of the model; 0: noise without an end

    def __post_init__(self) -> None:
        """Refuses nobody."""
        if min(self.examples, self.count, self.channels, self.limit) < 1:
            raise InputError(
                "advice needs at least one record, one client, one channel and one "
                "participation."
            )
        if not np.all((self.budgets > 0) & np.isfinite(self.budgets)):
            raise InputError("every client's epsilon must be positive and finite.")

    def mechanism(self, setting: Setting) -> Mechanism:
        """What one of them releases."""
        rate = float(poisson.sampling_rate(setting.batch_size, self.examples))
        release = Release(rate, setting.noise_multiplier, setting.local_steps)
        return Mechanism(
            release,
            self.delta,
            self.overflow_probability,
            coordinates=self.coordinates,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Spending:
    """What becomes of budgets that are spent to the end under one setting."""

    setting: Setting
    participations: NDArray[np.int64]  # T-hat of every budget
    rounds: int
    examples: float  # that all clients train on, expected
    signal: float


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a setting may cost; infinite is no limit."""

    examples: float = math.inf
    rounds: float = math.inf

    def __post_init__(self) -> None:
        """Refuses limits that nothing keeps."""
        if not (self.examples > 0 and self.rounds > 0):
            raise InputError("limits of examples and rounds must be positive.")


class _Candidate(NamedTuple):
    """A setting as sketched: how good it can be, and what it costs."""

    setting: Setting
    most_signal: float
    least_examples: float
    most_examples: float
    least_rounds: int


def spend(setting: Setting, clients: Clients, store: CurveStore) -> Spending:
    """All budgets spent under one setting, by the curves that ledgers use."""
    top = float(np.max(clients.budgets))
    curve = store.curve(
        clients.mechanism(setting), max_epsilon=top, limit=clients.limit
    )
    counts = [affordable(curve, float(b), clients.limit) for b in clients.budgets]
    return _spending(setting, clients, np.array(counts, np.int64))


def frontier(
    clients: Clients,
    store: CurveStore,
    limits: Limits,
    grid: Sequence[Setting],
    track: Track = lambda items, _: items,
) -> list[Spending]:
    """The best setting for every of some limits of examples, cheapest first.

    Limits go down from twice the one asked for, which is among them, or from what the
    dearest setting costs. No row is dominated: each has the largest signal of all
    settings of the grid that cost no more examples and keep to the limit of rounds.

    Args:
        clients: who spends.
        store: of the PLD accountant.
        limits: of examples and of rounds.
        grid: settings to choose from.
        track: is given what is gone through, and in a word why; may show a bar.

    Returns:
        Rows of growing examples and growing signal; empty if nobody can take part
        within the limits.
    """
    candidates = _candidates(clients, limits, grid, track)
    top = _BEYOND * limits.examples
    if math.isinf(top):
        top = max((each.most_examples for each in candidates), default=1.0)
    known: dict[Setting, Spending] = {}

    def exactly(setting: Setting) -> Spending:
        if setting not in known:
            known[setting] = spend(setting, clients, store)
        return known[setting]

    rows: list[Spending] = []
    rungs = [top * 2.0 ** (-number / 2) for number in reversed(range(_RUNGS))]
    for examples in track(rungs, "curves"):
        allowed = Limits(examples, limits.rounds)
        best = _best_of(candidates, allowed, exactly)
        if best is not None and (not rows or best.setting != rows[-1].setting):
            rows.append(best)
    return rows


def best_within(rows: Sequence[Spending], limits: Limits) -> Spending | None:
    """The row of largest signal within the limits, if any is."""
    kept = [row for row in rows if _keeps(row, limits)]
    return max(kept, key=_merit, default=None)


def settings_grid(
    examples: int,
    most_batch: float = math.inf,
    noise_multipliers: Sequence[float] = NOISE_MULTIPLIERS,
    batch_sizes: Sequence[float] = BATCH_SIZES,
    local_steps: Sequence[int] = LOCAL_STEPS,
) -> list[Setting]:
    """All settings whose batch is at most `most_batch` and what a client has.

    The largest batch so allowed is among them: it is what the frontier likes best.
    """
    most = min(examples, most_batch, max(batch_sizes))
    if most < min(batch_sizes):
        raise InputError(
            f"advice looks at batches of {min(batch_sizes):g} records and more, but "
            f"at most {most:g} are allowed."
        )
    fitting = [*(batch for batch in batch_sizes if batch < most), most]
    return [
        Setting(noise, batch, steps)
        for noise in noise_multipliers
        for batch in fitting
        for steps in local_steps
    ]


def _spending(
    setting: Setting, clients: Clients, counts: NDArray[np.int64]
) -> Spending:
    noise, batch, steps = setting
    mean = float(np.mean(counts))
    # As many as channels take part in a round, and nobody twice.
    rounds = max(clients.count * mean / clients.channels, float(np.max(counts)))
    return Spending(
        setting,
        counts,
        math.ceil(rounds - 1e-9),  # a mean is not exact
        clients.count * mean * steps * batch,
        float(np.mean(batch / noise * np.sqrt(steps * counts))),
    )


def _merit(row: Spending) -> tuple[float, float, int]:
    """What the best row is the largest by: of equal signal, the cheapest."""
    return row.signal, -row.examples, -row.rounds


def _keeps(row: Spending, limits: Limits) -> bool:
    within = row.examples <= limits.examples and row.rounds <= limits.rounds
    return within and row.signal > 0


def _best_of(
    candidates: Sequence[_Candidate],
    limits: Limits,
    exactly: Callable[[Setting], Spending],
) -> Spending | None:
    """The best row within the limits, of candidates from the most promising down."""
    best: Spending | None = None
    for candidate in candidates:
        if best is not None and candidate.most_signal < best.signal:
            break  # nor can any that follows be better
        if candidate.least_examples > limits.examples:
            continue
        if candidate.least_rounds > limits.rounds:
            continue
        row = exactly(candidate.setting)
        if _keeps(row, limits) and (best is None or _merit(row) > _merit(best)):
            best = row
    return best


def _candidates(
    clients: Clients, limits: Limits, grid: Sequence[Setting], track: Track
) -> list[_Candidate]:
    """The settings that may keep to the limits, the most promising first."""
    groups: dict[tuple[float, float], list[Setting]] = {}
    for setting in grid:
        groups.setdefault(setting[:2], []).append(setting)
    found = []
    for settings in track(list(groups.values()), "sketches"):
        low, high = _sketched_steps(clients, limits, settings)
        for setting in settings:
            tau = setting.local_steps
            least, most = (
                np.minimum(np.floor(steps / tau), clients.limit).astype(np.int64)
                for steps in (low, high)
            )
            cheap, dear = (_spending(setting, clients, k) for k in (least, most))
            within = cheap.examples <= _BEYOND * limits.examples
            if dear.signal > 0 and within and cheap.rounds <= limits.rounds:
                costs = cheap.examples, dear.examples, cheap.rounds
                found.append(_Candidate(setting, dear.signal, *costs))
    return sorted(found, key=lambda each: each.most_signal, reverse=True)


def _sketched_steps(
    clients: Clients, limits: Limits, settings: Sequence[Setting]
) -> tuple[Floats, Floats]:
    """Steps that every budget affords at least and at most.

    The settings differ in tau alone and share a sketch, which is of single steps.
    """
    mechanism = clients.mechanism(settings[0]._replace(local_steps=1))
    taus = [setting.local_steps for setting in settings]
    # Beyond so many steps of one client, all together break the limit of examples.
    share = clients.count / len(clients.budgets) * settings[0].batch_size
    last = min(clients.limit * max(taus), 2 * _BEYOND * limits.examples / share + 1)
    steps, epsilon = np.zeros(0, np.int64), np.zeros(0)
    start, top = max(0.9 * min(taus), 1.0), float(np.max(clients.budgets))
    while not len(steps) or (steps[-1] <= last and epsilon[-1] <= top):
        ladder = np.floor(start * _LADDER ** np.arange(_ROWS)).astype(np.int64)
        more = np.setdiff1d(ladder, steps)
        steps = np.concatenate([steps, more])
        epsilon = np.concatenate([epsilon, _QUICK.epsilon(mechanism, more)])
        start *= _LADDER**_ROWS
    return _inverted(steps, np.maximum.accumulate(epsilon), clients.budgets)


def _inverted(
    steps: NDArray[np.int64], epsilon: Floats, budgets: Floats
) -> tuple[Floats, Floats]:
    """Bounds of the steps at which epsilon reaches every budget."""
    after = np.searchsorted(epsilon, budgets, side="right")
    edges = np.concatenate([[0.0], steps, [math.inf]])
    low, high = edges[after], edges[after + 1]
    finite = epsilon[np.isfinite(epsilon)]  # infinite where overflow has used delta up
    rising = np.flatnonzero(np.diff(finite, append=math.inf) > 0)
    if len(rising) > 1:
        x, y = epsilon[rising], np.log(steps[rising])
        inside = (budgets >= x[0]) & (budgets <= x[-1])
        curve = interpolate.PchipInterpolator(x, y, extrapolate=False)
        near = np.exp(curve(budgets[inside]))
        low[inside], high[inside] = near * (1 - _BELOW), near * (1 + _ABOVE)
    return low, np.where(np.isinf(high), edges[-2], high)
