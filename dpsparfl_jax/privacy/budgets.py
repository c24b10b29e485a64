"""How much epsilon each client allows, and how often it should take part."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsparfl_jax import rng
from dpsparfl_jax.errors import InputError


def draw_budgets(
    seed: int, num_clients: int, low: float, high: float
) -> NDArray[np.float64]:
    """Epsilon of every client [U], uniform in [low, high] (paper: Setup, 2 to 10)."""
    if not 0 < low <= high < np.inf:
        raise InputError(
            "budgets are drawn between a positive lowest and a larger highest epsilon, "
            f"not between {low:g} and {high:g}."
        )
    return rng.host_stream(seed, "budgets").uniform(low, high, num_clients)


def spread_budgets(low: float, high: float, count: int) -> NDArray[np.float64]:
    """Epsilons that stand for budgets drawn uniformly: `count` even quantiles."""
    if not 0 < low <= high < np.inf:
        raise InputError(
            "a range of epsilons goes from a positive one to a larger one, not from "
            f"{low:g} to {high:g}."
        )
    return low + (high - low) * (np.arange(count) + 0.5) / count


def given_budgets(values: ArrayLike, num_clients: int) -> NDArray[np.float64]:
    """Epsilon of every client [U] as the user gives it."""
    budgets = np.asarray(values, np.float64)
    if budgets.shape != (num_clients,):
        raise InputError(
            f"{budgets.size} epsilons are given for {num_clients} clients: give one "
            "for each."
        )
    if not np.all((budgets > 0) & np.isfinite(budgets)):
        raise InputError("every client's epsilon must be positive and finite.")
    return budgets


def parse_budgets(text: str) -> tuple[float, ...]:
    """Numbers from "2,5,10"."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"epsilons are numbers separated by commas, as in 2,5,10, not {text!r}."
        ) from None


def participation_rates(
    affordable: ArrayLike, num_channels: int
) -> NDArray[np.float64]:
    """Rate beta of every client [U]: min(N T-hat_i / sum of all T-hat, 1).

    At these rates all budgets end in the same round, sum of T-hat / N, unless a rate is
    cut at 1. All rates are 0 if nobody can take part.
    Paper: section IV, participant rate.
    """
    rounds = np.asarray(affordable, np.float64)
    if num_channels < 1 or np.any(rounds < 0):
        raise InputError("rates need at least one channel, and no negative counts.")
    total = np.sum(rounds)
    if total == 0:
        return np.zeros_like(rounds)
    return np.minimum(num_channels * rounds / total, 1.0)
