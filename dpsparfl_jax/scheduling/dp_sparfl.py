"""The paper's policy: Lyapunov drift plus penalty, with a choice of solvers."""

from collections.abc import Callable

import numpy as np

from dpsparfl_jax.config import ScheduleConfig
from dpsparfl_jax.registry import SOLVERS
from dpsparfl_jax.scheduling.base import Observation, register_policy
from dpsparfl_jax.scheduling.baselines import Stateless
from dpsparfl_jax.scheduling.problem import Allocation, RoundProblem, take_clients

Solver = Callable[[RoundProblem], Allocation]
_LINEARISATIONS = 2


@register_policy("dp_sparfl")
class DpSparflPolicy(Stateless):
    """Minimises drift plus penalty of the round.

    The weights p_i = |D_i| / sum over the selected depend on who is selected. With
    equal sizes they are 1/K. Otherwise the set is first chosen with 1/K, then twice
    with a linearisation of the true reward around the best set yet, and for each set
    the keep rates are solved with its true weights; the best true value wins.
    Departs: BUILD_NOTES "weights of the selected set".
    """

    def __init__(self, settings: ScheduleConfig) -> None:
        """Takes the solver and the tradeoff from the settings."""
        self._solve: Solver = SOLVERS.get(settings.solver)
        self._tradeoff = settings.tradeoff

    def plan(
        self, state: None, observation: Observation, random: np.random.Generator
    ) -> tuple[Allocation, None]:
        """The best allocation that the solver finds."""
        first = self._solve(observation.problem)
        same = np.all(observation.size == observation.size[:1])
        if first.client.size == 0 or same or observation.problem.may_idle:
            return first, None
        latest = best = self._with_true_weights(observation, first)
        for _ in range(_LINEARISATIONS):
            again = self._solve(self._linearised(observation, latest))
            latest = self._with_true_weights(observation, again)
            best = min(best, latest, key=lambda allocation: allocation.value)
        return best._replace(lower_bound=-np.inf), None

    def _with_true_weights(
        self, observation: Observation, chosen: Allocation
    ) -> Allocation:
        """The allocation of the same clients, solved again with their own weights."""
        rows = chosen.client
        sizes = observation.size[rows]
        only = take_clients(observation.problem, rows)
        reward = self._tradeoff * sizes / np.sum(sizes)
        found = self._solve(only._replace(reward=reward))
        return found._replace(client=rows[found.client])

    def _linearised(self, observation: Observation, best: Allocation) -> RoundProblem:
        """d/dx of sum D_i s_i / sum D_i at the best set: lambda D_i (s_i - rho) / D."""
        problem, sizes = observation.problem, observation.size[best.client]
        total = np.sum(sizes)
        gained = best.keep_rate - problem.curvature[best.client] * best.keep_rate**2 / 2
        mean = np.sum(sizes * gained) / total
        share = self._tradeoff * observation.size / total
        return problem._replace(reward=share, weight=problem.weight + share * mean)
