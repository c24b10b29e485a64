"""Are accuracy and loss those of the model, whatever the batch or execution?"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.training import evaluate, models
from dpsparfl_jax.types import EvalRows, ImageSet
from tests import worlds


def everything(data, runs=1):
    rows = np.tile(np.arange(len(data.labels), dtype=np.int32), (runs, 1))
    return EvalRows(rows, np.ones(runs, bool))


def plain_evaluation(world, run):
    images = (world.data.images / 255.0 - 0.5) / 0.5
    params = worlds.first_params(world, run)
    logits = world.net.apply({"params": params}, jnp.asarray(images, jnp.float32))
    labels = jnp.asarray(world.data.labels)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return (np.asarray(logits).argmax(1) == world.data.labels).mean(), float(
        losses.mean()
    )


@pytest.mark.parametrize(
    "batch_size", [7, 180, pytest.param(1000, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("execution", ["map", "vmap"])
def test_equals_a_plain_forward_pass(batch_size, execution):
    world = worlds.make_world("small_cnn", seeds=(0, 5))
    got = evaluate.make_evaluate(
        world.net, worlds.SHAPE, batch_size=batch_size, execution=execution
    )(world.params, world.data, everything(world.data, runs=2))
    for run in range(2):
        accuracy, loss = plain_evaluation(world, run)
        assert got.accuracy[run] == pytest.approx(accuracy)
        assert got.loss[run] == pytest.approx(loss, rel=1e-5)
        assert got.right[run].mean() == pytest.approx(accuracy)


@pytest.mark.parametrize("execution", ["map", "vmap"])
def test_each_run_has_its_own_test_images_and_may_be_left_out(execution):
    world = worlds.make_world("small_cnn", seeds=(0, 5, 9))
    total = len(world.data.labels)
    rows = np.stack([np.arange(30), np.arange(30), total - 1 - np.arange(30)])
    measure = evaluate.make_evaluate(
        world.net, worlds.SHAPE, batch_size=8, execution=execution
    )
    wanted = EvalRows(rows.astype(np.int32), np.array([True, False, True]))
    got = measure(world.params, world.data, wanted)
    whole = measure(world.params, world.data, everything(world.data, runs=3))
    for run in (0, 2):
        np.testing.assert_array_equal(got.right[run], whole.right[run][rows[run]])
        assert got.accuracy[run] == pytest.approx(got.right[run].mean())
    assert not got.right[1].any()
    assert got.loss[1] == 0
    assert got.loss[0] > 0


def test_models_with_other_layers_are_evaluated_too():
    class Normed(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(10)(nn.RMSNorm()(x.reshape(x.shape[0], -1)))

    net, shape = Normed(), (4, 4, 1)
    params = models.init_params(net, jax.random.key(0), shape)
    images = np.random.default_rng(0).integers(0, 256, (5, *shape), np.uint8)
    data = ImageSet(images, np.arange(5, dtype=np.int32))
    got = evaluate.make_evaluate(net, shape)(
        jax.tree.map(lambda p: p[None], params), data, everything(data)
    )
    pixels = jnp.asarray((images / 255.0 - 0.5) / 0.5, jnp.float32)
    logits = net.apply({"params": params}, pixels)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.arange(5))
    assert got.loss[0] == pytest.approx(float(losses.mean()), rel=1e-5)
    right = np.asarray(logits).argmax(1) == np.arange(5)
    assert got.accuracy[0] == pytest.approx(right.mean())


def test_images_of_another_shape_are_refused():
    world = worlds.make_world("small_cnn")
    measure = evaluate.make_evaluate(world.net, (9, 8, 1))
    with pytest.raises(InputError, match="takes uint8 images of shape"):
        measure(world.params, world.data, everything(world.data))


def test_empty_batches_are_refused():
    with pytest.raises(InputError, match="evaluation batch size"):
        evaluate.make_evaluate(models.make_model("logistic"), (4, 4, 1), batch_size=0)
