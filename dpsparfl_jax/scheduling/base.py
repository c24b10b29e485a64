"""What a policy is, and the policies by name."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.config import ScheduleConfig
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.registry import POLICIES
from dpsparfl_jax.scheduling.problem import Allocation, RoundProblem


class Budgets(Protocol):
    """What clients asked for and have spent before a round: a ledger. All [U]."""

    @property
    def budget(self) -> NDArray[np.float64]:
        """Epsilon asked."""

    @property
    def affordable(self) -> NDArray[np.int64]:
        """Participations that it affords."""

    @property
    def participations(self) -> NDArray[np.int64]:
        """So far."""

    @property
    def epsilon_spent(self) -> NDArray[np.float64]:
        """So far."""


class Observation(NamedTuple):
    """What a policy sees of a round: the live clients, row by row.

    Row k of every array is the live client number `client[k]`; clients that cannot
    afford another participation are not there. Nothing in it depends on a record, a
    gradient or a loss. What budgets tell is found when it is asked for.

    Shapes: L live clients, N channels.

    Examples:
        >>> import dpsparfl_jax as fl
        >>> from dpsparfl_jax.scheduling.problem import empty_allocation
        >>> @fl.register_policy("look")
        ... class Look:
        ...     def __init__(self, settings):
        ...         pass
        ...     def init(self, num_clients, num_channels):
        ...         return None
        ...     def plan(self, state, observation, random):
        ...         print(observation.client[:3], observation.size[:3])
        ...         print(observation.problem.num_channels, "channels")
        ...         return empty_allocation(), state
        >>> settings = fl.RunConfig(
        ...     schedule=fl.ScheduleConfig(policy="look"),
        ...     length=fl.LengthConfig(rounds=1),
        ... )
        >>> schedule = fl.plan(settings)
        [0 1 2] [1000 1000 1000]
        5 channels
    """

    round_index: int  # from 0
    client: NDArray[np.intp]  # [L] their numbers
    size: NDArray[np.int_]  # [L] their records
    problem: RoundProblem  # [L, N]; rewards are lambda / K, K can send
    ledger: Budgets | None = None  # of all clients [U], before this round

    @property
    def participations(self) -> NDArray[np.int64]:
        """[L] how often each has taken part."""
        return self._ledger.participations[self.client]

    @property
    def participations_left(self) -> NDArray[np.int64]:
        """[L] how often each may still take part, this round included: at least 1."""
        return self._ledger.affordable[self.client] - self.participations

    @property
    def epsilon_asked(self) -> NDArray[np.float64]:
        """[L] the epsilon that each must not exceed."""
        return self._ledger.budget[self.client]

    @property
    def epsilon_spent(self) -> NDArray[np.float64]:
        """[L] what each has spent of it."""
        return self._ledger.epsilon_spent[self.client]

    @property
    def _ledger(self) -> Budgets:
        if self.ledger is None:
            raise InputError("an observation that is made without a ledger has none.")
        return self.ledger


class Policy(Protocol):
    """Chooses who sends in each round.

    A policy is registered as a class that is given the `ScheduleConfig` of the run. It
    keeps no state of its own between rounds: `plan` returns the next state and leaves
    the one it was given as it is. The same state, observation and random generator must
    give the same allocation. A policy that does not look at the price of delay says so
    by `prices_delay = False`; its delay queue starts empty.

    Examples:
        One client after the other, alone, on its quickest channel:

        >>> import numpy as np
        >>> import dpsparfl_jax as fl
        >>> from dpsparfl_jax.scheduling.baselines import FullRate
        >>> @fl.register_policy("one_by_one")
        ... class OneByOne:
        ...     def __init__(self, settings):
        ...         pass
        ...     def init(self, num_clients, num_channels):
        ...         return 0  # whose turn it is
        ...     def plan(self, turn, observation, random):
        ...         rows = np.array([turn % len(observation.client)])
        ...         return FullRate(observation.problem).quickest(rows), turn + 1
        >>> settings = fl.RunConfig(
        ...     schedule=fl.ScheduleConfig(policy="one_by_one"),
        ...     length=fl.LengthConfig(rounds=3),
        ... )
        >>> fl.plan(settings).client.max(axis=1)
        array([0, 1, 2])
    """

    def init(self, num_clients: int, num_channels: int) -> Any:
        """The state before the first round.

        Args:
            num_clients: all clients U, also those who can never take part.
            num_channels: uplink channels N.

        Returns:
            Any value; the first call of `plan` gets it.
        """

    def plan(
        self, state: Any, observation: Observation, random: np.random.Generator
    ) -> tuple[Allocation, Any]:
        """Decides one round.

        Args:
            state: what `init` or the last call returned; not to be changed in place.
            observation: the live clients and the round's problem, [L] and [L, N].
            random: a generator of this seed and round, the only randomness allowed.

        Returns:
            The allocation, whose `client` are rows of the observation (not client
            numbers), each client and channel at most once; and the next state.
        """


PolicyFactory = Callable[[ScheduleConfig], Policy]
register_policy = POLICIES.register


def make_policy(settings: ScheduleConfig) -> Policy:
    """The policy of that configuration."""
    factory: PolicyFactory = POLICIES.get(settings.policy)
    return factory(settings)
