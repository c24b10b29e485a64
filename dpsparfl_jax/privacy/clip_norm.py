"""Choosing the clip norm C from gradient norms: the paper's way, and a private one.

Both look at norms of unclipped gradients of single records. The paper takes their
median, which is a query on private data that no accountant pays for; it is offered for
reproduction and says so. The private way tracks a quantile with noisy counts (Andrew,
Thakkar, McMahan and Ramaswamy 2021), and its cost is a `Release` of the mechanism.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsparfl_jax import rng
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy.mechanism import Release

_FARTHEST = 1e6  # a private quantile is sought within this factor of its start


class ClipNorm(NamedTuple):
    """A clip norm and what its choice cost."""

    value: float
    private: bool  # False: the choice itself may reveal records
    statement: str  # for the record of a run

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user must not overlook; empty if the choice is private."""
        if self.private:
            return ()
        return (f"The clip norm is not private: {self.statement}.",)


def median_clip_norm(norms: ArrayLike, *, public: bool = False) -> ClipNorm:
    """Median of unclipped norms, as in the paper's Setup.

    `public` says that the records behind the norms are public or held out from every
    client; otherwise the choice is marked as not private.
    """
    values = _norms(norms)
    if not np.all(np.isfinite(values)):
        raise InputError("a gradient norm is not finite: the model or data is broken.")
    if public:
        statement = "median of unclipped gradient norms of public records"
    else:
        statement = (
            "median of unclipped gradient norms of clients' records: NOT private, and "
            "not part of any epsilon"
        )
    median = float(np.median(values))
    if median <= 0:
        raise InputError(
            "the median gradient norm is not positive: choose the clip norm by hand "
            "(training.clip_norm)."
        )
    return ClipNorm(median, public, statement)


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantileQuery:
    """How the private quantile is asked for."""

    quantile: float = 0.5
    rounds: int = 40
    sampling_rate: float = 0.1
    noise_multiplier: float = 20.0  # noise std / sensitivity of a client's count
    learning_rate: float = 0.5  # of log C
    start: float = 1.0  # first C, public

    def __post_init__(self) -> None:
        """Refuses what has no meaning; `release` checks the rest."""
        if not 0 < self.quantile < 1:
            raise InputError(
                "the quantile must lie strictly between 0 and 1, but is "
                f"{self.quantile:g}."
            )
        if not (0 < self.start < np.inf and 0 < self.learning_rate < np.inf):
            raise InputError("the quantile query needs a positive start and step.")
        _ = self.release

    @property
    def release(self) -> Release:
        """What each client that answers pays, once."""
        return Release(self.sampling_rate, self.noise_multiplier, self.rounds)


def private_clip_norm(
    norms: Sequence[ArrayLike], query: QuantileQuery, seed: int
) -> tuple[ClipNorm, NDArray[np.float64]]:
    """A quantile of unclipped norms from noisy counts, and C after every round.

    `norms` has one array a client that answers. Each round every client counts, over a
    Poisson sample of its records, +1/2 for a norm <= C and -1/2 for one above, so that
    a record moves the count by 1/2 (a null record by nothing), and adds noise; the
    server turns the sum into a fraction by the expected sample size and moves log C.
    A norm that is not finite counts as above: the sensitivity holds for any data. The
    norms belong to a model that no record has touched.
    """
    clients = [_norms(client) for client in norms]
    if not clients:
        raise InputError("no client answers the quantile query.")
    random = rng.host_stream(seed, "clip_norm")
    expected = query.sampling_rate * sum(client.size for client in clients)
    noise_std = query.noise_multiplier / 2 * np.sqrt(len(clients))
    if noise_std > expected / 2:
        raise InputError(
            f"the quantile query samples about {expected:.3g} records a round, too few "
            f"against noise of {noise_std:.3g}: lower privacy.clip_noise_multiplier or "
            "raise privacy.clip_sampling_rate."
        )
    value, path = query.start, []
    for _ in range(query.rounds):
        total = 0.0
        for client in clients:
            sampled = client[random.random(client.size) < query.sampling_rate]
            count = np.sum(np.where(sampled <= value, 0.5, -0.5))
            total += count + random.normal(0.0, query.noise_multiplier / 2)
        fraction = np.clip(0.5 + total / expected, 0.0, 1.0)
        value *= np.exp(-query.learning_rate * (fraction - query.quantile))
        value = np.clip(value, query.start / _FARTHEST, query.start * _FARTHEST)
        path.append(value)
    # Later steps jitter around the quantile: the geometric mean of the last quarter.
    tail = np.array(path[-max(1, query.rounds // 4) :])
    statement = (
        f"private {query.quantile:g}-quantile of unclipped gradient norms "
        f"({query.rounds} rounds, sampling rate {query.sampling_rate:g}, noise "
        f"multiplier {query.noise_multiplier:g}), charged to every client"
    )
    chosen = ClipNorm(float(np.exp(np.mean(np.log(tail)))), True, statement)
    return chosen, np.array(path)


def _norms(norms: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(norms, np.float64)
    if values.ndim != 1 or values.size == 0:
        raise InputError("gradient norms must be a non-empty list of numbers.")
    return values
