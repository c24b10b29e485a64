"""The convergence bound beside a real run: gradients measured, constants from them.

`measure` trains a run and takes exact gradients of the training loss at some of its
models; `bound_rows` puts what they say into `theory.convergence_terms`. Constants are
the largest seen at measured models, so the bound is an estimate, not a certificate:
models between them, and those of the local steps, may be steeper. The bound itself
knows neither clipping nor the sampling of batches.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning import theory
from dpsparfl_jax.planning.schedule import Schedule, first_rounds
from dpsparfl_jax.runner.batch import Batch
from dpsparfl_jax.runner.run import Outline, Run, load_images
from dpsparfl_jax.training import models
from dpsparfl_jax.training.clipping import example_losses
from dpsparfl_jax.training.local import normalise
from dpsparfl_jax.types import Array, ImageSet, Params

_CHUNK = 250  # images of one backward pass
_PIXELS = (0.5,)  # mean and deviation of pixels, as in all compiled programs

Flat = NDArray[np.float64]  # [D]
# (params, images, weight of each) -> weighted sum of losses, and its gradient
Gradient = Callable[[Params, ImageSet, Array], tuple[jax.Array, Params]]


class Measured(NamedTuple):
    """The training loss F = sum_i p_i F_i at the server's model after some rounds."""

    round: int  # rounds before it; 0 is the initial model
    squared_norm: float  # ||grad F||^2
    divergence: float  # sum_i p_i ||grad F_i - grad F||^2
    largest_norm: float  # max_i ||grad F_i||
    loss: float  # F
    # ||grad F(w) - grad F(v)|| / ||w - v|| with v the model measured before, at most L;
    # nan for the first, and where the model did not move
    slope: float = math.nan
    clip_norm: float = 0.0  # C that was used; 0: that of the settings
    images: int = 0  # training images behind these numbers, of all clients


class BoundRow(NamedTuple):
    """The bound of a run cut after some rounds, beside what it bounds."""

    rounds: int
    mean_squared_norm: float  # over models that rounds began with
    bound: float  # the sum of the four terms
    start: float
    divergence: float
    sparsification: float
    noise: float
    holds: bool  # whether eta L tau is at most theory.LARGEST_STEP
    step: float  # eta L tau
    smoothness: float  # L, the largest slope measured
    loss_gap: float  # F_0 - F* with F* = 0, which no cross-entropy is below
    gradient_bound: float  # G
    images: int


def measure(
    settings: RunConfig, rounds: Sequence[int], *, images_per_client: int | None = None
) -> list[Measured]:
    """Trains a run as far as the last of `rounds` and measures at each of them.

    Gradients are of all training images, or of `images_per_client` of each client,
    spread evenly over its list. (A list may be sorted by class, so its first images
    would stand for a few classes only.)
    """
    # Test accuracies are of no use here.
    rare = dataclasses.replace(settings.length, eval_every=10**9)
    seldom = dataclasses.replace(settings, length=rare)
    run = Run("measured", seldom).outlined().planned()
    run = run.with_images(load_images(settings))
    batch, meter = Batch([run]), Meter(run, images_per_client)
    return [
        meter.measure(number, params)._replace(clip_norm=batch.clip_norms[0].value)
        for number, params in models_at(batch, rounds)
    ]


def models_at(batch: Batch, rounds: Sequence[int]) -> Iterator[tuple[int, Params]]:
    """The server's models of a batch of one run; trains to the last of `rounds`."""
    wanted, length = sorted({*rounds}), int(batch.lengths[0])
    if not wanted or wanted[0] < 0 or wanted[-1] > length:
        raise InputError(f"choose rounds to measure from 0 to {length}, the run's end.")
    if wanted[0] == 0:
        yield 0, batch.initial[0].params
    if wanted[-1] == 0:
        return
    begun = itertools.count(1)
    outputs = batch.train(
        snapshot_every=math.gcd(*wanted), stop=lambda: next(begun) >= wanted[-1]
    )
    for (output,) in outputs:
        if output.round_index + 1 in wanted:
            assert output.state is not None
            yield output.round_index + 1, output.state.params


class Meter:
    """Measures models of one run, and slopes between them in the order they come."""

    def __init__(self, run: Run, images_per_client: int | None = None) -> None:
        """Chooses the images; compiles nothing yet."""
        if images_per_client is not None and images_per_client < 1:
            raise InputError("measure at least 1 image of a client.")
        sizes = np.array([len(rows) for rows in run.data.clients.train])
        # A client weighs what it owns, however little of it is measured.
        self._weights = sizes / np.sum(sizes)
        self._train = run.data.images.sets.train
        self._owned = [
            _spread(rows, images_per_client) for rows in run.data.clients.train
        ]
        self._chunk = min(_CHUNK, max(map(len, self._owned)))
        classes = run.outline.num_classes
        model = models.make_model(run.settings.model.name, classes)
        self._gradient = make_gradient(model)
        self._before: tuple[Flat, Flat] | None = None

    def measure(self, number: int, params: Params) -> Measured:
        """The server's model after `number` rounds."""
        # In double precision the difference of squares below is safe, and only one
        # client's gradient is held at a time.
        loss, squares = 0.0, []
        total: Flat = np.zeros(())
        for weight, rows in zip(self._weights, self._owned, strict=True):
            own_loss, client = client_gradient(
                self._gradient, params, self._train, rows, self._chunk
            )
            loss += float(weight * own_loss)
            total = total + weight * client
            squares.append(float(client @ client))
        squared = float(total @ total)
        return Measured(
            number,
            squared,
            float(np.maximum(self._weights @ np.array(squares) - squared, 0)),
            float(np.sqrt(np.max(squares))),
            loss,
            slope=self._slope(_flatten(params), total),
            images=sum(map(len, self._owned)),
        )

    def _slope(self, model: Flat, gradient: Flat) -> float:
        before, self._before = self._before, (model, gradient)
        if before is None:
            return math.nan
        moved = float(np.linalg.norm(model - before[0]))
        turned = float(np.linalg.norm(gradient - before[1]))
        return turned / moved if moved > 0 else math.nan


@functools.lru_cache(maxsize=8)
def make_gradient(model: nn.Module) -> Gradient:
    """Compiled cross-entropy of images with weights, and its gradient."""
    apply: Any = model.apply

    def loss(params: Params, data: ImageSet, weights: jax.Array) -> jax.Array:
        logits = apply({"params": params}, normalise(data.images, _PIXELS, _PIXELS))
        return jnp.sum(weights * example_losses(logits, data.labels))

    return jax.jit(jax.value_and_grad(loss))


def client_gradient(
    gradient: Gradient,
    params: Params,
    train: ImageSet,
    rows: NDArray[np.int64],
    chunk: int = _CHUNK,
) -> tuple[float, Flat]:
    """Mean loss over the images `rows`, and its gradient.

    The loop over chunks is not compiled: in a compiled loop on CPU a convolution takes
    some thirty times as long.
    """
    loss, total = 0.0, np.zeros(())
    for start in range(0, len(rows), chunk):
        part = rows[start : start + chunk]
        # The last chunk is filled up, so that all share one program.
        filled = np.concatenate([part, np.repeat(part[:1], chunk - len(part))])
        weights = (np.arange(chunk) < len(part)) / np.float32(len(rows))
        data = ImageSet(train.images[filled], train.labels[filled])
        result = jax.device_get(gradient(params, data, weights.astype(np.float32)))
        loss, total = loss + float(result[0]), total + _flatten(result[1])
    return loss, total


def bound_rows(
    settings: RunConfig, measured: Sequence[Measured], schedule: Schedule | None = None
) -> list[BoundRow]:
    """The bound after every measured round but 0; constants are those of all rounds.

    The mean squared norm is linear between measured rounds. `schedule` is the run's if
    it is known already.
    """
    _check(settings, measured)
    run = Run("bounded", settings).outlined()
    if schedule is None:
        schedule = run.planned().schedule
    if measured[-1].round > schedule.num_rounds:
        raise InputError(f"the schedule has {schedule.num_rounds} rounds only.")
    steep = _with_constants(settings, measured)
    cuts = [first_rounds(schedule, one.round) for one in measured[1:]]
    # The bound is of rounds that move the model: nothing can be said before the first.
    return [
        _row(steep, run.outline, measured, cut) for cut in cuts if cut.arrived.any()
    ]


def _row(
    steep: RunConfig, outline: Outline, measured: Sequence[Measured], cut: Schedule
) -> BoundRow:
    steepest = float(np.max([one.largest_norm for one in measured]))
    terms = theory.convergence_terms(
        steep,
        cut,
        outline.sizes,
        outline.model.parameters,
        loss_gap=measured[0].loss,
        divergence=float(np.max([one.divergence for one in measured])),
        gradient_bound=steepest,
    )
    norms = np.interp(
        np.flatnonzero(cut.arrived.any(axis=1)),
        [one.round for one in measured],
        [one.squared_norm for one in measured],
    )
    training, smoothness = steep.training, steep.schedule.smoothness
    return BoundRow(
        cut.num_rounds,
        float(np.mean(norms)),
        terms.total,
        *terms,
        step=training.learning_rate * smoothness * training.local_steps,
        smoothness=smoothness,
        loss_gap=measured[0].loss,
        gradient_bound=steepest,
        images=measured[0].images,
    )


def _check(settings: RunConfig, measured: Sequence[Measured]) -> None:
    """Refuses runs that the bound is not about, and too few measurements."""
    training = settings.training
    if training.optimizer != "sgd":
        raise InputError("the bound is for plain SGD: set training.optimizer to sgd.")
    if settings.privacy.noise and training.clipping != "adjusted":
        raise InputError("the bound's noise is that of training.clipping=adjusted.")
    numbers = [one.round for one in measured]
    if numbers[:1] != [0] or numbers != sorted({*numbers}):
        raise InputError("the bound needs measurements at round 0 and then onwards.")
    if not any(one.slope > 0 for one in measured):
        raise InputError("the bound needs two measured models that differ.")


def _with_constants(settings: RunConfig, measured: Sequence[Measured]) -> RunConfig:
    """The settings with measured smoothness and the clip norm that was used.

    For the bound only: to plan with them would be to plan another run.
    """
    slope = max(one.slope for one in measured if one.slope > 0)
    clip_norm = measured[0].clip_norm or settings.training.clip_norm
    return dataclasses.replace(
        settings,
        schedule=dataclasses.replace(settings.schedule, smoothness=slope),
        training=dataclasses.replace(settings.training, clip_norm=clip_norm),
    )


def _spread(rows: NDArray[np.int64], count: int | None) -> NDArray[np.int64]:
    """`count` entries at even distances; all if there are no more."""
    if count is None or count >= len(rows):
        return rows
    return rows[np.arange(count) * len(rows) // count]


def _flatten(tree: Params) -> Flat:
    leaves = [np.ravel(leaf) for leaf in jax.tree.leaves(tree)]
    return np.concatenate(leaves).astype(np.float64)
