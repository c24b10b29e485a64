"""Assignments with forbidden edges and as many pairs as possible."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, sparse
from scipy.sparse import csgraph

Array = NDArray[np.float64]


_FIRST_STRIDE = 1.05  # by which a bottleneck's first guess grows
_ROUNDING = 1e-10  # relative, of a cost
SMALL = 3000  # edges below which one assignment is cheaper than avoiding it


class Matching(NamedTuple):
    """Pairs of clients and channels, and what they cost together."""

    client: NDArray[np.intp]
    channel: NDArray[np.intp]
    cost: float


def cheapest(cost: Array, allowed: NDArray[np.bool_]) -> Matching:
    """Cheapest matching [U, N] among those with as many allowed pairs as possible.

    A forbidden edge costs more than any real matching could save, so the assignment
    takes one only where it must; those are dropped.
    """
    if allowed.all():
        rows, columns = _assign(cost)
    else:
        largest = np.abs(np.where(allowed, cost, 0.0)).max()
        dear = 4.0 * (min(cost.shape) + 1) * (largest + 1.0)
        rows, columns = _assign(np.where(allowed, cost, dear))
        kept = allowed[rows, columns]
        if not kept.all():
            rows, columns = rows[kept], columns[kept]
    return Matching(rows, columns, float(cost[rows, columns].sum()))


_NOBODY = np.zeros(0, np.intp)


class Priced(NamedTuple):
    """A cheapest matching of all channels, and what proves it."""

    match: Matching
    price: Array  # [N] of the channels
    below: Array  # [U] `dual_bounds` of these prices


def priced(
    cost: Array, price: Array | None, likely: NDArray[np.intp] = _NOBODY
) -> Priced | None:
    """The cheapest matching of all channels and its proof; None if there is none.

    Forbidden edges cost inf. Prices of a similar problem make it quick: clients whose
    reduced cost is small are assigned first, with costs reduced by both sides' prices
    (an assignment then finds most pairs at once), together with those who are `likely`
    to be matched; new prices tell whether somebody who was left out could do better.
    """
    channels = cost.shape[1]
    if len(cost) < channels:
        return None
    if price is None:
        plain = cheapest(cost, np.isfinite(cost))
        if len(plain.client) < channels:
            return None
        price = potentials(cost, plain)
        return Priced(plain, price, dual_bounds(cost, price))
    least = np.min(cost - price, axis=1)
    wanted = min(len(cost), channels + max(16, channels // 4))
    rows = np.union1d(np.argpartition(least, wanted - 1)[:wanted], likely)
    while len(rows) < 3 * channels:
        match = _assign_reduced(cost[rows], price, least[rows])
        if match is None:
            break
        match = match._replace(client=rows[match.client])
        price = potentials(cost, match)
        below = dual_bounds(cost, price)
        better = below < match.cost - _ROUNDING * (1 + np.abs(match.cost))
        better[rows] = False
        if not better.any():
            return Priced(match, price, below)
        rows = np.union1d(rows, np.flatnonzero(better))
        least = np.min(cost - price, axis=1)
    return priced(cost, None)


def _assign_reduced(cost: Array, price: Array, least: Array) -> Matching | None:
    """A cheapest matching of all channels; `least` [U] is min over k (cost - price).

    Clients without a channel take a column of their own that costs nothing: then all
    are assigned, and costs may be reduced by prices of clients too.
    """
    many, channels = cost.shape
    threshold = np.partition(least, channels - 1)[channels - 1]
    if not np.isfinite(threshold):
        return None
    own = np.minimum(least, threshold)[:, None]
    reduced = np.empty((many, many))
    reduced[:, :channels] = cost - price - own
    reduced[:, channels:] = threshold - own
    dear = 4.0 * (many + 1) * (np.max(reduced[np.isfinite(reduced)]) + 1.0)
    rows, columns = optimize.linear_sum_assignment(
        np.where(np.isfinite(reduced), reduced, dear)
    )
    rows, columns = rows[columns < channels], columns[columns < channels]
    total = float(cost[rows, columns].sum())
    return Matching(rows, columns, total) if np.isfinite(total) else None


def worthwhile(cost: Array, allowed: NDArray[np.bool_]) -> Matching:
    """Cheapest matching [U, N] with at least one pair, if one is allowed.

    No pair of it costs 0 or more, unless all do: then it is the cheapest alone.
    """
    cheapest_pair = np.argmin(np.where(allowed, cost, np.inf))
    row, column = np.unravel_index(cheapest_pair, cost.shape)
    if not allowed[row, column] or cost[row, column] >= 0:
        count = int(allowed[row, column])  # of pairs
        rows, columns = np.array([row])[:count], np.array([column])[:count]
        return Matching(rows, columns, float(cost[rows, columns].sum()))
    clipped = at_most_idle(cost, allowed)
    rows, columns = _assign(clipped)
    good = clipped[rows, columns] < 0
    rows, columns = rows[good], columns[good]
    return Matching(rows, columns, float(clipped[rows, columns].sum()))


def at_most_idle(cost: Array, allowed: NDArray[np.bool_]) -> Array:
    """What each edge costs if its channel may stay idle instead, for nothing."""
    return np.where(allowed, np.minimum(cost, 0.0), 0.0)


def _assign(cost: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Cheapest assignment of all columns (or rows, if fewer).

    With many more rows than columns, only rows among the N cheapest of some column
    matter: of those N, the other N - 1 columns leave one free.
    """
    many, few = cost.shape
    if many < 3 * few or cost.size < SMALL:
        return optimize.linear_sum_assignment(cost)
    cheap = np.argpartition(cost, few - 1, axis=0)[:few]
    rows = np.unique(cheap)
    chosen, columns = optimize.linear_sum_assignment(cost[rows])
    return rows[chosen], columns


def largest_size(allowed: NDArray[np.bool_]) -> int:
    """How many pairs the largest matching has."""
    if allowed.all():
        return min(allowed.shape)
    if allowed.size < SMALL:
        rows, columns = optimize.linear_sum_assignment(allowed, maximize=True)
        return int(np.sum(allowed[rows, columns]))
    matched = csgraph.maximum_bipartite_matching(sparse.csr_matrix(allowed))
    return int(np.sum(matched >= 0))


def short_of(allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """[N] channels that together can be used by fewer clients than they are.

    They are those from which a channel that stays free can be reached by exchanging
    pairs of a largest matching; none if all channels are used.
    """
    graph = sparse.csr_matrix(allowed.T)
    client = csgraph.maximum_bipartite_matching(graph, perm_type="column")
    found, before = client < 0, -1
    while np.sum(found) > before:
        before = int(np.sum(found))
        found |= np.isin(client, np.flatnonzero(allowed[:, found].any(axis=1)))
    return found


def potentials(cost: Array, match: Matching) -> Array:
    """Prices v [N] of the channels that prove a matching of all channels cheapest.

    v_k - v_j <= min(cost of j's client on k, least cost of an idle client on k) - cost
    of j's client on j, for all j and k: shortest paths, without negative cycles because
    the matching is optimal.
    """
    matched = np.empty(len(match.channel), np.intp)
    matched[match.channel] = match.client
    idle = np.ones(len(cost), bool)
    idle[match.client] = False
    other = np.min(cost[idle], axis=0) if idle.any() else np.full(len(matched), np.inf)
    client_cost = cost[matched]  # [N, N]: j's client on k
    step = np.minimum(client_cost, other) - np.diag(client_cost)[:, None]
    price = np.zeros(len(matched))
    for _ in range(len(matched)):
        shorter = np.minimum(price, np.min(price[:, None] + step, axis=0))
        if np.max(price - shorter) <= 1e-12:
            break
        price = shorter
    return price


def dual_bounds(cost: Array, price: Array) -> Array:
    """Per client [U], a bound on all matchings of all channels that use it.

    Whatever the prices: a client on channel j costs v_j + (cost - v_j) >= v_j + m_i,
    m_i = min_k (cost_ik - v_k), and N different clients are used.
    """
    least = np.min(cost - price, axis=1)
    if len(least) < len(price):
        return np.full(len(cost), np.inf)
    smallest = np.partition(least, len(price) - 1)[: len(price)]
    if not np.isfinite(np.max(smallest)):  # too few clients: no such matching
        return np.full(len(cost), np.inf)
    total = np.sum(price) + np.sum(smallest)
    return total + np.maximum(least - np.max(smallest), 0.0)


def level_of(cost: Array, price: Array, needed: float) -> Array | None:
    """Costs [N] from which on clients who are not among these [U] cannot help.

    If others cost at least so much on every channel, each matching of all channels
    costs `needed` or more, whoever is in it; None if these clients alone may cost less.
    Their reduced costs are at least T then, and of N clients the sum of prices and of
    min(m_i, T) over the N least m_i of these is a bound: T is the least that suffices.
    """
    channels = len(price)
    least = np.full(channels, np.inf)
    own = np.min(cost - price, axis=1)
    count = min(channels, len(own))
    least[:count] = np.sort(np.partition(own, count - 1)[:count])
    above = np.append(0.0, np.cumsum(least[:-1]))  # of the k least, without T
    needed = needed - float(np.sum(price))
    level = (needed - above) / (channels - np.arange(channels))
    fits = level <= least
    if not fits.any():
        return None
    return price + float(level[np.argmax(fits)])


def bottleneck(delay: Array, size: int) -> float:
    """Least d such that the edges with delay <= d carry a matching of `size` pairs.

    Each of the `size` pairs has a channel of its own, so d is at least the size-th
    smallest of the channels' least delays (and of the clients'). Often it is that;
    else delays above it are taken in, more and more, and then searched by halves.
    """
    best_columns = np.partition(np.min(delay, axis=0), size - 1)[size - 1]
    best_rows = np.partition(np.min(delay, axis=1), size - 1)[size - 1]
    start = bound = max(best_columns, best_rows)
    factor = _FIRST_STRIDE
    while largest_size(delay <= bound) < size:
        bound = bound * factor + np.finfo(float).tiny
        factor *= factor
    if bound == start:
        return float(start)
    values = np.unique(delay[(delay > start) & (delay <= bound)])
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        if largest_size(delay <= values[middle]) >= size:
            high = middle
        else:
            low = middle + 1
    return float(values[low])
