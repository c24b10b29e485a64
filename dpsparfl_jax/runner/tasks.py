"""The rows of a cohort, made and checked on the host before anything is compiled."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy import poisson
from dpsparfl_jax.sparsifiers import Bernoulli, Sparsifier
from dpsparfl_jax.types import ClientTables, Tasks

CLIPPINGS = ("adjusted", "unadjusted", "off")


def clip_bound(
    clip_norm: ArrayLike,
    keep_rate: ArrayLike,
    clipping: str = "adjusted",
    sparsifier: Sparsifier | None = None,
) -> NDArray[np.float32]:
    """Sensitivity of a step's sum: adjusted to what is kept, C, or infinite if off.

    Adjusted is sqrt(s)*C for the sparsifiers here, Bernoulli's unless another is given.
    Paper: section III, adjusted clipping threshold (Lemma 1).
    """
    if clipping not in CLIPPINGS:
        raise InputError(
            f"unknown clipping {clipping!r}: choose one of {', '.join(CLIPPINGS)}."
        )
    _require(clip_norm, "clip norm", "positive", lambda x: x > 0)
    factor = {
        "adjusted": (sparsifier or Bernoulli()).clip_factor(keep_rate),
        "unadjusted": np.ones(()),
        "off": np.full((), np.inf),
    }[clipping]
    return np.asarray(clip_norm * factor, np.float32)


def make_tasks(
    tables: ClientTables,
    *,
    run: ArrayLike,
    client: ArrayLike,
    round_index: ArrayLike,
    keep_rate: ArrayLike,
    clip_norm: ArrayLike,
    noise_multiplier: ArrayLike | None,
    learning_rate: ArrayLike,
    batch_size: ArrayLike,
    capacity: int,
    overflow_probability: float = 1e-10,
    clipping: str = "adjusted",
    sparsifier: Sparsifier | None = None,
    active: ArrayLike = True,
    momentum: ArrayLike = 0.9,
    weight: ArrayLike | None = None,
    scale: ArrayLike = 1.0,
) -> Tasks:
    """Checked rows; scalars are repeated. `noise_multiplier=None` adds no noise.

    Updates weigh as many as their clients have records, unless `weight` says otherwise.

    `capacity` is the padded batch of the program that will run them: rows that would
    overflow it with more than `overflow_probability` in a step are refused. Idle rows
    (`active` False) must still hold legal numbers.
    """
    _require(keep_rate, "keep rate", "in (0, 1]", lambda x: (x > 0) & (x <= 1))
    _require(learning_rate, "learning rate", "positive", lambda x: x > 0)
    _require(batch_size, "batch size", "positive", lambda x: x > 0)
    _require(momentum, "momentum", "in [0, 1)", lambda x: (x >= 0) & (x < 1))
    _require(scale, "scale of an update", "positive", lambda x: x > 0)
    if noise_multiplier is None:
        noise_multiplier = 0.0
    else:
        _require(
            noise_multiplier,
            "noise multiplier",
            "positive (None adds no noise)",
            lambda x: x > 0,
        )
        if clipping == "off":
            raise InputError(
                "noise without clipping protects nothing: turn clipping on, or the "
                "noise off."
            )
    if np.size(client) == 0:
        raise InputError("give at least one row (an idle one where nobody trains).")
    run, client = np.broadcast_arrays(run, client)
    num_runs, num_clients = tables.sizes.shape
    _require(run, "run", f"in 0..{num_runs - 1}", lambda x: (x >= 0) & (x < num_runs))
    _require(
        client,
        "client",
        f"in 0..{num_clients - 1}",
        lambda x: (x >= 0) & (x < num_clients),
    )
    _require_distinct(run, client, round_index, active)
    sizes = np.asarray(tables.sizes)[run, client]
    rates = poisson.sampling_rate(batch_size, sizes)
    overflow = np.max(poisson.overflow_probability(sizes, rates, capacity), initial=0.0)
    if overflow > overflow_probability:
        raise InputError(
            f"a batch of {np.max(batch_size):g} overflows the padded size {capacity} "
            f"with probability {overflow:.1e} a step, above {overflow_probability:g}: "
            "make the program for a larger capacity (poisson.batch_capacity)."
        )
    if weight is not None:
        _require(weight, "weight of an update", "positive", lambda x: x > 0)
    bound = clip_bound(clip_norm, keep_rate, clipping, sparsifier)
    columns = (
        (run, np.int32),
        (client, np.int32),
        (round_index, np.int32),
        (active, np.bool_),
        (poisson.probability_word(keep_rate), np.uint32),
        (bound, np.float32),
        (noise_multiplier, np.float32),
        (learning_rate, np.float32),
        (batch_size, np.float32),
        (poisson.probability_word(rates), np.uint32),
        (momentum, np.float32),
        (sizes if weight is None else weight, np.float32),
        (scale, np.float32),
        (np.asarray(tables.first)[run, client], np.int32),
        (sizes, np.int32),
    )
    length = np.broadcast_shapes(*(np.shape(column) for column, _ in columns))
    if len(length) != 1:
        raise InputError("tasks are columns of one common length: give at least one.")
    return Tasks(
        *(np.broadcast_to(np.asarray(c, dtype), length).copy() for c, dtype in columns)
    )


def _require(
    values: ArrayLike, name: str, rule: str, holds: Callable[[Any], Any]
) -> None:
    array = np.asarray(values)
    good = np.isfinite(array) & holds(array)
    if not np.all(good):
        worst = np.atleast_1d(array)[~np.atleast_1d(good)].flat[0]
        raise InputError(f"the {name} must be {rule}, but is {worst}.")


def _require_distinct(
    run: ArrayLike, client: ArrayLike, round_index: ArrayLike, active: ArrayLike
) -> None:
    """A client trains once a round: twice would reuse its noise and halve its cost."""
    rows = np.stack(np.broadcast_arrays(run, client, round_index, active), axis=-1)
    rows = rows.reshape(-1, 4)
    rows = rows[rows[:, 3] > 0]
    if np.unique(rows, axis=0).shape[0] != rows.shape[0]:
        raise InputError("a client appears twice in one round of a run.")
