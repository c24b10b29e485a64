"""What every accountant is, and the accountants by name."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.privacy.mechanism import Mechanism
from dpsparfl_jax.registry import ACCOUNTANTS


class Accountant(Protocol):
    """Turns a mechanism into epsilon; every value is an upper bound."""

    @property
    def name(self) -> str:
        """How it is chosen and reported."""

    @property
    def version(self) -> str:
        """Changes whenever the same input may give another number."""

    def epsilon(
        self, mechanism: Mechanism, participations: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Epsilon at the mechanism's delta after each number of participations."""


def make_accountant(name: str) -> Accountant:
    """The accountant registered under that name."""
    factory: Any = ACCOUNTANTS.get(name)
    return factory()


def all_accountants() -> dict[str, Accountant]:
    """Every registered accountant by its name."""
    return {name: make_accountant(name) for name in ACCOUNTANTS}
