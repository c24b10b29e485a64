"""The ledger of a run: who spent how much, and who may still take part.

A client is charged when its update is computed, whether or not the update is received,
aggregated or found to have diverged: its records were used. It is live only while one
more participation stays within its own epsilon, so it retires before the round that
would overspend. All of this depends on public constants alone (sampling rates, noise,
counts), so retiring tells nothing about records.
"""

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy.curves import CurveStore, affordable_each
from dpsparfl_jax.privacy.mechanism import ClientGroups


@dataclasses.dataclass(frozen=True, eq=False)
class Ledger:
    """An immutable account of U clients; `charge` returns the next one."""

    budget: NDArray[np.float64]  # [U] epsilon asked
    affordable: NDArray[np.int64]  # [U] participations T-hat
    participations: NDArray[np.int64]  # [U] so far
    curves: NDArray[np.float64]  # [G, K] epsilon after k participations
    group: NDArray[np.intp]  # [U] row of `curves`

    @property
    def live(self) -> NDArray[np.bool_]:
        """[U] who may take part in the next round."""
        return self.participations < self.affordable

    @property
    def epsilon_spent(self) -> NDArray[np.float64]:
        """[U] so far; a client that can never take part is asked for nothing."""
        spent = self.curves[self.group, self.participations]
        return np.where(self.affordable > 0, spent, 0.0)

    @property
    def epsilon_next(self) -> NDArray[np.float64]:
        """[U] after one more participation."""
        return self.curves[self.group, self.participations + 1]

    def charge(self, clients: ArrayLike) -> "Ledger":
        """The ledger after one more participation of these clients (numbers)."""
        numbers = np.asarray(clients)
        if numbers.size == 0:
            return self
        size = len(self.participations)
        whole = numbers.ndim == 1 and np.issubdtype(numbers.dtype, np.integer)
        if not whole or np.min(numbers) < 0 or np.max(numbers) >= size:
            raise InputError(f"clients are a list of numbers from 0 to {size - 1}.")
        added = np.bincount(numbers, minlength=size)
        if np.max(added) > 1:
            raise InputError("a client takes part once a round, not twice.")
        after = self.participations + added
        if np.any(after > self.affordable):
            late = int(np.flatnonzero(after > self.affordable)[0])
            raise InputError(
                f"client {late} has retired: another participation would exceed its "
                f"epsilon of {self.budget[late]:g}."
            )
        return dataclasses.replace(self, participations=after)


def open_ledger(
    budgets: NDArray[np.float64], groups: ClientGroups, store: CurveStore, *, limit: int
) -> Ledger:
    """A fresh ledger; nobody takes part more than `limit` times."""
    if budgets.shape != groups.group.shape:
        raise InputError(
            f"{budgets.size} epsilons are given for {groups.group.size} clients."
        )
    curves = []
    counts = np.zeros(budgets.shape, np.int64)
    members = groups.members()
    for mechanism, clients in zip(groups.mechanisms, members, strict=True):
        asked = budgets[clients]
        most = float(np.max(asked))
        curves.append(store.curve(mechanism, max_epsilon=most, limit=limit))
        counts[clients] = affordable_each(curves[-1], asked, limit)
    # One entry beyond what anybody affords: what the next participation would cost.
    table = np.full((len(curves), int(np.max(counts)) + 2), np.inf)
    for row, curve in zip(table, curves, strict=True):
        length = min(len(curve), len(row))
        row[:length] = curve[:length]
    return Ledger(budgets, counts, np.zeros_like(counts), table, groups.group)


def non_private_ledger(num_clients: int, limit: int) -> Ledger:
    """For runs without noise: everybody may take part, at infinite epsilon."""
    curve = np.full((1, limit + 2), np.inf)
    curve[0, 0] = 0.0
    return Ledger(
        np.full(num_clients, np.inf),
        np.full(num_clients, limit, np.int64),
        np.zeros(num_clients, np.int64),
        curve,
        np.zeros(num_clients, np.intp),
    )
