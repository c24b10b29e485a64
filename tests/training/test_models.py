"""Are the models the paper's, and can a user add one with one line?"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.registry import MODELS
from dpsparfl_jax.training import models, opened_layers

SHAPES = {
    "mnist_cnn": (28, 28, 1),
    "cifar_cnn": (32, 32, 3),
    "mnist_cnn_tanh": (28, 28, 1),
    "cifar_cnn_tanh": (32, 32, 3),
    "norm_cnn": (28, 28, 1),
    "small_cnn": (28, 28, 1),
    "logistic": (28, 28, 1),
}


def parameter_shapes(name):
    net = models.make_model(name)
    images = jnp.zeros((1, *SHAPES[name]))
    return jax.eval_shape(net.init, jax.random.key(0), images)["params"]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("mnist_cnn", 1_663_370),
        ("cifar_cnn", 930_826),
        ("norm_cnn", 61_834),
        ("logistic", 7850),
    ],
)
def test_parameter_counts(name, count):
    assert sum(leaf.size for leaf in jax.tree.leaves(parameter_shapes(name))) == count


def test_layers_are_the_papers():
    mnist = parameter_shapes("mnist_cnn")
    assert mnist["Conv_0"]["kernel"].shape == (5, 5, 1, 32)
    assert mnist["Conv_1"]["kernel"].shape == (5, 5, 32, 64)
    assert mnist["Dense_0"]["kernel"].shape == (3136, 512)
    cifar = parameter_shapes("cifar_cnn")
    kernels = [cifar[f"Conv_{i}"]["kernel"].shape for i in range(3)]
    assert kernels == [(3, 3, 3, 64), (3, 3, 64, 128), (3, 3, 128, 256)]
    widths = [cifar[f"Dense_{i}"]["kernel"].shape[1] for i in range(3)]
    assert widths == [128, 256, 10]


@pytest.mark.parametrize(
    "name", [name for name in MODELS.names() if not name.startswith("audit_")]
)
def test_every_registered_model_can_be_opened(name):
    opened = opened_layers.find_layers(
        models.make_model(name), parameter_shapes(name), SHAPES[name]
    )
    assert len(opened) == len(parameter_shapes(name))


@pytest.mark.parametrize("activation", [nn.relu, jnp.tanh])
def test_pooling_first_is_the_same_network(activation):
    x = jax.random.normal(jax.random.key(0), (3, 8, 8, 1))
    net = models.ConvNet((4,), 3, (5,), 10, activation)
    params = models.init_params(net, jax.random.key(1), (8, 8, 1))
    layers = {name: {"params": params[name]} for name in params}
    maps = activation(nn.Conv(4, (3, 3)).apply(layers["Conv_0"], x))
    flat = nn.max_pool(maps, (2, 2), (2, 2)).reshape(3, -1)
    hidden = activation(nn.Dense(5).apply(layers["Dense_0"], flat))
    wanted = nn.Dense(10).apply(layers["Dense_1"], hidden)
    np.testing.assert_allclose(net.apply({"params": params}, x), wanted, atol=1e-6)


@pytest.mark.parametrize("name", ["mnist_cnn", "cifar_cnn"])
def test_networks_with_tanh_have_the_parameters_of_the_others(name):
    plain, bounded = (models.make_model(each) for each in (name, f"{name}_tanh"))
    assert (plain.activation, bounded.activation) == (nn.relu, jnp.tanh)
    assert plain.clone(activation=jnp.tanh) == bounded


def test_group_norms_follow_every_convolution():
    shapes = parameter_shapes("norm_cnn")
    for number, width in enumerate((32, 64, 64)):
        assert shapes[f"Conv_{number}"]["kernel"].shape[-1] == width
        assert shapes[f"GroupNorm_{number}"]["scale"].shape == (width,)


def test_images_that_are_too_small_are_refused():
    with pytest.raises(InputError, match="the images are too small for the model"):
        models.measure("cifar_cnn", 10, (7, 7, 81))


def test_pooling_is_the_window_maximum():
    x = jax.random.normal(jax.random.key(0), (2, 7, 9, 3))
    np.testing.assert_array_equal(
        models.max_pool_2x2(x), nn.max_pool(x, (2, 2), (2, 2))
    )


def test_initialisation_depends_on_the_key_alone():
    net = models.make_model("logistic")
    a, b, c = (models.init_params(net, jax.random.key(k), (4, 4, 1)) for k in (0, 0, 1))
    kernels = [p["Dense_0"]["kernel"] for p in (a, b, c)]
    np.testing.assert_array_equal(kernels[0], kernels[1])
    assert (kernels[0] != kernels[2]).any()


def test_a_user_adds_a_model_with_one_line(monkeypatch):
    monkeypatch.setattr(MODELS, "_entries", dict(MODELS._entries))
    models.register_model("mine")(lambda classes: models.ConvNet((2,), 3, (), classes))
    assert models.make_model("mine", 7).num_classes == 7
    with pytest.raises(InputError, match="already a model named 'mine'"):
        models.register_model("mine")(models.Logistic)


def test_unknown_model_is_refused_by_name():
    with pytest.raises(InputError, match="unknown model 'resnet': choose one of mnist"):
        models.make_model("resnet")


@pytest.mark.parametrize(
    ("name", "least"), [("cifar_cnn", 8), ("mnist_cnn", 4), ("norm_cnn", 8)]
)
def test_the_smallest_images_of_a_model_are_named(name, least):
    models.measure(name, 10, (least, least, 3))
    message = f"needs at least {least} x {least} pixels, but they have 1 x {least}"
    with pytest.raises(InputError, match=message):
        models.measure(name, 10, (1, least, 3))
