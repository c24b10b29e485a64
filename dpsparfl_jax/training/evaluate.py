"""Accuracy and loss of every run's model on a test set, in batches."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.training import cohort, cpu_kernels, opened_layers
from dpsparfl_jax.training.clipping import example_losses
from dpsparfl_jax.training.layer_rules import UnsupportedLayer
from dpsparfl_jax.training.local import (
    check_images,
    check_pixel_statistics,
    normalise,
)
from dpsparfl_jax.types import EvalRows, Evaluation, ImageSet, Params

Evaluate = Callable[[Params, ImageSet, EvalRows], Evaluation]


def make_evaluate(
    model: nn.Module,
    image_shape: tuple[int, ...],
    *,
    pixel_mean: tuple[float, ...] = (0.5,),
    pixel_std: tuple[float, ...] = (0.5,),
    batch_size: int = 250,
    execution: str = "auto",
    kernels: str = "auto",
    mesh: Mesh | None = None,
) -> Evaluate:
    """Compiled `(params [R, ...], test set, test rows) -> Evaluation [R]`.

    Batches of images are shared by the devices of the mesh (one device unless given).
    Runs that are not wanted cost nothing where runs go one by one (`map`).
    """
    if batch_size < 1:
        raise InputError("the evaluation batch size must be at least 1.")
    check_pixel_statistics(pixel_mean, pixel_std, image_shape[-1])
    forward = cpu_kernels.choosing(kernels, _forward(model, image_shape))
    mesh = mesh or cohort.task_mesh(jax.devices()[:1])
    platform = mesh.devices.flat[0].platform
    execution = cohort.resolve_execution(execution, platform)

    def one_batch(
        params: Params, data: ImageSet, chosen: jax.Array, start: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Which images are told right, and the sum of losses."""
        total = chosen.shape[0]
        places = start + jnp.arange(batch_size)
        real = places < total
        rows = chosen[jnp.minimum(places, total - 1)]
        labels = data.labels[rows]
        images = normalise(data.images[rows], pixel_mean, pixel_std)
        logits = forward(params, images)
        right = real & (jnp.argmax(logits, axis=-1).astype(labels.dtype) == labels)
        losses = jnp.where(real, example_losses(logits, labels), np.float32(0))
        return right, jnp.sum(losses)

    def on_device(
        params: Params, data: ImageSet, test: EvalRows, starts: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Some batches of every run: [R, batches, batch size], [R, batches]."""

        def one_run(one: Params, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
            return jax.lax.map(lambda start: one_batch(one, data, rows, start), starts)

        def if_wanted(inputs: Any) -> tuple[jax.Array, jax.Array]:
            one, rows, wanted = inputs
            shapes = jax.eval_shape(one_run, one, rows)
            nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
            return jax.lax.cond(wanted, lambda: one_run(one, rows), lambda: nothing)

        each = (params, test.rows, test.wanted)
        if execution == "map":
            return jax.lax.map(if_wanted, each)
        return jax.vmap(if_wanted)(each)

    replicated = NamedSharding(mesh, PartitionSpec())

    def evaluate(params: Params, data: ImageSet, test: EvalRows) -> Evaluation:
        check_images(data, image_shape)
        runs, total = test.rows.shape
        batches = -(-total // batch_size)
        padded = -(-batches // mesh.size) * mesh.size
        everywhere, split = PartitionSpec(), PartitionSpec(None, cohort.AXIS)
        right, loss = jax.shard_map(
            on_device,
            mesh=mesh,
            in_specs=(everywhere, everywhere, everywhere, PartitionSpec(cohort.AXIS)),
            out_specs=(split, split),
            check_vma=False,
        )(params, data, test, jnp.arange(padded) * batch_size)
        # All batches on every device: sums of them are then rounded alike, whatever
        # the number of devices.
        right, loss = jax.lax.with_sharding_constraint((right, loss), replicated)
        right = right.reshape(runs, -1)[:, :total]
        divisor = np.float32(total)
        return Evaluation(
            jnp.sum(right, axis=1, dtype=jnp.int32).astype(jnp.float32) / divisor,
            jnp.sum(loss[:, :batches], axis=1) / divisor,
            right,
        )

    return jax.jit(evaluate, out_shardings=replicated)


def _forward(
    model: nn.Module, image_shape: tuple[int, ...]
) -> Callable[[Params, jax.Array], jax.Array]:
    """The model's forward pass, with opened layers where it has only such."""
    shapes = jax.eval_shape(
        model.init, jax.random.key(0), jnp.zeros((1, *image_shape), jnp.float32)
    )["params"]
    try:
        opened_layers.find_layers(model, shapes, image_shape)
    except UnsupportedLayer:
        apply: Any = model.apply

        def one_by_one(params: Params, images: jax.Array) -> jax.Array:
            return jax.vmap(lambda image: apply({"params": params}, image[None])[0])(
                images
            )

        return one_by_one
    return lambda params, images: opened_layers.run_each(model, params, images)[0]
