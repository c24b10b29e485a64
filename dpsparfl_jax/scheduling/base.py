"""What a policy is, and the policies by name."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.config import ScheduleConfig
from dpsparfl_jax.errors import InputError
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
        self, state: Any, seen: Observation, random: np.random.Generator
    ) -> tuple[Allocation, Any]:
        """The round's allocation (clients are rows of `seen`) and the next state."""


PolicyFactory = Callable[[ScheduleConfig], Policy]
_REGISTRY: dict[str, PolicyFactory] = {}


def register_policy(name: str) -> Callable[[PolicyFactory], PolicyFactory]:
    """Makes a policy available by name; `factory(settings)` builds it."""

    def add(factory: PolicyFactory) -> PolicyFactory:
        if name in _REGISTRY:
            raise InputError(f"there is already a policy named {name!r}.")
        _REGISTRY[name] = factory
        return factory

    return add


def policy_names() -> tuple[str, ...]:
    """All registered names, sorted."""
    return tuple(sorted(_REGISTRY))


def make_policy(settings: ScheduleConfig) -> Policy:
    """The policy of that configuration."""
    if settings.policy not in _REGISTRY:
        raise InputError(
            f"unknown policy {settings.policy!r}: choose one of "
            f"{', '.join(policy_names())}."
        )
    return _REGISTRY[settings.policy](settings)
