"""Is a convolution the same with one kernel and with a kernel for every client?"""

import os
import platform
import shutil

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsparfl_jax.training import cpu_kernels
from dpsparfl_jax.training.convolution import convolve, geometry_of, row_windows

QUICK = [
    ((9, 8), (3, 2), (2, 1), "VALID"),
    ((6, 7), (3, 3), (1, 1), ((2, 0), (3, 4))),  # more margin than the kernel is long
]
OTHERS = [
    ((9, 8), (5, 5), (1, 1), "SAME"),
    ((11,), (4,), (3,), "SAME"),
    ((5, 4, 6), (2, 3, 1), (1, 1, 1), "SAME"),
]
CASES = [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in OTHERS)]


def make_layer(space, kernel, strides, padding):
    layer = nn.Conv(7, kernel, strides=strides, padding=padding, use_bias=False)
    x = jax.random.normal(jax.random.key(0), (4, *space, 3))
    params = jax.jit(layer.init)(jax.random.key(1), x)["params"]
    return layer, geometry_of(layer, space), x, params["kernel"]


def own_and_native(layer, geometry, clients):
    """Output and both gradients of a fixed function, by our code and by Flax."""

    def own(x, kernel):
        return convolve(x, kernel, geometry)

    def native(x, kernel):
        return layer.apply({"params": {"kernel": kernel}}, x)

    def everything(function):
        def weighted(x, kernel):
            y = function(x, kernel)
            weights = jnp.sin(jnp.arange(y.size, dtype=jnp.float32)).reshape(y.shape)
            return jnp.sum(y * weights), y

        one = jax.value_and_grad(weighted, argnums=(0, 1), has_aux=True)
        return jax.jit(jax.vmap(one) if clients else one)

    return everything(own), everything(native)


@pytest.mark.parametrize("clients", [False, True])
@pytest.mark.parametrize(("space", "kernel", "strides", "padding"), CASES)
def test_outputs_and_gradients_are_those_of_flax(
    space, kernel, strides, padding, clients
):
    layer, geometry, x, weights = make_layer(space, kernel, strides, padding)
    own, native = own_and_native(layer, geometry, clients)
    if clients:
        x = jnp.stack([x, 2 * x, -x])
        weights = jnp.stack([weights, weights + 1, 3 * weights])
    results = own(x, weights), native(x, weights)
    for ours, theirs in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("mapped", [(0, None), (None, 0), (0, 0)])
def test_any_of_the_two_may_have_the_axis_of_a_vmap(mapped):
    _, geometry, x, weights = make_layer(*CASES[1])
    if mapped[0] == 0:
        x = jnp.stack([x, 2 * x])
    if mapped[1] == 0:
        weights = jnp.stack([weights, weights + 1])
    axes = jax.jit(jax.vmap(lambda x, w: convolve(x, w, geometry), mapped))
    for client, result in enumerate(axes(x, weights)):
        one_x = x[client] if mapped[0] == 0 else x
        one_kernel = weights[client] if mapped[1] == 0 else weights
        alone = convolve(one_x, one_kernel, geometry)
        np.testing.assert_allclose(result, alone, rtol=1e-4, atol=1e-4)


def test_kernels_of_clients_are_products_and_one_kernel_is_a_convolution():
    """Grouped convolutions, which vmap would make of them, are slow."""
    _, geometry, x, weights = make_layer(*CASES[1])

    def program(function, *arguments):
        gradient = jax.grad(lambda *a: jnp.sum(function(*a) ** 2))
        return jax.jit(gradient).lower(*arguments).as_text()

    def one(x, kernel):
        return convolve(x, kernel, geometry)

    images = jax.vmap(lambda image, kernel: one(image[None], kernel), (0, None))
    alone = program(images, x, weights)
    assert "stablehlo.convolution" in alone
    assert "dot_general" not in alone
    several = program(jax.vmap(images, (0, 0)), x[None], weights[None])
    assert "dot_general" in several
    assert "stablehlo.convolution" not in several


@pytest.mark.parametrize(("space", "kernel", "strides", "padding"), CASES)
def test_windows_times_the_kernel_is_the_convolution(space, kernel, strides, padding):
    _, geometry, x, weights = make_layer(space, kernel, strides, padding)
    windows = row_windows(x, geometry)
    rows = weights.reshape(kernel[0], -1, 7)
    product = jnp.einsum("bk...i,kio->b...o", windows, rows)
    expected = convolve(x, weights, geometry)
    np.testing.assert_allclose(product, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(
    not shutil.which("c++") or platform.machine() != "x86_64" or os.name != "posix",
    reason="our kernels are built by a C++ compiler, for x86-64",
)
def test_kernels_of_our_own_were_built_where_they_can_be():
    """Without them their tests would be skipped, and nobody would notice."""
    assert cpu_kernels.instructions()
