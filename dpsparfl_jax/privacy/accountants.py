"""The accountants by name, and what every accountant is."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy.mechanism import Mechanism
from dpsparfl_jax.privacy.pld import PldAccountant
from dpsparfl_jax.privacy.rdp import RdpAccountant


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


ACCOUNTANTS: dict[str, Accountant] = {"rdp": RdpAccountant(), "pld": PldAccountant()}


def make_accountant(name: str) -> Accountant:
    """The accountant of that name."""
    if name not in ACCOUNTANTS:
        known = ", ".join(ACCOUNTANTS)
        raise InputError(f"unknown accountant {name!r}: choose one of {known}.")
    return ACCOUNTANTS[name]
