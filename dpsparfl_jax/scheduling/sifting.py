"""Rounds with very many clients: looking closely only at those who may be chosen.

Of a hundred thousand clients on a hundred channels, few can be in a best allocation.
The cheapest on each channel are candidates, and the round is solved for them alone.
What proves their optimum also tells, for every interval of deadlines, below which cost
on a channel an outsider could do better: those who cost less are taken in, and the
intervals where they do are proven again. On no channel does a client do better than on
its best one, so that most outsiders are ruled out by one number each.
"""

import bisect
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.scheduling import edges as edges_lib
from dpsparfl_jax.scheduling import matching
from dpsparfl_jax.scheduling.problem import (
    Allocation,
    RoundProblem,
    check_problem,
    take_clients,
    value_of,
)
from dpsparfl_jax.scheduling.search import (
    Search,
    branch_and_bound,
    cuts,
    descend,
    least_costs,
    priced,
    tangents,
)
from dpsparfl_jax.units import shannon_rate

Array = NDArray[np.float64]
Interval = tuple[float, float]  # of deadlines
MANY = 250_000  # edges from which sifting is quicker than looking at all of them
_CROWD = 8  # clients a channel, at least
_FIRST = 4  # candidates a channel
_STRIDE = 1.3  # between deadlines that are tried first
_DEADLINES = 80  # of them, at most
_TURNS = 60  # of taking in others
_NARROW = 1e-12  # of a deadline: no interval is cut any further
_FINE = 1e-4  # the same, where many outsiders may be of use
_FEW = 2  # outsiders a channel that may as well be taken in
_ROUNDING = 1e-10  # relative, of a value
_LEAST_GAP = 1e-12  # the same, of the certificate
_BLOCK = 2**18  # edges whose costs are found at once: they stay in a core's memory
# How far deadlines are from the best one, relative to it, in groups: outsiders are
# judged by the latest deadline of a group.
_GROUPS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def is_worthwhile(problem: RoundProblem) -> bool:
    """Whether a round has so many clients that it is better sifted."""
    crowded = problem.num_clients >= _CROWD * problem.num_channels
    return problem.snr_per_w.size >= MANY and crowded and not problem.may_idle


class Level(NamedTuple):
    """Outsiders who cost no less than this on any channel need not be looked at."""

    first: float  # for allocations with a deadline from here
    deadline: float  # to here
    cost: Array  # [N]
    full: bool = True  # whether candidates can use all channels by then

    def halves(self) -> list[Interval]:
        """The two halves of its interval, or all of it if it is small."""
        middle = (self.first + self.deadline) / 2
        if self.deadline - self.first <= _FINE * self.deadline:
            return [(self.first, self.deadline)]
        return [(self.first, middle), (middle, self.deadline)]


class Sieve:
    """A round in which every channel is used, and bounds of all its clients."""

    def __init__(self, problem: RoundProblem) -> None:
        """Looks at every client on its best channel."""
        check_problem(problem)
        self.channels = problem.num_channels
        self.problem = priced(problem, self.channels)
        self.alone = on_best_channel(self.problem)
        first = edges_lib.make_edges(self.alone).first_s[:, 0]
        self.low = float(np.partition(first, self.channels - 1)[self.channels - 1])
        least = least_costs(problem)[np.isfinite(first)]
        self.least_cost = _smallest(least, self.channels)

    def likely_deadline(self) -> float:
        """The best deadline, roughly, if clients did not have to share channels."""
        price, best, found = self.problem.delay_price, np.inf, self.low
        deadline = self.low
        for _ in range(_DEADLINES):
            if self.least_cost + price * deadline > best:
                break
            cost = costs_at(self.alone, deadline)[:, 0]
            value = _smallest(cost, self.channels) + price * deadline
            if value < best:
                best, found = value, deadline
            if deadline >= self.problem.latest_s:
                break
            deadline = min(deadline * _STRIDE, self.problem.latest_s)
        return found

    def cheapest(self, deadline: float) -> NDArray[np.intp]:
        """The cheapest on each channel at a deadline, and the cheapest of all.

        Where weights decide, every channel would have the same ones.
        """
        count = min(2 * self.channels, self.problem.num_clients - 1)
        alone = costs_at(self.alone, deadline)[:, 0]
        overall = np.argpartition(alone, count)[:count]
        everybody = np.arange(self.problem.num_clients)
        return np.union1d(self._first_on_channels(everybody, deadline), overall)

    def _first_on_channels(
        self, rows: NDArray[np.intp], deadline: float
    ) -> NDArray[np.intp]:
        """Those of these clients who are among the cheapest of some channel."""
        kept = np.zeros((0, self.channels), np.intp)
        costs = np.zeros((0, self.channels))
        for numbers, block in self._blocks(rows, deadline):
            costs = np.concatenate([costs, block])
            kept = np.concatenate([kept, np.repeat(numbers[:, None], self.channels, 1)])
            if len(costs) > _FIRST:
                least = np.argpartition(costs, _FIRST, axis=0)[:_FIRST]
                costs = np.take_along_axis(costs, least, 0)
                kept = np.take_along_axis(kept, least, 0)
        return np.unique(kept)

    def cheaper(self, level: Level) -> NDArray[np.intp]:
        """Clients who cost less than a level on some channel."""
        alone = costs_at(self.alone, level.deadline)[:, 0]
        rows = np.flatnonzero(alone < np.max(level.cost))
        found = [
            numbers[(block < level.cost).any(axis=1)]
            for numbers, block in self._blocks(rows, level.deadline)
        ]
        return np.concatenate([np.zeros(0, np.intp), *found])

    def _blocks(
        self, rows: NDArray[np.intp], deadline: float
    ) -> Iterator[tuple[NDArray[np.intp], Array]]:
        """Some of these clients at a time, and what their edges cost at a deadline."""
        size = max(_BLOCK // self.channels, 1)
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            yield some, costs_at(take_clients(self.problem, some), deadline)

    def latest(self, value: float) -> float:
        """No allocation that is better than `value` has a later deadline."""
        worth = (value - self.least_cost) / self.problem.delay_price
        return min(self.problem.latest_s, max(worth, self.low))

    def prove(
        self, search: Search, intervals: list[Interval], gap: float
    ) -> list[Level] | None:
        """Levels for deadlines in these intervals, cut where they are too wide.

        Better allocations of the candidates are found on the way, as in branch and
        bound: with a level for every interval, the best is within `gap` of the optimum
        of candidates and of all who are not below a level. None if rounding hides that.
        """
        levels, waiting = [], list(intervals)
        while waiting:
            a, b = waiting.pop()
            b = min(b, self.latest(search.best.value))
            if a > b:
                continue
            level = self._level(search, a, b, gap)
            if level is not None:
                levels.append(level)
            elif b - a <= _NARROW * b:
                return None
            else:
                waiting += itertools.pairwise(cuts(a, b, search.best.deadline, 1))
        return levels

    def missing(
        self, search: Search, rows: NDArray[np.intp], levels: list[Level]
    ) -> tuple[NDArray[np.intp], list[Interval]]:
        """Outsiders who are below a level, and the intervals where they are.

        They are judged by several intervals at a time, and by fewer where too many are
        below. If many are below in one interval, the best of them are told, and it is
        halved: with better candidates and smaller intervals, levels are lower.
        """
        best, found = search.best.deadline, [np.zeros(0, np.intp)]
        groups: dict[tuple[bool, bool, int], list[Level]] = {}
        for level in sorted(levels, key=lambda level: level.deadline):
            far = bisect.bisect(_GROUPS, abs(level.deadline - best) / best)
            key = level.full, level.deadline > best, far
            groups.setdefault(key, []).append(level)
        waiting, again = list(groups.values()), []
        while waiting:
            group = waiting.pop()
            cost = np.max([level.cost for level in group], axis=0)
            last = group[-1]._replace(cost=cost)
            others = np.setdiff1d(self.cheaper(last), rows)
            many = len(others) > _FEW * self.channels
            if many and len(group) > 1:
                waiting += [group[: len(group) // 2], group[len(group) // 2 :]]
                continue
            if many:
                others = self._first_on_channels(others, last.deadline)
                again += last.halves()
            elif len(others):
                again += [(level.first, level.deadline) for level in group]
            found.append(others)
        return np.unique(np.concatenate(found)), again

    def _level(self, search: Search, a: float, b: float, gap: float) -> Level | None:
        """The level for deadlines from a to b; None if the interval is too wide.

        Costs of candidates are above their tangents over an interval of deadlines,
        those of outsiders above what they are at its end: whatever the prices of
        channels, ends of the interval bound all that is in it (`matching.level_of`).
        """
        ends = np.array([a, b])[:, None, None]
        costs, allowed = tangents(search.problem, search.edges, ends)
        costs = np.where(allowed, costs, np.inf)
        highest = np.full(self.channels, -np.inf)
        for end, cost in zip((a, b), costs, strict=True):
            level = self._level_at(search, cost, end, gap)
            if level is None:
                return None
            highest = np.maximum(highest, level)
        return Level(a, b, highest, b >= search.low)

    def _level_at(
        self, search: Search, cost: Array, deadline: float, gap: float
    ) -> Array | None:
        """The level [N] at one end of an interval, None if there is none.

        Prices of the nearest deadlines are tried first: matchings take longer.
        """
        needed = search.best.value - gap - search.problem.delay_price * deadline
        for known in search.nearest(deadline)[:2]:
            level = matching.level_of(cost, known.price, needed)
            if level is not None:
                return level
        found = search.match_near(cost, deadline, np.arange(len(cost)))
        if found is not None:
            search.offer(found.match)
            return matching.level_of(cost, found.price, needed)
        finite = np.isfinite(cost)
        dear = 1e4 * (1 + abs(needed) + np.max(np.abs(cost[finite]), initial=0.0))
        # Candidates cannot use these channels: only who can is of any use.
        price = dear * matching.short_of(finite)
        return matching.level_of(cost, price, needed)


def costs_at(problem: RoundProblem, deadline: float) -> Array:
    """What every edge [U, N] costs if all must be done by then; inf if it cannot."""
    time = (deadline - problem.base_delay_s)[:, None]
    sending = np.where(time > 0, time, 1.0)
    energy = np.maximum(problem.energy_j, 0.0)[:, None]
    power = np.minimum(problem.max_power_w, energy / sending)
    rate = shannon_rate(problem.bandwidth_hz, power * problem.snr_per_w)
    keep = (time * rate - problem.bits_fixed) / problem.bits_per_rate
    late = keep < problem.keep_min * (1 - _ROUNDING)
    keep = np.minimum(keep, problem.keep_max[:, None])
    if problem.curvature.any():
        keep = keep - problem.curvature[:, None] * keep**2 / 2
    cost = problem.weight[:, None] - problem.reward[:, None] * keep
    cost[late] = np.inf
    return cost


def optimum(problem: RoundProblem, tolerance: float) -> Allocation | None:
    """The optimum with its certificate; None if all clients must be looked at.

    They must where channels stay idle, or if too many clients are as good as the best.
    """
    sieve = Sieve(problem)
    settled = _settle(sieve, None)
    if settled is None:
        return None
    rows, search = settled
    gap = tolerance * float(np.max(problem.reward)) * sieve.channels
    gap = max(gap, _LEAST_GAP * abs(search.best.value))
    _, nodes = branch_and_bound(search, tolerance)  # for the best of candidates
    high = sieve.latest(search.best.value)
    waiting = list(itertools.pairwise(cuts(sieve.low, high, search.best.deadline, 2)))
    for _ in range(_TURNS):
        levels = sieve.prove(search, waiting, gap)
        if levels is None:
            return None
        nodes += len(levels)
        missing, waiting = sieve.missing(search, rows, levels)
        if missing.size == 0:
            best = search.best.value
            # The least price was added here: see `branch_and_bound`.
            added = sieve.problem.delay_price - problem.delay_price
            lower = best - gap - added * sieve.latest(best)
            return _told(problem, rows, search.result(lower, nodes))
        more = np.union1d(rows, missing)
        if len(more) > problem.num_clients / 2:
            return None
        larger = Search(take_clients(sieve.problem, more))
        larger.learn(search, np.searchsorted(more, rows))
        descend(larger, larger.best.deadline)  # the new ones may do better at once
        rows, search = more, larger
    return None


def descent(problem: RoundProblem, start_s: float | None) -> Allocation | None:
    """The alternation of `joint.solve_descent`; None if all must be looked at."""
    sieve = Sieve(problem)
    settled = _settle(sieve, start_s)
    if settled is None:
        return None
    rows, search = settled
    return _told(problem, rows, search.result(-np.inf, len(rows)))


def _settle(
    sieve: Sieve, start_s: float | None
) -> tuple[NDArray[np.intp], Search] | None:
    """Candidates, and a matching and deadline that are the best for each other.

    None if candidates cannot use all channels.
    """
    if np.isinf(sieve.low):
        return None
    deadline = sieve.likely_deadline() if start_s is None else start_s
    deadline = min(max(deadline, sieve.low), sieve.problem.latest_s)
    rows = sieve.cheapest(deadline)
    for _ in range(_TURNS):
        search = Search(take_clients(sieve.problem, rows))
        if search.size < sieve.channels:
            return None
        descend(search, max(deadline, search.low))
        deadline, value = search.best.deadline, search.best.value
        cost = costs_at(search.problem, deadline)
        found = search.match_near(cost, deadline, np.arange(len(cost)))
        if found is None:
            return None
        spent = search.problem.delay_price * deadline + _ROUNDING * (1 + abs(value))
        level = matching.level_of(cost, found.price, value - spent)
        if level is None:  # rounding
            return rows, search
        missing = np.setdiff1d(sieve.cheaper(Level(deadline, deadline, level)), rows)
        if missing.size == 0:
            return rows, search
        rows = np.union1d(rows, missing)
    return None


def _told(
    problem: RoundProblem, rows: NDArray[np.intp], found: Allocation
) -> Allocation:
    """An allocation of these rows, as one of the whole problem."""
    client = rows[found.client]
    value = value_of(problem, client, found.keep_rate, found.delay_s)
    lower = min(found.lower_bound, value)
    return found._replace(client=client, value=value, lower_bound=lower)


def on_best_channel(problem: RoundProblem) -> RoundProblem:
    """Every client on the channel that it hears best, as if that were the only one."""
    best = np.max(problem.snr_per_w, axis=1, keepdims=True)
    return problem._replace(snr_per_w=best)


def largest_size(
    problem: RoundProblem, possible: Callable[[RoundProblem], NDArray[np.bool_]]
) -> int:
    """How many can send at once, over edges [U, N] that `possible` tells of a problem.

    Where some clients can use every channel, nobody else needs to be looked at.
    """
    clients, channels = problem.snr_per_w.shape
    count = _CROWD * channels
    while count < clients:
        some = np.arange(0, clients, clients // count)
        size = matching.largest_size(possible(take_clients(problem, some)))
        if size == channels:
            return size
        count *= 4
    return matching.largest_size(possible(problem)) if clients else 0


class Quickest(NamedTuple):
    """Clients among whom are those who can be done first, as many as can send at once.

    All R of them, or of many only those who are quick enough.
    """

    size: int  # how many can send at once
    least_s: float  # the least delay by which so many can; infinite if nobody
    rows: NDArray[np.intp]  # [R]
    delay_s: Array  # [R, N] of their edges


def quickest(
    problem: RoundProblem, delays: Callable[[RoundProblem], Array]
) -> Quickest:
    """Finds them.

    `delays` gives those of all edges [U, N] of a problem; of two channels, a client is
    done first on the one that it hears better.
    """
    clients, channels = problem.snr_per_w.shape
    alone, rows = np.zeros(clients), np.arange(clients)
    if problem.snr_per_w.size >= MANY:
        alone = delays(on_best_channel(problem))[:, 0]
        rows = _first(alone, _FIRST * channels)
    while True:
        whole = len(rows) == clients
        delay = delays(problem if whole else take_clients(problem, rows))
        size = matching.largest_size(np.isfinite(delay)) if clients else 0
        if size < channels and not whole:
            rows = _first(alone, 4 * len(rows))
            continue
        least = matching.bottleneck(delay, size) if size else np.inf
        within = np.flatnonzero(alone <= least * (1 + _ROUNDING))
        if whole or np.isin(within, rows).all():
            return Quickest(size, least, rows, delay)
        rows = np.union1d(rows, within)


def _first(values: Array, count: int) -> NDArray[np.intp]:
    """Numbers of the `count` smallest, in ascending order."""
    return np.sort(np.argsort(values)[:count])


def _smallest(values: Array, count: int) -> float:
    """The sum of the `count` smallest; infinite if there are fewer."""
    if len(values) < count:
        return np.inf
    return float(np.sum(np.partition(values, count - 1)[:count]))
