"""One client's round: tau private local steps on its own records.

A step is sample -> masked clipped sum -> noise on the sum -> divide by the expected
batch -> optimizer; each is a function of its own, and this module joins them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.rng import Purpose
from dpsparfl_jax.sparsifiers import Sparsifier, make_sparsifier
from dpsparfl_jax.training import (
    clipping,
    cpu_kernels,
    keys,
    noise,
    optimizers,
    sampling,
)
from dpsparfl_jax.training.diagnostics import StepTrace, diagnose
from dpsparfl_jax.types import Array, ImageSet, LocalResult, Params, Tasks

_ZERO = np.float32(0)

# A client whose update is this many times larger than the model has diverged.
_LARGEST_GROWTH = np.float32(1e3)
# The clipped sum of these rows of the image set, the first of which has this number.
_SumOf = Callable[[jax.Array, Any], clipping.ClippedSum]


class LocalSpec(NamedTuple):
    """What a compiled program is built around; all else is data."""

    image_shape: tuple[int, ...]
    clipped_sum: clipping.ClippedSumFn
    optimizer: optimizers.Factory
    steps: int  # tau
    capacity: int  # largest padded batch
    padded_sizes: tuple[int, ...]  # ascending; the last one is `capacity`
    table_lengths: tuple[int, ...]  # ascending; no client owns more than the last one
    microbatch: int  # examples whose gradients are there at once; 0: all of a batch
    sparsifier: Sparsifier
    add_noise: Callable[..., Any]  # `noise.add_noise`, by the chosen kernels
    noise_rounds: int
    pixel_mean: tuple[float, ...]
    pixel_std: tuple[float, ...]


class Records(NamedTuple):
    """Images, and in which order clients own them: see `Tasks.first` and `size`."""

    data: ImageSet
    rows: Array | None  # [R, L] rows of the images; None: client after client already


def make_spec(
    model: nn.Module,
    params: Params,
    image_shape: tuple[int, ...],
    *,
    steps: int,
    padded_sizes: tuple[int, ...],
    table_lengths: tuple[int, ...],
    microbatch: int = 0,
    method: str = "ghost",
    kernels: str = "auto",
    optimizer: str = "sgd",
    sparsifier: str = "bernoulli",
    generator: str = "threefry",
    pixel_mean: tuple[float, ...] = (0.5,),
    pixel_std: tuple[float, ...] = (0.5,),
) -> LocalSpec:
    """Checks names and fixes everything static about local training."""
    if steps < 1:
        raise InputError("local steps must be at least 1.")
    if microbatch < 0:
        raise InputError("a microbatch must have at least one example; 0 makes none.")
    check_pixel_statistics(pixel_mean, pixel_std, image_shape[-1])
    summed = clipping.make_clipped_sum(model, params, image_shape, method, drop=False)
    return LocalSpec(
        tuple(image_shape),
        cpu_kernels.choosing(kernels, summed),
        optimizers.get_optimizer(optimizer),
        steps,
        padded_sizes[-1],
        tuple(padded_sizes),
        tuple(table_lengths),
        microbatch,
        make_sparsifier(sparsifier),
        cpu_kernels.choosing(kernels, noise.add_noise),
        noise.generator_rounds(generator),
        pixel_mean,
        pixel_std,
    )


def check_pixel_statistics(
    mean: tuple[float, ...], std: tuple[float, ...], channels: int
) -> None:
    """Refuses constants that would turn pixels into nan."""
    fits = all(len(values) in (1, channels) for values in (mean, std))
    if not fits or not np.all(np.isfinite(mean)) or not np.all(np.asarray(std) > 0):
        raise InputError(
            f"pixel mean and standard deviation must be finite, the latter positive, "
            f"one value or one for each of the {channels} channels."
        )


def check_images(data: ImageSet, image_shape: tuple[int, ...]) -> None:
    """Refuses images that the compiled program was not made for (while tracing)."""
    shape, dtype = tuple(data.images.shape[1:]), data.images.dtype
    if shape != tuple(image_shape) or dtype != np.uint8:
        raise InputError(
            f"the model takes uint8 images of shape {list(image_shape)}, but these are "
            f"{dtype} of shape {list(shape)}."
        )


def normalise(
    images: jax.Array, mean: tuple[float, ...], std: tuple[float, ...]
) -> jax.Array:
    """uint8 pixels to (pixel / 255 - mean) / std."""
    scale = np.asarray(1.0 / (255.0 * np.asarray(std)), np.float32)
    shift = np.asarray(np.asarray(mean) / np.asarray(std), np.float32)
    pixels = images.astype(jnp.float32)
    shape = (*pixels.shape[:-1], pixels.shape[-1])
    return pixels * jnp.broadcast_to(scale, shape) - jnp.broadcast_to(shift, shape)


class Prepared(NamedTuple):
    """What a task's steps share: drawn once, from its own keys."""

    mask: Params
    batches: sampling.Batches
    noise_key: jax.Array
    noise_std: jax.Array


class LocalState(NamedTuple):
    """A task between two local steps."""

    params: Params
    optimizer: Any
    trace: StepTrace  # leaves [tau, ...]


def train_client(
    spec: LocalSpec,
    params: Params,
    records: Records,
    task: Tasks,
    root: jax.Array,
    kept: Any = None,
    *,
    choose_size: bool,
) -> LocalResult:
    """Tau private steps from the server's parameters; returns the masked update.

    Paper: Algorithm 1, client side.  `task` is one row (scalars), `root` the words of
    the run's root key.  With `choose_size` each batch runs in the smallest padded size
    that holds it, by a branch that only pays when tasks are not vmapped; the result is
    the same. `kept` is the state of the client's optimizer to go on from, if any.
    """
    prepared = prepare(spec, params, task, root, choose_size=choose_size)
    state = advance(
        spec,
        prepared,
        begin(spec, params, prepared, task, kept),
        records,
        task,
        (0, spec.steps),
        choose_size=choose_size,
    )
    return finish(params, prepared, state, task)


def prepare(
    spec: LocalSpec,
    params: Params,
    task: Tasks,
    root: jax.Array,
    *,
    choose_size: bool,
) -> Prepared:
    """Draws a task's mask and batches; of `params` only the shapes matter."""
    mask_key, sampling_key, noise_key = (
        keys.task_key(root, purpose, task.round, task.client)
        for purpose in (Purpose.MASK, Purpose.SAMPLING, Purpose.NOISE)
    )
    with jax.named_scope("mask"):
        drawn = spec.sparsifier.draw(mask_key, params, task.keep)
        # Norms weigh by the mask and sums select by it: a sparsifier that scales what
        # it keeps must not slip past the bound.
        mask = jax.tree.map(lambda leaf: (leaf > 0).astype(jnp.float32), drawn)
        # Whoever uses it reads it: XLA would rather hash all coordinates again.
        mask = jax.lax.optimization_barrier(mask)
    lengths = spec.table_lengths if choose_size else spec.table_lengths[-1:]
    with jax.named_scope("sampling"):
        batches = sampling.poisson_batches(
            sampling_key,
            task.inclusion,
            task.size,
            steps=spec.steps,
            table_lengths=lengths,
            capacity=spec.capacity,
        )
    noise_std = jnp.where(
        task.noise_multiplier > 0, task.noise_multiplier * task.clip_bound, _ZERO
    )
    return Prepared(mask, batches, noise_key, noise_std)


def begin(
    spec: LocalSpec, params: Params, prepared: Prepared, task: Tasks, kept: Any
) -> LocalState:
    """A task before its first step; its optimizer starts anew unless one is `kept`."""
    width = prepared.batches.positions.shape[1]
    nothing = jnp.zeros((spec.steps,), jnp.float32)
    trace = StepTrace(
        jnp.zeros((spec.steps, width), jnp.float32),
        nothing,
        jnp.zeros((spec.steps,), jnp.int32),
        nothing,
    )
    if kept is None:
        kept = spec.optimizer(task.learning_rate, task.momentum).init(params)
    return LocalState(params, kept, trace)


def advance(
    spec: LocalSpec,
    prepared: Prepared,
    state: LocalState,
    records: Records,
    task: Tasks,
    steps: tuple[Any, Any],
    *,
    choose_size: bool,
) -> LocalState:
    """The task after the steps first, first + 1, ... of `steps` = (first, last)."""
    mask, batches = prepared.mask, prepared.batches
    optimizer = spec.optimizer(task.learning_rate, task.momentum)

    def step(index: jax.Array, state: LocalState) -> LocalState:
        count = batches.counts[index]
        summed = _clipped_sum(
            spec,
            state.params,
            mask,
            records.data,
            _rows(records, task, batches.positions[index]),
            count,
            task.clip_bound,
            choose_size,
        )
        with jax.named_scope("noise"):
            noisy = spec.add_noise(
                jax.random.fold_in(prepared.noise_key, index),
                summed.total,
                mask,
                prepared.noise_std,
                spec.noise_rounds,
            )
        with jax.named_scope("update"):
            gradient = jax.tree.map(lambda g: g / task.batch_size, noisy)
            updates, inner = optimizer.update(gradient, state.optimizer, state.params)
            params = optax.apply_updates(state.params, updates)
        with jax.named_scope("diagnosis"):
            real = jnp.arange(summed.norms.size) < count
            told = StepTrace(
                jnp.where(summed.finite, summed.norms, np.float32(np.inf)),
                jnp.sum(jnp.where(summed.finite, summed.losses, _ZERO)),
                jnp.sum(real & ~summed.finite, dtype=jnp.int32),
                # A pass over all coordinates: once a round is enough.
                jax.lax.cond(index == 0, _masked_norm, _no_norm, summed.total, mask),
            )
            trace = jax.tree.map(
                lambda rows, row: rows.at[index].set(row), state.trace, told
            )
        return LocalState(params, inner, trace)

    return jax.lax.fori_loop(*steps, step, state)


def finish(
    params: Params, prepared: Prepared, state: LocalState, task: Tasks
) -> LocalResult:
    """The masked update after the last step, and what is told of the task."""
    at_least_1d = jax.tree.map(jnp.atleast_1d, prepared.mask)
    with jax.named_scope("diagnosis"):
        # Rows are added as they are, in float32, which is exact for up to 2^24 of them.
        rows = [jnp.sum(leaf, axis=-1) for leaf in jax.tree.leaves(at_least_1d)]
        counts = [jnp.sum(row.astype(jnp.int32), dtype=jnp.int32) for row in rows]
        kept = jnp.sum(jnp.stack(counts), dtype=jnp.int32)
    with jax.named_scope("update"):
        moved = jax.tree.map(jnp.subtract, state.params, params)
        update = clipping.keep_masked(moved, prepared.mask)
        # Judged by the noisy update alone: dropping a client is post-processing.
        largest = _LARGEST_GROWTH * (np.float32(1) + optax.tree.norm(params))
        diverged = jnp.logical_not(optax.tree.norm(update) <= largest)  # nan does too
        update = jax.tree.map(lambda leaf: jnp.where(diverged, _ZERO, leaf), update)
    with jax.named_scope("diagnosis"):
        diagnostics = diagnose(
            state.trace,
            prepared.batches,
            task.clip_bound,
            prepared.noise_std,
            kept,
            diverged,
        )
    return LocalResult(update, task.clip_bound, diagnostics, state.optimizer)


def _masked_norm(tree: Params, mask: Params) -> jax.Array:
    return optax.tree.norm(clipping.keep_masked(tree, mask))


def _no_norm(tree: Params, mask: Params) -> jax.Array:
    return jnp.zeros((), jnp.float32)


def _rows(records: Records, task: Tasks, positions: jax.Array) -> jax.Array:
    """Where the images at these positions among the client's own records are.

    Padding stays among them too: no image of another client is ever looked at.
    """
    own = task.first + jnp.minimum(positions, task.size - 1)
    return own if records.rows is None else records.rows[task.run, own]


def _clipped_sum(
    spec: LocalSpec,
    params: Params,
    mask: Params,
    data: ImageSet,
    rows: jax.Array,
    count: jax.Array,
    bound: jax.Array,
    choose_size: bool,
) -> clipping.ClippedSum:
    """The clipped sum of the first `count` of these rows of the image set."""
    width = rows.shape[0]

    def sum_of(chosen: jax.Array, first: Any) -> clipping.ClippedSum:
        with jax.named_scope("sampling"):
            images = normalise(data.images[chosen], spec.pixel_mean, spec.pixel_std)
            labels = data.labels[chosen]
            real = first + jnp.arange(len(chosen)) < count
        return spec.clipped_sum(params, mask, images, labels, real, bound)

    def with_size(size: int) -> clipping.ClippedSum:
        summed = sum_of(rows[:size], 0)
        short = (0, width - size)
        return summed._replace(
            norms=jnp.pad(summed.norms, short),
            losses=jnp.pad(summed.losses, short),
            finite=jnp.pad(summed.finite, short),
        )

    if 0 < spec.microbatch < width:
        return _sum_of_parts(sum_of, rows, count, spec.microbatch)
    sizes = sorted({min(size, width) for size in spec.padded_sizes})
    if not choose_size:
        return with_size(sizes[-1])
    # An empty batch is not computed at all.
    smallest = jnp.sum(np.asarray([0, *sizes], np.int32) < count, dtype=jnp.int32)
    branches = [lambda size=size: with_size(size) for size in sizes]
    return jax.lax.switch(smallest, [lambda: _nothing(sum_of, rows), *branches])


def _nothing(sum_of: _SumOf, rows: jax.Array) -> clipping.ClippedSum:
    """What an empty batch adds up to, in the shapes of these rows."""
    return jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
        jax.eval_shape(sum_of, rows, 0),
    )


def _sum_of_parts(
    sum_of: _SumOf,
    rows: jax.Array,
    count: jax.Array,
    part: int,
) -> clipping.ClippedSum:
    """The clipped sum of a batch by parts of so many rows, one after the other.

    Every example is clipped by itself, so a sum of parts is the sum of the batch. There
    are as many parts as the batch fills: padding costs nothing.
    """
    width = rows.shape[0]
    whole = -(-width // part) * part
    padded = jnp.pad(rows, (0, whole - width), mode="edge")
    nothing = _nothing(sum_of, padded[:part])
    told = (nothing.norms, nothing.losses, nothing.finite)
    told = jax.tree.map(lambda leaf: jnp.zeros((whole,), leaf.dtype), told)

    def add(number: jax.Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        total, told = carry
        first = number * part
        one = sum_of(jax.lax.dynamic_slice(padded, (first,), (part,)), first)
        told = jax.tree.map(
            lambda all_of, some: jax.lax.dynamic_update_slice(all_of, some, (first,)),
            told,
            (one.norms, one.losses, one.finite),
        )
        return jax.tree.map(jnp.add, total, one.total), told

    filled = -(-count // part)
    total, told = jax.lax.fori_loop(0, filled, add, (nothing.total, told))
    return clipping.ClippedSum(total, *(leaf[:width] for leaf in told))
