"""What the server goes by in every round of a run, from its settings and its plan."""

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.config import ServerConfig
from dpsparfl_jax.types import ServerRates

Array = NDArray[np.float64]


def rate_factors(schedule: str, end: float, rounds: int) -> Array:
    """Shares [T] of a learning rate: 1 in the first round, `end` in the last one."""
    done = np.arange(rounds) / max(rounds - 1, 1)
    left = {
        "constant": np.ones(rounds),
        "cosine": (1 + np.cos(np.pi * done)) / 2,
        "linear": 1 - done,
    }[schedule]
    return end + (1 - end) * left


def averaging_rates(settings: ServerConfig, rounds: int) -> Array:
    """Shares [T] of a round's model in the average of models; 1 starts it anew.

    Exponential: the mean of all models until that would weigh the newest one less than
    1 - decay, so that the first model is not favoured (De et al. 2022 warm their decay
    up for the same reason). Tail: the mean of the models of the last rounds.
    """
    number = np.arange(1, rounds + 1)
    if settings.averaging == "ema":
        return np.maximum(1 - settings.average_decay, 1 / number)
    if settings.averaging == "tail":
        skipped = rounds - max(1, round(settings.average_share * rounds))
        return 1 / np.maximum(number - skipped, 1)
    return np.ones(rounds)


def server_rates(settings: ServerConfig, weights: Array) -> ServerRates:
    """The columns [T] of a run whose updates weigh `weights` [T, N], 0 where none is.

    Divided by the most that is planned for a round, a round with few clients moves the
    model by less.
    """
    rounds = len(weights)
    factors = rate_factors(settings.rate_schedule, settings.rate_end, rounds)
    most = np.max(np.sum(weights, axis=1)) if settings.divide_by == "planned" else 0.0
    columns = (
        settings.learning_rate * factors,
        np.full(rounds, settings.momentum),
        averaging_rates(settings, rounds),
        np.full(rounds, most),
    )
    return ServerRates(*(np.asarray(column, np.float32) for column in columns))
