"""What every accountant is, and the accountants by name."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy.mechanism import Mechanism
from dpsparfl_jax.registry import ACCOUNTANTS


class Accountant(Protocol):
    """Turns a mechanism into epsilon; every value is an upper bound.

    Registered as a class without arguments. The guarantee is for one record of one
    client against a null record. An accountant may use what `Mechanism` says and
    nothing else: all of that is public.

    Examples:
        >>> import numpy as np
        >>> from dpsparfl_jax.privacy.accountants import make_accountant
        >>> from dpsparfl_jax.privacy.mechanism import Mechanism, Release
        >>> release = Release(sampling_rate=0.01, noise_multiplier=0.6, count=60)
        >>> mechanism = Mechanism(release, delta=1e-3)
        >>> counts = np.array([1, 10])
        >>> make_accountant("rdp").epsilon(mechanism, counts).round(2)
        array([2.55, 4.78])
    """

    @property
    def name(self) -> str:
        """How it is chosen and reported."""

    @property
    def version(self) -> str:
        """Changes whenever the same input may give another number.

        Epsilon curves that are kept on disk are named by it.
        """

    def epsilon(
        self, mechanism: Mechanism, participations: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Epsilon after each number of participations.

        Args:
            mechanism: what a client releases, and the delta it is judged at. Batches
                that are cut off and the end of the noise are paid for by using
                `mechanism.delta_left`, and `mechanism.setup`, if there is one, is
                composed with everything.
            participations: numbers of participations [K], 0 among them.

        Returns:
            Epsilon [K]; infinite where there is no finite bound.
        """


def make_accountant(name: str) -> Accountant:
    """The accountant registered under that name.

    Its curves are kept under the name that it calls itself, so that must be the same: a
    class that inherits another's name would be given, and overwrite, the other's.
    """
    factory: Any = ACCOUNTANTS.get(name)
    accountant: Accountant = factory()
    if accountant.name != name:
        raise InputError(
            f"the accountant registered as {name!r} calls itself {accountant.name!r}: "
            f'set its attribute name = "{name}".'
        )
    return accountant


def all_accountants() -> dict[str, Accountant]:
    """Every registered accountant by its name."""
    return {name: make_accountant(name) for name in ACCOUNTANTS}
