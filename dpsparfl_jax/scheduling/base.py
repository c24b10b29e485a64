"""What a policy is, and the policies by name."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.config import ScheduleConfig
from dpsparfl_jax.registry import POLICIES
from dpsparfl_jax.scheduling.problem import Allocation, RoundProblem


class Observation(NamedTuple):
    """What a policy sees of a round: the live clients, row by row."""

    round_index: int
    client: NDArray[np.intp]  # [L] their numbers
    size: NDArray[np.int_]  # [L] their records
    problem: RoundProblem  # [L, N]; rewards are lambda / K, K can send


class Policy(Protocol):
    """Chooses who sends. It must not keep state of its own: `plan` returns the next."""

    def init(self, num_clients: int, num_channels: int) -> Any:
        """The state before the first round."""

    def plan(
        self, state: Any, observation: Observation, random: np.random.Generator
    ) -> tuple[Allocation, Any]:
        """The round's allocation (clients are rows of `seen`) and the next state."""


PolicyFactory = Callable[[ScheduleConfig], Policy]
register_policy = POLICIES.register


def make_policy(settings: ScheduleConfig) -> Policy:
    """The policy of that configuration."""
    factory: PolicyFactory = POLICIES.get(settings.policy)
    return factory(settings)
