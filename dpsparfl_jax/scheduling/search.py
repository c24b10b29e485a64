"""What the solvers of a round share: edges, range of deadlines, bounds, the best yet.

For a fixed deadline d the best matching is an assignment problem, so the optimum is the
least value over d of a one-dimensional function; branch and bound on d with certified
lower bounds finds it. On an interval every edge's cost is convex in d, hence above its
tangent; a minimum over matchings of affine functions is concave, so it is least at an
end of the interval: two assignments bound it from below.
"""

import heapq
import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from dpsparfl_jax.scheduling import deadline as deadline_lib
from dpsparfl_jax.scheduling import edges as edges_lib
from dpsparfl_jax.scheduling import matching
from dpsparfl_jax.scheduling.problem import (
    Allocation,
    RoundProblem,
    check_problem,
    take_clients,
)

Array = NDArray[np.float64]
# Of a second, relative to the largest possible reward: where delay costs nothing, the
# earliest of almost equally good deadlines is taken. Dearer than the tolerance by the
# second, so that the search can tell deadlines a second apart.
_LEAST_PRICE = 1e-6
_TINY_PRICE = 1e-15  # the same, relative to weights, where nothing has a reward
_ROUNDING = 1e-13  # relative, of a value
_MOST_NODES = 10_000
_CUTS_AT_ONCE = 3  # of an interval, where calls take longer than what they do
_NEAR = 0.2  # of an interval, from the best deadline: where it is cut


class Reach(NamedTuple):
    """Who can send at all and when: the same for all weights, rewards and prices."""

    edges: edges_lib.Edges
    possible: NDArray[np.bool_]  # [U, N] edges that can send the least payload
    size: int  # of the largest matching
    fewest: int  # clients that must send
    low: float  # earliest deadline by which so many can


def reach_of(problem: RoundProblem) -> Reach:
    """The reach of a round."""
    edges = edges_lib.make_edges(problem)
    possible = np.isfinite(edges.first_s)
    size = matching.largest_size(possible) if problem.num_clients else 0
    fewest = min(size, 1) if problem.may_idle else size
    low = matching.bottleneck(edges.first_s, fewest) if size else np.inf
    return Reach(edges, possible, size, fewest, low)


class _Incumbent(NamedTuple):
    value: float
    deadline: float
    match: matching.Matching | None


class _Known(NamedTuple):
    """Prices of channels that proved a matching cheapest at a deadline."""

    deadline: float
    price: Array  # [N]
    client: NDArray[np.intp]  # who was matched


class Part(NamedTuple):
    """A problem with some of its clients."""

    rows: NDArray[np.intp]  # their numbers
    problem: RoundProblem
    edges: edges_lib.Edges


def _restrict(part: Part, useful: NDArray[np.bool_]) -> Part:
    """Leaves clients out, if enough of them go to be worth it."""
    if np.sum(useful) > 0.8 * len(useful):
        return part
    chosen = np.flatnonzero(useful)
    return Part(
        part.rows[chosen],
        take_clients(part.problem, chosen),
        edges_lib.take(part.edges, chosen),
    )


def _cost_of(problem: RoundProblem, keep: Array) -> Array:
    """Cost of every edge at its keep rate."""
    gained = keep
    if problem.curvature.any():
        gained = keep - problem.curvature[:, None] * keep**2 / 2
    return problem.weight[:, None] - problem.reward[:, None] * gained


def tangents(
    problem: RoundProblem, edges: edges_lib.Edges, ends: Array
) -> tuple[Array, NDArray[np.bool_]]:
    """Costs of edges at both ends of intervals, by their tangents in the middle.

    And which edges an allocation in the interval can have. Shapes: [.., 2, 1, 1] ->
    [.., 2, U, N] and [.., 1, U, N].
    """
    middle = ends.mean(axis=-3, keepdims=True)
    keep, speed = edges_lib.keep_rate_and_slope(problem, edges, middle)
    cost = _cost_of(problem, keep)
    tilt = -problem.reward[:, None] * speed
    if problem.curvature.any():
        tilt *= 1 - problem.curvature[:, None] * keep
    latest = ends[..., 1:, :, :]
    return cost + tilt * (ends - middle), edges.first_s <= latest


def priced(problem: RoundProblem, size: int) -> RoundProblem:
    """With a tiny price of delay, where it costs nothing; `size` clients send."""
    worth = float(np.max(problem.reward, initial=0.0)) * size
    largest = float(np.max(np.abs(problem.weight), initial=1.0))
    floor = max(_LEAST_PRICE * worth, _TINY_PRICE * largest)
    return problem._replace(delay_price=max(problem.delay_price, floor))


def least_costs(problem: RoundProblem) -> Array:
    """What each client [U] costs at the least: if it sends all that it may."""
    cap = problem.keep_max - problem.curvature * problem.keep_max**2 / 2
    return problem.weight - problem.reward * cap


class Search:
    """What solvers of one round share: edges, range of deadlines, the best yet."""

    def __init__(self, problem: RoundProblem, reach: Reach | None = None) -> None:
        """Starts without an allocation; `reach` is `reach_of(problem)` if known."""
        check_problem(problem)
        self.given = problem
        self.edges, self.possible, self.size, self.fewest, self.low = reach or reach_of(
            problem
        )
        self.problem = priced(problem, self.size)
        self.dropped = False  # whether clients were left out of an interval
        self.best = _Incumbent(np.inf, np.inf, None)
        self.gap = 0.0  # how far from the optimum is near enough
        self._seen: dict[bytes, float] = {}
        self._known: list[_Known] = []  # where worthwhile
        if self.size:
            least = np.sort(least_costs(problem)[self.possible.any(1)])
            if problem.may_idle:  # but one client there is
                least[1:] = np.minimum(least[1:], 0.0)
            self.least_cost = float(np.sum(least[: self.size]))

    def everybody(self) -> "Part":
        """The whole problem as a part of it."""
        return Part(np.arange(self.given.num_clients), self.problem, self.edges)

    def match_at(self, deadline: float) -> matching.Matching:
        """The best matching if all must be done by `deadline`."""
        keep = edges_lib.keep_rate_at(self.problem, self.edges, deadline)
        cost, allowed = _cost_of(self.problem, keep), self.edges.first_s <= deadline
        if self.problem.may_idle:
            return matching.worthwhile(cost, allowed)
        if cost.size >= matching.SMALL and self.size == cost.shape[1]:
            open_cost = cost if allowed.all() else np.where(allowed, cost, np.inf)
            everybody = np.arange(len(cost))
            found = self.match_near(open_cost, deadline, everybody)
            if found is not None:
                return found.match
        return matching.cheapest(cost, allowed)

    def nearest(self, deadline: float) -> list[_Known]:
        """What was found so far, at the nearest deadlines first."""
        return sorted(self._known, key=lambda known: abs(known.deadline - deadline))

    def match_near(
        self, cost: Array, deadline: float, numbers: NDArray[np.intp]
    ) -> matching.Priced | None:
        """The cheapest matching of clients with these numbers, from the nearest prices.

        Rows are those of `cost`; None if channels are left over.
        """
        price, likely = None, np.zeros(0, np.intp)
        for known in self.nearest(deadline)[:1]:
            price = known.price
            likely = np.flatnonzero(np.isin(numbers, known.client))
        found = matching.priced(cost, price, likely)
        if found is not None:
            client = numbers[found.match.client]
            self._known.append(_Known(deadline, found.price, client))
        return found

    def learn(self, other: "Search", place: NDArray[np.intp]) -> None:
        """Takes over what is known of fewer clients, whose rows are at `place` here."""
        self._known = [
            known._replace(client=place[known.client]) for known in other._known
        ]
        if other.best.match is not None:
            match = other.best.match
            self.offer(match._replace(client=place[match.client]))

    def offer(self, match: matching.Matching) -> float:
        """Takes a matching at its own best deadline if it is the best yet."""
        if len(match.client) < self.fewest:
            return np.inf
        key = match.client.tobytes() + match.channel.tobytes()
        if key not in self._seen:
            chosen = deadline_lib.choose(
                self.problem, self.edges, match.client, match.channel
            )
            deadline = deadline_lib.best_deadline(self.problem, chosen)
            value = deadline_lib.value_at(self.problem, chosen, deadline)
            self._seen[key] = deadline
            if value < self.best.value:
                self.best = _Incumbent(value, deadline, match)
        return self._seen[key]

    def bounds(
        self, part: "Part", intervals: list[tuple[float, float]]
    ) -> list[tuple[float, "Part"]]:
        """For each [a, b], a value below that of every allocation with such a deadline.

        Also the part of the problem that can still hold a better one there: a client is
        left out if every matching with it is too dear at both ends of the interval (its
        bound is concave in the deadline too).
        """
        if self.is_large(part) or self.problem.may_idle:
            return [self._bound(part, *interval) for interval in intervals]
        # Small problems: most of the time would go into calls, so all share them.
        ends = np.array(intervals)[:, :, None, None]  # [G, 2, 1, 1]
        cost, allowed = tangents(part.problem, part.edges, ends)
        padded = cost
        if not allowed.all():
            dear = 4.0 * (self.size + 1) * (np.max(np.abs(cost)) + 1.0)
            padded = np.where(allowed, cost, dear)
        results = []
        for g, (a, b) in enumerate(intervals):
            least = np.inf
            for e, end in enumerate((a, b)):
                rows, columns = optimize.linear_sum_assignment(padded[g, e])
                kept = allowed[g, 0, rows, columns]
                rows, columns = rows[kept], columns[kept]
                if len(rows) == self.size:
                    cheapest = float(cost[g, e, rows, columns].sum())
                    value = cheapest + self.problem.delay_price * end
                    if value < self.best.value - self.gap:  # else of no use here
                        self.offer(matching.Matching(part.rows[rows], columns, value))
                    least = min(least, value)
            least = max(least, self.least_cost + self.problem.delay_price * a)
            results.append((least, part))
        return results

    def is_large(self, part: "Part") -> bool:
        """Whether one assignment costs more than avoiding it."""
        return part.problem.snr_per_w.size >= matching.SMALL

    def _bound(self, part: "Part", a: float, b: float) -> tuple[float, "Part"]:
        """`bounds` of one interval."""
        ends = np.array([a, b])[:, None, None]
        costs, allowed = tangents(part.problem, part.edges, ends)
        least, useful = np.inf, np.zeros(costs.shape[1], bool)
        for cost, end in zip(costs, (a, b), strict=True):
            below, rows = self._least_match(part, cost, allowed[0], end)
            least = min(least, below + self.problem.delay_price * end)
            useful |= rows
        least = max(least, self.least_cost + self.problem.delay_price * a)
        self.dropped |= not useful.all()
        if not useful.any():  # whatever rounding makes of the bound
            return max(least, self.best.value - self.gap), part
        return least, _restrict(part, useful)

    def _least_match(
        self, part: "Part", cost: Array, allowed: NDArray[np.bool_], deadline: float
    ) -> tuple[float, NDArray[np.bool_]]:
        """The cheapest matching's cost, or less where that is enough to discard it.

        And which clients a better allocation could use. An assignment of many edges
        takes long; prices of an earlier one often prove in one pass that no matching
        here can beat the best allocation.
        """
        everybody = np.ones(len(cost), bool)
        idle, channels = self.problem.may_idle, cost.shape[1]
        if idle:
            if not np.any(allowed & (cost < 0)):  # nobody is worth it: one has to be
                match = matching.worthwhile(cost, allowed)
                self.offer(match._replace(client=part.rows[match.client]))
                return (match.cost if match.client.size else np.inf), everybody
            # Every assignment is allowed, and its pairs that cost nothing are idle.
            cost = matching.at_most_idle(cost, allowed)
            allowed = np.ones(cost.shape, bool)
        full = len(cost) >= channels if idle else self.size == channels
        large = cost.size >= matching.SMALL and full
        enough = self.best.value - self.gap - self.problem.delay_price * deadline
        if not large:
            match = matching.cheapest(cost, allowed)
            if not idle and len(match.client) < self.size:
                return np.inf, ~everybody
            self._offer_part(part.rows, cost, match)
            return match.cost, everybody
        cost = cost if allowed.all() else np.where(allowed, cost, np.inf)
        below = np.full(len(cost), -np.inf)
        for known in self.nearest(deadline)[:3]:
            below = np.maximum(below, matching.dual_bounds(cost, known.price))
            if np.min(below) >= enough:
                return float(np.min(below)), ~everybody
        rows = np.flatnonzero(below < enough)  # nobody else is in a better allocation
        if len(rows) < channels:
            return enough, ~everybody
        cost = cost[rows]
        found = self.match_near(cost, deadline, part.rows[rows])
        if found is None:
            return enough, ~everybody
        self._offer_part(part.rows[rows], cost, found.match)
        useful = np.zeros(len(everybody), bool)
        useful[rows] = found.below < enough
        return min(float(np.min(found.below)), enough), useful

    def _offer_part(
        self, numbers: NDArray[np.intp], cost: Array, match: matching.Matching
    ) -> None:
        """Offers a matching of a part of the clients, without idle channels."""
        rows, columns = match.client, match.channel
        if self.problem.may_idle:
            used = cost[rows, columns] < 0
            rows, columns = rows[used], columns[used]
        self.offer(match._replace(client=numbers[rows], channel=columns))

    def latest(self) -> float:
        """No better allocation has a later deadline than this."""
        worth = (self.best.value - self.least_cost) / self.problem.delay_price
        return min(self.problem.latest_s, max(worth, self.low))

    def result(self, lower_bound: float, nodes: int) -> Allocation:
        """The best allocation found, each client at the least power that is in time."""
        match, problem = self.best.match, self.given
        assert match is not None
        chosen = deadline_lib.choose(problem, self.edges, match.client, match.channel)
        keep = deadline_lib.keep_rates(problem, chosen, self.best.deadline)
        keep = np.maximum(keep, problem.keep_min)  # rounding at the earliest deadline
        bits = problem.bits_fixed + problem.bits_per_rate * keep
        time = self.best.deadline - chosen.base_s
        power = np.expm1(bits / (problem.bandwidth_hz * time) * edges_lib.LN2)
        power = np.minimum(power / chosen.snr_per_w, problem.max_power_w)
        value = deadline_lib.value_at(problem, chosen, self.best.deadline)
        order = np.argsort(match.channel)
        return Allocation(
            *(match.client[order], match.channel[order]),
            *(keep[order], power[order]),
            np.full(len(order), self.best.deadline),
            value,
            min(lower_bound, value),
            nodes,
        )


def descend(search: Search, deadline: float) -> int:
    """Follows the alternation from a deadline; returns how many matchings it took.

    It ends early if nobody is worth a channel at a deadline.
    """
    steps, previous = 0, np.nan
    while np.isfinite(deadline) and deadline != previous and steps < 100:
        previous, deadline = deadline, search.offer(search.match_at(deadline))
        steps += 1
    return steps


def cuts(a: float, b: float, best: float, times: int) -> list[float]:
    """Where to cut an interval: at the best deadline, and near to it if at an end.

    Values rise away from the best deadline, so far intervals may be wide. With `times`,
    so many cuts are made on either side at once, each nearer to it than the last.
    """
    if a < best < b:
        left = cuts(a, best, best, times - 1)
        return [*left, *cuts(best, b, best, times - 1)[1:]]
    nearer = [(b - a) * _NEAR ** (n + 1) for n in range(times)]
    if best <= a:
        return [a, *(a + step for step in reversed(nearer)), b]
    return [a, *(b - step for step in nearer), b]


def branch_and_bound(search: Search, tolerance: float) -> tuple[float, int]:
    """Finds the best allocation; a value that none is below, and intervals looked at.

    What is found is within `tolerance` of the largest reward times K from the optimum.
    """
    problem = search.given
    part = search.everybody()
    large = search.is_large(part)
    descend(search, search.low)
    if not large:  # else bounding finds what the second descent would, for less
        descend(search, search.latest())
    gap = tolerance * float(np.max(problem.reward)) * search.size
    gap = search.gap = max(gap, _ROUNDING * abs(search.best.value), 1e-300)
    low, high = search.low, search.latest()
    # Not bounded yet; the number decides between equal bounds.
    heap = [(-np.inf, 0, low, high, part)]
    nodes, settled = 1, np.inf
    times = 1 if large or problem.may_idle else _CUTS_AT_ONCE
    while heap and nodes < _MOST_NODES:
        bound, _, a, b, part = heapq.heappop(heap)
        if bound >= search.best.value - gap:
            settled = min(settled, bound)
            break
        latest = search.latest()
        intervals = [
            (left, min(right, latest))
            for left, right in itertools.pairwise(
                cuts(a, b, search.best.deadline, times)
            )
            if left <= latest
        ]
        for (left, right), (child, smaller) in zip(
            intervals, search.bounds(part, intervals), strict=True
        ):
            nodes += 1
            child = max(child, bound)
            if child < search.best.value - gap:
                heapq.heappush(heap, (child, nodes, left, right, smaller))
            else:
                settled = min(settled, child)
    lower = min([settled, *(entry[0] for entry in heap)])
    if search.dropped:  # what was left out was only known not to be better by the gap
        lower = min(lower, search.best.value - gap)
    # The least price was added to the problem; take back what it can have raised.
    excess = (search.problem.delay_price - problem.delay_price) * search.latest()
    return min(lower, search.best.value) - excess, nodes
