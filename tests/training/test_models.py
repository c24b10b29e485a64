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
    "small_cnn": (28, 28, 1),
    "logistic": (28, 28, 1),
}


def parameter_shapes(name):
    net = models.make_model(name)
    images = jnp.zeros((1, *SHAPES[name]))
    return jax.eval_shape(net.init, jax.random.key(0), images)["params"]


@pytest.mark.parametrize(
    ("name", "count"),
    [("mnist_cnn", 1_663_370), ("cifar_cnn", 930_826), ("logistic", 7850)],
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


@pytest.mark.parametrize("name", MODELS.names())
def test_every_registered_model_can_be_opened(name):
    opened = opened_layers.find_layers(
        models.make_model(name), parameter_shapes(name), SHAPES[name]
    )
    assert len(opened) == len(parameter_shapes(name))


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
