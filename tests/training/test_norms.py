"""Are the norms a clip norm is chosen from those of single gradients?"""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from dpsparfl_jax import config
from dpsparfl_jax.runner.choose_clip_norm import choose_clip_norm
from dpsparfl_jax.training import clipping, models, norms
from dpsparfl_jax.types import ImageSet
from tests.worlds import SHAPE, cached_init, make_world


@pytest.fixture(scope="module")
def world():
    return make_world(clients=4, examples=30)


def first_run(world):
    return jax.tree.map(lambda leaf: leaf[0], world.params)


@pytest.mark.parametrize("method", ["ghost", "vmap"])
def test_norms_are_those_of_single_gradients(world, method):
    params = first_run(world)
    measure = norms.make_gradient_norms(
        world.net, params, SHAPE, method=method, batch_size=50
    )

    def loss(params, image, label):
        logits = world.net.apply({"params": params}, image[None])
        return clipping.example_losses(logits, label[None])[0]

    pixels = (world.data.images.astype(np.float32) / 255 - 0.5) / 0.5
    gradients = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0, 0)))(
        params, pixels, world.data.labels
    )
    squares = [
        np.sum(np.square(leaf), axis=tuple(range(1, leaf.ndim)))
        for leaf in jax.tree.leaves(jax.device_get(gradients))
    ]
    np.testing.assert_allclose(
        measure(params, world.data), np.sqrt(sum(squares)), rtol=1e-4
    )


@pytest.mark.slow
def test_norms_of_a_large_network_do_not_depend_on_the_method():
    """A mask of constant ones made XLA read memory that nobody wrote."""
    shape = (28, 28, 1)
    params, net = cached_init("mnist_cnn", shape), models.make_model("mnist_cnn")
    stream = np.random.default_rng(0)
    images = stream.integers(0, 256, (50, *shape), np.uint8)
    data = ImageSet(images, stream.integers(0, 10, 50).astype(np.int32))
    ghost, textbook = (
        norms.make_gradient_norms(net, params, shape, method=method, batch_size=size)
        for method, size in (("ghost", 50), ("vmap", 10))
    )
    np.testing.assert_allclose(ghost(params, data), textbook(params, data), rtol=1e-4)


def owned(world):
    return [world.tables.of(0, client) for client in range(len(world.tables.sizes[0]))]


def choose(world, way, answering=None):
    params = first_run(world)
    privacy = config.PrivacyConfig(
        clip_calibration=way, clip_sampling_rate=1.0, clip_noise_multiplier=8.0
    )
    settings = config.RunConfig(privacy=privacy)
    measure = functools.partial(
        norms.make_gradient_norms(world.net, params, SHAPE), params
    )
    answering = owned(world) if answering is None else answering
    test = ImageSet(world.data.images[:25], world.data.labels[:25])
    chosen = choose_clip_norm(settings, measure, world.data, test, answering)
    return chosen, np.asarray(measure(world.data)), settings


def test_each_way_of_choosing(world):
    by_hand, everybody, settings = choose(world, "none")
    assert by_hand.value == settings.training.clip_norm
    median, _, _ = choose(world, "median")
    used = everybody[np.concatenate(owned(world))]
    assert median.value == pytest.approx(np.median(used), rel=1e-5)
    assert not median.private
    heldout, _, _ = choose(world, "heldout")
    assert heldout.value == pytest.approx(np.median(everybody[:25]), rel=1e-5)
    assert heldout.private
    private, _, _ = choose(world, "private")
    assert private.private
    assert "charged" in private.statement
    # 108 records, noise of 8 on the count: within a tenth of the median's quantile.
    assert abs(np.mean(used <= private.value) - 0.5) < 0.1


def test_only_clients_that_answer_are_asked(world):
    third = owned(world)[2]
    one, everybody, _ = choose(world, "median", [third])
    assert one.value == pytest.approx(np.median(everybody[third]), rel=1e-5)


def test_a_configuration_says_how_the_quantile_is_asked():
    from dpsparfl_jax.privacy import first_ledger

    privacy = config.PrivacyConfig(clip_calibration="private", clip_rounds=7)
    settings = config.RunConfig(privacy=privacy)
    query = first_ledger.quantile_query(settings)
    assert query.rounds == 7
    assert query.start == settings.training.clip_norm
    plain = dataclasses.replace(privacy, clip_calibration="median")
    assert first_ledger.quantile_query(config.RunConfig(privacy=plain)) is None
