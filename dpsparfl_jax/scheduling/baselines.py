"""Policies to compare with: random, round robin, delay minimisation.

They send everything (unless the keep rate is fixed) with the largest feasible power,
and skip edges that cannot.
"""

import functools
import math

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.config import ScheduleConfig
from dpsparfl_jax.scheduling import edges as edges_lib
from dpsparfl_jax.scheduling import matching, sifting
from dpsparfl_jax.scheduling.base import Observation, register_policy
from dpsparfl_jax.scheduling.problem import (
    Allocation,
    RoundProblem,
    empty_allocation,
    take_clients,
)

Array = NDArray[np.float64]


class FullRate:
    """Delays and powers of edges at keep rate 1, or the fixed one.

    They are found for the clients that are asked for: `quickest` of ten clients looks
    at ten, however many there are.
    """

    def __init__(self, problem: RoundProblem) -> None:
        """Of all clients of a round."""
        self.problem = problem
        self.keep_rate = problem.full_keep

    @functools.cached_property
    def delay(self) -> Array:
        """[L, N] of every edge; infinite where it cannot."""
        return self.edges()[1]

    @functools.cached_property
    def power(self) -> Array:
        """[L, N] of every edge; 0 where it cannot."""
        return self.edges()[0]

    def edges(self, rows: NDArray[np.intp] | None = None) -> tuple[Array, Array]:
        """Power and delay of all edges [.., N] of these rows, or of all rows."""
        problem = self.problem if rows is None else take_clients(self.problem, rows)
        return _at_full_rate(problem)

    def allocate(
        self, client: NDArray[np.intp], channel: NDArray[np.intp]
    ) -> Allocation:
        """The allocation of these pairs."""
        if client.size == 0:
            return empty_allocation()
        order = np.argsort(channel)
        client, channel = client[order], channel[order]
        keep = np.full(client.shape, self.keep_rate)
        power, delay = self.edges(client)
        pairs = np.arange(len(client)), channel
        return Allocation(
            *(client, channel, keep, power[pairs], delay[pairs]), np.nan, -np.inf, 0
        )

    def quickest(self, rows: NDArray[np.intp]) -> Allocation:
        """As many of these rows as can send, at the least total delay."""
        delay = self.edges(rows)[1]
        possible = np.isfinite(delay)
        match = matching.cheapest(np.where(possible, delay, 0.0), possible)
        return self.allocate(rows[match.client], match.channel)


def _at_full_rate(problem: RoundProblem) -> tuple[Array, Array]:
    bits = problem.bits_fixed + problem.bits_per_rate * problem.full_keep
    power, airtime = edges_lib.fastest(problem, bits)
    delay = problem.base_delay_s[:, None] + airtime
    return power, np.where(delay <= problem.latest_s, delay, np.inf)


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
        channels = observation.problem.num_channels
        order, at_once = random.permutation(len(observation.client)), 2 * channels
        free, pairs = np.ones(channels, bool), []
        for start in range(0, len(order), at_once):
            if not free.any():
                break
            rows = order[start : start + at_once]
            possible = np.isfinite(full.edges(rows)[1])
            for row, can in zip(rows, possible, strict=True):
                usable = np.flatnonzero(free & can)
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
        if group.size == 0:
            return empty_allocation(), state
        wait = (group - turn) % groups  # turns until it is a client's
        rows = np.flatnonzero(wait == np.min(wait))
        allocation = FullRate(observation.problem).quickest(rows)
        return allocation, (groups, int(group[rows[0]] + 1) % groups)


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
        size, least, rows, delay = sifting.quickest(observation.problem, _delays)
        if size == 0:
            return empty_allocation(), None
        allowed = delay <= least
        match = matching.cheapest(np.where(allowed, delay, 0.0), allowed)
        return full.allocate(rows[match.client], match.channel), None


def _delays(problem: RoundProblem) -> Array:
    return _at_full_rate(problem)[1]
