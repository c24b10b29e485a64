"""A policy of the user's own, asked so that whatever it does wrong is said in words.

Where its code fails, the sentence names the round, the file and the line, and the
exception is kept as its cause. What it returns is checked in every round. The package's
own policies are asked as they are: tests hold them to the same checks.
"""

import pathlib
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from dpsparfl_jax.config import ScheduleConfig
from dpsparfl_jax.errors import InputError, OwnCodeError, first_line
from dpsparfl_jax.registry import POLICIES, SOLVERS
from dpsparfl_jax.scheduling.base import Observation, Policy, make_policy
from dpsparfl_jax.scheduling.checking import check_allocation
from dpsparfl_jax.scheduling.problem import Allocation

_HOW_TO_SEE = "fl.plan(settings) in Python shows the whole traceback."


def ask(settings: ScheduleConfig) -> Policy:
    """The policy of these settings; checked, if it or its solver is the user's own."""
    ours = POLICIES.is_built_in(settings.policy), SOLVERS.is_built_in(settings.solver)
    return make_policy(settings) if all(ours) else AskedPolicy(settings)


class AskedPolicy:
    """A policy whose mistakes are told as one sentence."""

    def __init__(self, settings: ScheduleConfig) -> None:
        """Makes the policy; says so if its class cannot be made."""
        self._name = f"policy {settings.policy!r}"
        if not SOLVERS.is_built_in(settings.solver):
            self._name += f" with solver {settings.solver!r}"
        with self._telling("when it was made from the run's ScheduleConfig"):
            self._policy = make_policy(settings)
        self.prices_delay = getattr(self._policy, "prices_delay", True)

    def init(self, num_clients: int, num_channels: int) -> Any:
        """The state before the first round."""
        with self._telling("in init, before the first round"):
            return self._policy.init(num_clients, num_channels)

    def plan(
        self, state: Any, observation: Observation, random: np.random.Generator
    ) -> tuple[Allocation, Any]:
        """Decides one round; refuses what cannot be carried out."""
        when = f"in round {observation.round_index + 1}"
        with self._telling(when):
            returned: Any = self._policy.plan(state, observation, random)
        wrong = _not_a_pair(returned)
        if wrong:
            raise OwnCodeError(
                f"{self._name} returned {wrong} {when}: plan returns an Allocation and "
                "the next state, as in `return allocation, state`."
            )
        allocation, following = returned
        try:
            check_allocation(observation.problem, allocation)
        except InputError as wrong_entry:
            raise OwnCodeError(
                f"{self._name} returned an allocation {when} that cannot be carried "
                f"out: {wrong_entry}"
            ) from None
        return allocation, following

    @contextmanager
    def _telling(self, when: str) -> Iterator[None]:
        try:
            yield
        except MemoryError:  # says by itself what to do
            raise
        except Exception as reason:
            what = f"{type(reason).__name__}: {first_line(reason, 'no message')}"
            raise OwnCodeError(
                f"{self._name} failed {when}: {what}{_place(reason)}. {_HOW_TO_SEE}"
            ) from reason


def _not_a_pair(returned: Any) -> str:
    """What a policy returned in words, if it is no allocation with a state."""
    if isinstance(returned, Allocation):
        return "an Allocation without a state"
    if not isinstance(returned, tuple) or len(returned) != 2:
        return "None" if returned is None else _typed(returned)
    if not isinstance(returned[0], Allocation):
        return f"{_typed(returned[0])} instead of an Allocation"
    return ""


def _typed(value: Any) -> str:
    return f"a value of type {type(value).__name__}"


def _place(reason: BaseException) -> str:
    """Where the policy's own code was last: file, line and function."""
    frames = [
        frame
        for frame in traceback.extract_tb(reason.__traceback__)
        if frame.filename != __file__
    ]
    entered = [frame for frame in frames if not _is_ours(frame.filename)]
    if not entered:
        return ""
    own = [frame for frame in entered if frame.filename == entered[0].filename][-1]
    return f" ({pathlib.Path(own.filename).name}, line {own.lineno}, in {own.name})"


def _is_ours(file: str) -> bool:
    return pathlib.Path(file).is_relative_to(pathlib.Path(__file__).parents[1])
