"""Does the fast clipped sum equal the textbook one, and that one the equations?"""

import logging

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.training import clipping, models, norm_errors
from tests import worlds
from tests.reference import plain
from tests.training import odd_models
from tests.training.clipped_sums import (
    CLIPS,
    check_agreement,
    draw_mask,
    make_batch,
    relative_error,
)

SHAPES = {"mnist_cnn": (28, 28, 1), "cifar_cnn": (32, 32, 3)}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mnist_cnn", "cifar_cnn"])
@pytest.mark.parametrize("keep_rate", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("clip", CLIPS)
def test_ghost_equals_vmap_on_the_paper_networks(model, keep_rate, clip):
    check_agreement(models.make_model(model), SHAPES[model], keep_rate, clip)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "shape"),
    [
        ("mnist_cnn_tanh", (28, 28, 1)),
        ("norm_cnn", (32, 32, 3)),
        ("logistic", (7, 7, 81)),  # scattering features
    ],
)
def test_ghost_equals_vmap_on_networks_for_privacy(model, shape):
    check_agreement(models.make_model(model), shape, 0.3, "mixed")


@pytest.mark.parametrize("method", clipping.METHODS)
def test_clipped_sum_equals_the_equations_in_float64(method):
    net, shape = models.make_model("logistic"), (5, 4, 2)
    params = models.init_params(net, jax.random.key(0), shape)
    mask = draw_mask(params, 0.4)
    images, labels = make_batch(shape, size=9)
    bound, real = 1.7, np.arange(9) < 7
    got = clipping.make_clipped_sum(net, params, shape, method)(
        params, mask, images, labels, jnp.asarray(real), jnp.float32(bound)
    )
    layer = jax.tree.map(lambda x: np.asarray(x, np.float64), params["Dense_0"])
    pixels = np.asarray(images, np.float64).reshape(9, -1)[real]
    grads = plain.logistic_gradients(
        layer["kernel"], layer["bias"], pixels, np.asarray(labels)[real]
    )
    layer_mask = mask["Dense_0"]
    kernel, bias, norms = plain.clipped_sum(
        *grads,
        np.asarray(layer_mask["kernel"]),
        np.asarray(layer_mask["bias"]),
        bound / np.sqrt(1 + norm_errors.lost_share(params)),
    )
    np.testing.assert_allclose(got.norms[:7], norms, rtol=1e-5)
    np.testing.assert_allclose(got.total["Dense_0"]["kernel"], kernel, atol=2e-6)
    np.testing.assert_allclose(got.total["Dense_0"]["bias"], bias, atol=2e-6)
    assert 0 < (norms > bound).sum() < 7


@pytest.mark.parametrize("method", clipping.METHODS)
def test_no_example_weighs_more_than_the_bound(method):
    net, shape = models.make_model("small_cnn"), (8, 8, 1)
    params = jax.tree.map(jnp.asarray, worlds.cached_init("small_cnn", shape))
    mask = draw_mask(params, 0.5)
    fn = jax.jit(clipping.make_clipped_sum(net, params, shape, method))
    bound = jnp.float32(0.7)
    for scale in (1e-3, 1.0, 1e3, 1e8):
        images, labels = make_batch(shape, size=1, seed=9)
        out = fn(params, mask, scale * images, labels, jnp.array([True]), bound)
        total, kept = jax.device_get((out.total, mask))
        norm = np.sqrt(sum((x**2).sum() for x in jax.tree.leaves(total)))
        assert norm <= 0.7 * (1 + 1e-6)
        dropped = jax.tree.map(lambda t, m: t[m == 0], total, kept)
        assert all((leaf == 0).all() for leaf in jax.tree.leaves(dropped))


@pytest.mark.parametrize("method", clipping.METHODS)
def test_a_gradient_below_the_bound_is_left_alone_and_zero_is_safe(method):
    net, shape = models.make_model("logistic"), (2, 2, 1)
    zero = jax.tree.map(
        jnp.zeros_like, models.init_params(net, jax.random.key(0), shape)
    )
    kept = jax.tree.map(jnp.ones_like, zero)
    none = jax.tree.map(jnp.zeros_like, zero)
    fn = jax.jit(clipping.make_clipped_sum(net, zero, shape, method))
    images, labels = make_batch(shape, size=1)
    real = jnp.array([True])
    free = fn(zero, kept, images, labels, real, jnp.float32(np.inf))
    loose = fn(zero, kept, images, labels, real, free.norms[0] * np.float32(1.01))
    chex.assert_trees_all_equal(free.total, loose.total)
    masked = fn(zero, none, images, labels, real, jnp.float32(1.0))
    assert float(masked.norms[0]) == 0.0
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(masked.total))


@pytest.mark.parametrize("method", clipping.METHODS)
def test_an_example_with_a_gradient_that_is_not_finite_adds_nothing(method):
    net, shape = models.make_model("small_cnn"), (8, 8, 1)
    params = jax.tree.map(jnp.asarray, worlds.cached_init("small_cnn", shape))
    mask = jax.tree.map(jnp.ones_like, params)
    fn = jax.jit(clipping.make_clipped_sum(net, params, shape, method))
    images, labels = make_batch(shape, size=4)
    bad = images.at[1].set(np.float32(np.nan)).at[2].set(np.float32(3e38))
    unknown = labels.at[3].set(10)  # the model has classes 0 to 9
    got = fn(params, mask, bad, unknown, jnp.ones(4, bool), jnp.float32(1.0))
    rest = jnp.array([True, False, False, False])
    wanted = fn(params, mask, images, labels, rest, jnp.float32(1.0))
    chex.assert_trees_all_close(got.total, wanted.total, rtol=1e-5)
    assert got.finite.tolist() == rest.tolist()


def test_tiny_inputs_times_huge_cotangents_do_not_slip_past_the_bound():
    class Scaled(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = x.reshape(x.shape[0], -1)
            # Cotangent of the first layer is 1e25 times what the inputs shrink by.
            return nn.Dense(3)(x * np.float32(1e-25)) * np.float32(1e25)

    shape, net = (2, 2, 1), Scaled()
    params = models.init_params(net, jax.random.key(0), shape)
    mask = jax.tree.map(jnp.ones_like, params)
    mask["Dense_0"]["bias"] = jnp.zeros(3)
    images, labels = make_batch(shape, size=3)
    arguments = (params, mask, images, labels % 3, jnp.ones(3, bool), jnp.float32(0.1))
    fast, slow = (
        jax.jit(clipping.make_clipped_sum(net, params, shape, method))(*arguments)
        for method in ("ghost", "vmap")
    )
    np.testing.assert_allclose(fast.norms, slow.norms, rtol=1e-5)
    assert (fast.norms > 0.1).any()


class Exponential(nn.Module):
    """Features that differ by many orders of magnitude."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(10)(jnp.exp(x.reshape(x.shape[0], -1)))


def exact_norm(total):
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(total)]
    return np.sqrt(sum((leaf**2).sum() for leaf in leaves))


@pytest.mark.parametrize("method", clipping.METHODS)
@pytest.mark.parametrize("spread", [20.0, 40.0, 45.0, 60.0, 80.0])
def test_a_mask_that_drops_the_largest_entry_does_not_lift_the_bound(method, spread):
    """Squares of the others underflow; they are 1 where the largest is e^spread."""
    net, shape = Exponential(), (4, 4, 1)
    params = models.init_params(net, jax.random.key(0), shape)
    mask = jax.tree.map(jnp.ones_like, params)
    kernel = mask["Dense_0"]["kernel"].at[0].set(np.float32(0))
    mask["Dense_0"] = {"kernel": kernel, "bias": jnp.zeros(10)}
    params = jax.tree.map(jnp.zeros_like, params)
    image = jnp.zeros((1, *shape)).at[0, 0, 0, 0].set(np.float32(spread))
    fn = jax.jit(clipping.make_clipped_sum(net, params, shape, method))
    label, real = jnp.zeros(1, jnp.int32), jnp.array([True])
    free = exact_norm(fn(params, mask, image, label, real, jnp.float32(np.inf)).total)
    assert free > 3
    for bound in (1e-3, 0.05, 1.0):
        total = fn(params, mask, image, label, real, jnp.float32(bound)).total
        assert exact_norm(total) <= bound


@pytest.mark.parametrize("method", clipping.METHODS)
def test_the_bound_holds_at_the_ends_of_float32(method):
    """Inverses, factors and products that are too small for full numbers."""
    net, shape = models.make_model("logistic", 2), (16, 1, 1)
    params = models.init_params(net, jax.random.key(0), shape)
    params = jax.tree.map(jnp.zeros_like, params)
    mask = jax.tree.map(jnp.ones_like, params)
    fn = jax.jit(clipping.make_clipped_sum(net, params, shape, method))
    label, real = jnp.zeros(1, jnp.int32), jnp.array([True])
    values = np.float32([1e-44, 1e-39, 1e-30, 1e15, 1e18, 1e25, 1e32, 9e37, 3.4e38])
    for value in values:
        for bound in (1e-30, 1e-3, 0.5, 1e3):
            image = jnp.full((1, *shape), value)
            image = image.at[0, 0].set(np.float32(1e-20))
            total = fn(params, mask, image, label, real, jnp.float32(bound)).total
            assert exact_norm(total) <= bound


@pytest.mark.parametrize("method", clipping.METHODS)
@pytest.mark.parametrize("inputs", [64, 4096, 262_144])
def test_rounding_of_long_sums_does_not_lift_the_bound(method, inputs):
    """Equal squares of 1 and a bit lose as much as any when they are added up."""
    net, shape = models.make_model("logistic", 2), (inputs, 1, 1)
    params = models.init_params(net, jax.random.key(0), shape)
    params = jax.tree.map(jnp.zeros_like, params)
    mask = jax.tree.map(jnp.ones_like, params)
    fn = jax.jit(clipping.make_clipped_sum(net, params, shape, method))
    label, real = jnp.zeros(1, jnp.int32), jnp.array([True])
    for value in (1.0, 1.0003, 3e-5, 7e8):
        image = jnp.full((1, *shape), np.float32(value))
        total = fn(params, mask, image, label, real, jnp.float32(0.5)).total
        assert 0.45 < exact_norm(total) <= 0.5


def test_what_rounding_may_lose_is_small_for_the_papers_networks():
    for name, shape in SHAPES.items():
        params = worlds.cached_init(name, shape)
        assert 1e-6 < norm_errors.lost_share(params) < 5e-4
    endless = {"kernel": jax.ShapeDtypeStruct((2**24, 10), jnp.float32)}
    with pytest.raises(InputError, match="split the layer"):
        norm_errors.lost_share(endless)


def agree(net, caplog):
    """Runs both methods, returns whether ghost fell back."""
    shape = (8, 8, 1)
    params = models.init_params(net, jax.random.key(0), shape)
    mask = draw_mask(params, 0.5)
    images, labels = make_batch(shape)
    real = jnp.arange(5) < 4
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        fast = clipping.make_clipped_sum(net, params, shape, "ghost")
    fell_back = any("using 'vmap'" in message for message in caplog.messages)
    slow = clipping.make_clipped_sum(net, params, shape, "vmap")
    arguments = (params, mask, images, labels, real, jnp.float32(1.0))
    a, b = jax.jit(fast)(*arguments), jax.jit(slow)(*arguments)
    np.testing.assert_allclose(a.norms, b.norms, rtol=1e-5)
    assert relative_error(a.total, b.total) < 1e-5
    return fell_back


@pytest.mark.parametrize(
    "net",
    [
        pytest.param(odd_models.Assorted(), marks=pytest.mark.slow),
        odd_models.Mixing(),
    ],
    ids=lambda net: type(net).__name__,
)
def test_ghost_opens_every_plain_dense_and_convolution(net, caplog):
    assert not agree(net, caplog)


@pytest.mark.parametrize("method", clipping.METHODS)
def test_no_record_touches_another_whatever_the_model_does(method):
    net, shape = odd_models.Mixing(), (8, 8, 1)
    params = models.init_params(net, jax.random.key(0), shape)
    mask = jax.tree.map(jnp.ones_like, params)
    fn = jax.jit(clipping.make_clipped_sum(net, params, shape, method))
    images, labels = make_batch(shape)
    real, bound = jnp.arange(5) < 4, jnp.float32(0.5)
    base = fn(params, mask, images, labels, real, bound)
    for changed in (0, 4):  # a record, and padding
        other = images.at[changed].multiply(np.float32(100))
        got = fn(params, mask, other, labels, real, bound)
        rest = np.arange(5) != changed
        np.testing.assert_array_equal(got.norms[rest], base.norms[rest])


@pytest.mark.parametrize(
    "net",
    [
        odd_models.Normed(),
        odd_models.Twice(),
        odd_models.Peeks(),
        pytest.param(odd_models.Grouped(), marks=pytest.mark.slow),
        pytest.param(odd_models.Remat(), marks=pytest.mark.slow),
        odd_models.Tripled(),
        odd_models.WeightNormed(),
        odd_models.Promoted(),
        pytest.param(odd_models.Stacked(), marks=pytest.mark.slow),
        odd_models.Rooted(),
        odd_models.Boxed(),
        pytest.param(odd_models.Scanned(), marks=pytest.mark.slow),
        pytest.param(odd_models.RematBlock(), marks=pytest.mark.slow),
        pytest.param(odd_models.Jitted(), marks=pytest.mark.slow),
        odd_models.Mapped(),
        odd_models.MappedByHand(),
        pytest.param(odd_models.Detached(), marks=pytest.mark.slow),
        odd_models.Tied(),
        pytest.param(odd_models.TiedByHand(), marks=pytest.mark.slow),
        pytest.param(odd_models.EmbeddedTwice(), marks=pytest.mark.slow),
        pytest.param(odd_models.WideTokens(), marks=pytest.mark.slow),
        pytest.param(odd_models.SharedNorm(), marks=pytest.mark.slow),
        pytest.param(
            odd_models.NormedOver(reduction_axes=(1, 2, 3)), marks=pytest.mark.slow
        ),
        pytest.param(
            odd_models.NormedOver(reduction_axes=(1, 2), feature_axes=(1, 2)),
            marks=pytest.mark.slow,
        ),
        pytest.param(odd_models.GroupedOver(), marks=pytest.mark.slow),
        pytest.param(odd_models.NormedPartly(), marks=pytest.mark.slow),
    ],
    ids=lambda net: type(net).__name__,
)
def test_other_models_fall_back_with_a_log_line_and_stay_right(net, caplog):
    assert agree(net, caplog)


def planned_bytes_per_example(method, hidden):
    """Growth of the memory that XLA plans, per example of a batch."""
    net, shape = models.ConvNet((), 0, (hidden,), 10), (28, 28, 1)
    params = models.init_params(net, jax.random.key(0), shape)
    fn = jax.jit(clipping.make_clipped_sum(net, params, shape, method))

    def planned(batch):
        arguments = (
            params,
            params,
            jnp.zeros((batch, *shape)),
            jnp.zeros(batch, jnp.int32),
            jnp.ones(batch, bool),
            jnp.float32(1.0),
        )
        return fn.lower(*arguments).compile().memory_analysis().temp_size_in_bytes

    return (planned(24) - planned(8)) / 16


@pytest.mark.slow
def test_memory_per_example_does_not_grow_with_the_dense_layers():
    small, large = (planned_bytes_per_example("ghost", h) for h in (64, 512))
    assert large - small < 20 * 4 * (512 - 64)  # a few activations, no weights
    small, large = (planned_bytes_per_example("vmap", h) for h in (64, 512))
    assert large - small > 0.9 * 4 * 784 * (512 - 64)  # textbook: whole gradients


def test_unknown_method_is_refused():
    with pytest.raises(InputError, match="unknown clipping method 'gost'"):
        clipping.make_clipped_sum(models.make_model("logistic"), {}, (2, 2, 1), "gost")
