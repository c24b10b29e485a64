"""Policies to compare with: random, round robin, delay minimisation.

They send everything (unless the keep rate is fixed) with the largest feasible power,
and skip edges that cannot.
"""

import math

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.config import ScheduleConfig
from dpsparfl_jax.scheduling import edges as edges_lib
from dpsparfl_jax.scheduling import matching
from dpsparfl_jax.scheduling.base import Observation, register_policy
from dpsparfl_jax.scheduling.problem import (
    Allocation,
    RoundProblem,
    empty_allocation,
)

Array = NDArray[np.float64]


class FullRate:
    """Delays and powers of every edge [L, N] at keep rate 1, or the fixed one."""

    def __init__(self, problem: RoundProblem) -> None:
        """Finds them; infinite where an edge cannot."""
        bits = problem.bits_fixed + problem.bits_per_rate * problem.full_keep
        self.keep_rate = problem.full_keep
        self.power, airtime = edges_lib.fastest(problem, bits)
        delay = problem.base_delay_s[:, None] + airtime
        self.delay = np.where(delay <= problem.latest_s, delay, np.inf)

    def allocate(
        self, client: NDArray[np.intp], channel: NDArray[np.intp]
    ) -> Allocation:
        """The allocation of these pairs."""
        if client.size == 0:
            return empty_allocation()
        order = np.argsort(channel)
        client, channel = client[order], channel[order]
        keep = np.full(client.shape, self.keep_rate)
        power, delay = self.power[client, channel], self.delay[client, channel]
        return Allocation(client, channel, keep, power, delay, np.nan, -np.inf, 0)

    def quickest(self, rows: NDArray[np.intp]) -> Allocation:
        """As many of these rows as can send, at the least total delay."""
        delay = self.delay[rows]
        possible = np.isfinite(delay)
        match = matching.cheapest(np.where(possible, delay, 0.0), possible)
        return self.allocate(rows[match.client], match.channel)


class Stateless:
    """A policy without memory."""

    def init(self, num_clients: int, num_channels: int) -> None:
        """Nothing to remember."""


@register_policy("random")
class RandomPolicy(Stateless):
    """Clients in random order, each on a random free channel that it can use."""

    prices_delay = False

    def __init__(self, settings: ScheduleConfig) -> None:
        """Needs no setting."""

    def plan(
        self, state: None, observation: Observation, random: np.random.Generator
    ) -> tuple[Allocation, None]:
        """Draws clients until all channels are taken or nobody is left."""
        full = FullRate(observation.problem)
        free = np.ones(observation.problem.num_channels, bool)
        pairs = []
        for row in random.permutation(len(observation.client)):
            usable = np.flatnonzero(free & np.isfinite(full.delay[row]))
            if usable.size:
                channel = random.choice(usable)
                free[channel] = False
                pairs.append((row, channel))
        chosen = np.array(pairs, np.intp).reshape(-1, 2)
        return full.allocate(chosen[:, 0], chosen[:, 1]), None


@register_policy("round_robin")
class RoundRobinPolicy:
    """ceil(U / N) fixed groups of clients in turn, groups without live clients skipped.

    Within a group, channels are matched for the least total delay.
    """

    prices_delay = False

    def __init__(self, settings: ScheduleConfig) -> None:
        """Needs no setting."""

    def init(self, num_clients: int, num_channels: int) -> tuple[int, int]:
        """(number of groups, group whose turn it is)."""
        return math.ceil(num_clients / num_channels), 0

    def plan(
        self,
        state: tuple[int, int],
        observation: Observation,
        random: np.random.Generator,
    ) -> tuple[Allocation, tuple[int, int]]:
        """The next group that has a live client."""
        groups, turn = state
        group = observation.client // observation.problem.num_channels
        for step in range(groups):
            rows = np.flatnonzero(group == (turn + step) % groups)
            if rows.size:
                allocation = FullRate(observation.problem).quickest(rows)
                return allocation, (groups, (turn + step + 1) % groups)
        return empty_allocation(), state


@register_policy("delay_min")
class DelayMinPolicy(Stateless):
    """The clients and matching of the least round delay (exact bottleneck)."""

    prices_delay = False

    def __init__(self, settings: ScheduleConfig) -> None:
        """Needs no setting."""

    def plan(
        self, state: None, observation: Observation, random: np.random.Generator
    ) -> tuple[Allocation, None]:
        """Among matchings of the least delay, one of the least total delay."""
        full = FullRate(observation.problem)
        size = matching.largest_size(np.isfinite(full.delay))
        if size == 0:
            return empty_allocation(), None
        allowed = full.delay <= matching.bottleneck(full.delay, size)
        match = matching.cheapest(np.where(allowed, full.delay, 0.0), allowed)
        return full.allocate(match.client, match.channel), None
