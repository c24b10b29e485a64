"""The round's optimum by brute force: every matching, and a search over (s, P).

Shares nothing with the solvers: a client's keep rate at a deadline comes from a search
over powers, a matching's deadline from a scan refined by golden sections.
"""

import itertools

import numpy as np


def most_bits(problem, client, channel, time):
    """Largest payload within `time`, by ternary search over log power; arrays."""
    snr = problem.snr_per_w[client, channel]
    energy = problem.energy_j[client]
    low = np.full(np.broadcast(time, snr).shape, np.log(1e-9))
    high = np.full_like(low, np.log(problem.max_power_w))

    def bits(log_power):
        power = np.exp(log_power)
        rate = problem.bandwidth_hz * np.log1p(power * snr) / np.log(2)
        return np.minimum(time, np.maximum(energy, 0) / power) * rate

    for _ in range(62):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        better = bits(a) < bits(b)
        low, high = np.where(better, a, low), np.where(better, high, b)
    return np.maximum(bits(low), np.maximum(bits(high), bits((low + high) / 2)))


def phi(problem, clients, channels, deadline):
    """Value of matchings [A, K] at deadlines [A] or [A, M]: inf where impossible."""
    clients, channels = np.asarray(clients), np.asarray(channels)
    deadline = np.asarray(deadline, float)
    if deadline.ndim == 2:
        clients, channels = clients[:, None], channels[:, None]
    time = deadline[..., None] - problem.base_delay_s[clients]
    bits = most_bits(problem, clients, channels, np.maximum(time, 0))
    keep = (bits - problem.bits_fixed) / problem.bits_per_rate
    possible = (keep >= problem.keep_min * (1 - 1e-12)).all(axis=-1)
    keep = np.minimum(keep, problem.keep_max[clients])
    gained = keep - problem.curvature[clients] * keep**2 / 2
    cost = problem.weight[clients] - problem.reward[clients] * gained
    value = cost.sum(axis=-1) + problem.delay_price * deadline
    return np.where(possible, value, np.inf)


def brute_force(problem, longest=3000.0):
    """(size, least value) over the largest matchings; or over all, if one may idle."""
    users, channels = problem.snr_per_w.shape
    longest = min(longest, problem.latest_s)
    found = []
    for size in range(min(users, channels), 0, -1):
        least = least_of_size(problem, size, longest)
        if np.isfinite(least):
            found.append((size, least))
            if not problem.may_idle:
                return found[-1]
    return min(found, key=lambda pair: pair[1], default=(0, 0.0))


def least_of_size(problem, size, longest):
    """Least value over matchings of this size; inf if there is none."""
    users, channels = problem.snr_per_w.shape
    pairs = [
        (clients, chosen)
        for chosen in itertools.combinations(range(channels), size)
        for clients in itertools.permutations(range(users), size)
    ]
    clients = np.array([pair[0] for pair in pairs])
    chosen = np.array([pair[1] for pair in pairs])
    grid = np.geomspace(1.0, longest, 130)
    values = phi(problem, clients, chosen, np.tile(grid, (len(pairs), 1)))
    best = np.argmin(values, axis=1)
    finite = np.isfinite(values[np.arange(len(pairs)), best])
    if not finite.any():
        return np.inf
    clients, chosen, best = clients[finite], chosen[finite], best[finite]
    low = grid[np.maximum(best - 1, 0)]
    high = grid[np.minimum(best + 1, len(grid) - 1)]
    ratio = (np.sqrt(5) - 1) / 2
    least = phi(problem, clients, chosen, high)  # the end of the range too
    for _ in range(48):
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        at_a, at_b = phi(problem, clients, chosen, a), phi(problem, clients, chosen, b)
        least = np.minimum(least, np.minimum(at_a, at_b))
        # Too early is impossible (inf): then the optimum lies to the right.
        left = (at_a < at_b) & np.isfinite(at_a)
        low, high = np.where(left, low, a), np.where(left, b, high)
    return float(np.min(least))
