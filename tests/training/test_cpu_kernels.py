"""Are our CPU kernels the convolutions, gradients, sums and noise that XLA computes?"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsparfl_jax.training import (
    clipping,
    cpu_kernels,
    local,
    models,
    noise,
    norm_errors,
    opened_layers,
)
from dpsparfl_jax.training.convolution import ConvInput, Geometry, convolve
from dpsparfl_jax.training.layer_gradients import convolution_kernel
from tests.training.clipped_sums import (
    check_agreement,
    draw_mask,
    make_batch,
    relative_error,
)

pytestmark = pytest.mark.skipif(
    not cpu_kernels.instructions(), reason="no kernels were built for this processor"
)
# Images [B, H, W, C], kernel size, output channels, zeros before and after.
CASES = [
    ((3, 14, 14, 32), 5, 64, ((2, 2), (2, 2))),  # the MNIST network
    ((2, 16, 16, 64), 3, 128, ((1, 1), (1, 1))),  # the CIFAR-10 network
    ((3, 7, 9, 16), 3, 48, ((1, 1), (1, 1))),  # tiles that reach beyond the image
    ((2, 9, 6, 48), 5, 16, ((0, 0), (0, 0))),  # no margins
    ((1, 5, 4, 16), 3, 32, ((3, 0), (0, 5))),  # margins longer than the kernel
    ((1, 8, 8, 128), 3, 256, ((1, 1), (1, 1))),  # few tiles, many channels
    ((2, 8, 8, 128), 3, 256, ((1, 1), (1, 1))),
    ((3, 8, 8, 32), 3, 96, ((1, 1), (1, 1))),
    ((12, 16, 16, 16), 3, 32, ((1, 1), (1, 1))),  # more tiles than a cache holds
    ((4, 16, 16, 64), 3, 128, ((1, 1), (1, 1))),
    ((14, 8, 8, 128), 3, 256, ((1, 1), (1, 1))),  # weights fill the cache by themselves
    ((1, 4, 4, 16), 5, 32, ((2, 2), (2, 2))),
    ((1, 8, 7, 16), 5, 64, ((2, 2), (2, 2))),
]
FEW = [
    ((3, 28, 28, 1), 5, 32, ((2, 2), (2, 2))),
    ((2, 9, 8, 3), 3, 64, ((1, 1), (1, 0))),
    ((2, 6, 6, 7), 3, 16, ((1, 1), (1, 1))),
]


@pytest.fixture(params=["avx512", "avx2"])
def instructions(request):
    """Every instruction set that this processor has, one after the other."""
    best = cpu_kernels.instructions()
    try:
        cpu_kernels._built.choose(request.param)
    except ValueError:
        pytest.skip(f"this processor has no {request.param}")
    yield request.param
    cpu_kernels._built.choose(best)


def make_case(shape, size, channels, padding):
    random = np.random.default_rng(0)
    out = [n + sum(p) - size + 1 for n, p in zip(shape[1:3], padding, strict=True)]
    x = np.maximum(random.standard_normal(shape), 0)
    kernel = random.standard_normal((size, size, shape[3], channels))
    d = random.standard_normal((shape[0], *out, channels))
    return x, kernel, d, Geometry((size, size), (1, 1), padding)


def windows_of(x, geometry):
    """[B, H', W', C, K, K], from the definition."""
    padded = np.pad(x, ((0, 0), *geometry.padding, (0, 0)))
    return np.lib.stride_tricks.sliding_window_view(
        padded, geometry.kernel_size, axis=(1, 2)
    )


def error(got, wanted):
    return np.linalg.norm(np.asarray(got) - wanted) / np.linalg.norm(wanted)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolutions_are_those_of_the_definition(case, instructions):
    x, kernel, d, geometry = make_case(*case)
    arrays = [jnp.asarray(each, jnp.float32) for each in (x, kernel, d)]

    @jax.jit
    def both(x, kernel, d):
        y, back = jax.vjp(lambda x: convolve(x, kernel, geometry), x)
        return y, back(d)[0]

    y, cotangent = both(*arrays)
    windows = windows_of(x, geometry)
    assert error(y, np.einsum("bhwckl,klco->bhwo", windows, kernel)) < 5e-6
    # The cotangent of the input, tested on another input: both are linear.
    other = np.random.default_rng(1).standard_normal(x.shape)
    moved = np.einsum("bhwckl,klco,bhwo->", windows_of(other, geometry), kernel, d)
    scale = np.linalg.norm(other) * np.linalg.norm(np.asarray(cotangent))
    assert abs(np.vdot(other, np.asarray(cotangent)) - moved) < 1e-6 * scale


@pytest.mark.parametrize("case", [*CASES, *FEW], ids=str)
def test_kernel_gradients_are_those_of_the_definition(case, instructions):
    x, kernel, d, geometry = make_case(*case)
    mask = np.random.default_rng(2).random(kernel.shape) < 0.4
    arrays = [jnp.asarray(each, jnp.float32) for each in (x, d, mask)]
    margins = tuple(before for before, _ in geometry.padding)
    g, squares = jax.jit(lambda *a: cpu_kernels.kernel_gradients(*a, margins))(*arrays)
    wanted = np.einsum("bhwckl,bhwo->bklco", windows_of(x, geometry), d)
    for example in range(len(x)):
        assert error(g[example], wanted[example]) < 5e-6
    kept = np.sum(np.where(mask, wanted, 0) ** 2, axis=(1, 2, 3, 4))
    np.testing.assert_allclose(squares, kept, rtol=1e-5)


def test_squares_are_never_much_below_those_of_the_gradients_that_are_added(
    instructions,
):
    """What clipping relies on: the share that `norm_errors` allows, to the digit."""
    x, kernel, d, _ = make_case(*CASES[0])
    mask = jnp.ones(kernel.shape)
    arrays = [jnp.asarray(each, jnp.float32) for each in (x, d)]
    g, squares = jax.jit(lambda x, d: cpu_kernels.kernel_gradients(x, d, mask, (2, 2)))(
        *arrays
    )
    exact = np.sum(np.asarray(g, np.float64) ** 2, axis=(1, 2, 3, 4))
    roundings = kernel[..., 0].size + kernel.shape[-1]
    assert np.all(np.asarray(squares) >= exact * (1 - roundings * 2.0**-24))


@pytest.mark.parametrize("poison", [np.nan, np.inf, 3e38])
def test_no_example_touches_another(poison, instructions):
    x, kernel, d, geometry = make_case(*CASES[0])
    x, kernel, d = (jnp.asarray(each, jnp.float32) for each in (x, kernel, d))
    mask = {"kernel": jnp.ones(kernel.shape)}

    @jax.jit
    def everything(x, d):
        y = convolve(x, kernel, geometry)
        part = convolution_kernel(mask, ConvInput(x[:, None], geometry), d[:, None])
        usable = jnp.isfinite(part.squared_norms)
        factors = jnp.where(usable, jnp.float32(0.5), jnp.float32(0))
        return y, part.squared_norms, part.weighted_sum(factors, usable)["kernel"]

    clean = everything(x, d)
    spoilt = everything(x.at[1, 4].set(poison), d)
    for a, b in zip(clean[:2], spoilt[:2], strict=True):
        np.testing.assert_array_equal(a[::2], b[::2])
    assert not np.isfinite(spoilt[1][1])
    two = everything(x[::2], d[::2])
    np.testing.assert_array_equal(two[0], clean[0][::2])
    np.testing.assert_array_equal(spoilt[2], two[2])


@pytest.mark.parametrize("size", [3, 5])
def test_batches_of_any_length_give_an_example_the_same_bits(size, instructions):
    """How many tiles are multiplied at once depends on how many there are."""
    margin = size // 2
    padding = ((margin, margin), (margin, margin))
    x, kernel, d, geometry = make_case((13, 8, 8, 32), size, 64, padding)
    x, kernel, d = (jnp.asarray(each, jnp.float32) for each in (x, kernel, d))

    @jax.jit
    def both(x, d):
        y, back = jax.vjp(lambda x: convolve(x, kernel, geometry), x)
        return y, back(d)[0]

    whole = both(x, d)
    for length in (1, 2, 3, 5, 12):
        for some, all_of in zip(both(x[:length], d[:length]), whole, strict=True):
            np.testing.assert_array_equal(some, all_of[:length])
    spoilt = both(x.at[1].set(np.nan), d.at[1].set(np.nan))
    for a, b in zip(spoilt, whole, strict=True):
        assert np.isnan(a[1]).any()
        np.testing.assert_array_equal(np.delete(a, 1, 0), np.delete(b, 1, 0))


@pytest.mark.parametrize("size", [1, 127, 128, 1000])
def test_an_example_with_factor_zero_adds_nothing(size, instructions):
    g = np.random.default_rng(0).standard_normal((5, size)).astype(np.float32)
    factors = np.array([0.5, 0, 1, 0, 2], np.float32)
    wanted = factors.astype(np.float64) @ g
    g[1], g[3] = np.nan, np.inf
    total = jax.jit(cpu_kernels.weighted_sum)(jnp.asarray(factors), jnp.asarray(g))
    np.testing.assert_allclose(total, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(cpu_kernels.instructions() != "avx512", reason="needs AVX-512")
@pytest.mark.parametrize("rounds", [20, 13])
@pytest.mark.parametrize("keep_rate", [0.0, 0.3, 1.0])
def test_noise_is_that_of_xla_at_every_coordinate(rounds, keep_rate):
    random = np.random.default_rng(0)
    shapes = {"a": (3, 5), "b": (3001,), "c": (40, 50)}
    total = {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    mask = {
        n: (random.random(s) < keep_rate).astype(np.float32) for n, s in shapes.items()
    }
    total["b"][mask["b"] == 0] = np.nan  # what is dropped may be anything

    def draw(kernels):
        def add(total, mask):
            return noise.add_noise(
                jax.random.key(5), total, mask, jnp.float32(2), rounds
            )

        return jax.jit(cpu_kernels.choosing(kernels, add))(total, mask)

    own, xla = draw("auto"), draw("xla")
    for name in shapes:
        np.testing.assert_allclose(own[name], xla[name], rtol=2e-6, atol=2e-6)
        assert np.all(np.asarray(own[name])[mask[name] == 0] == 0)


def calls(kernels, function, *arguments, platform="cpu"):
    """Names of our kernels in the lowered program."""
    chosen = jax.jit(cpu_kernels.choosing(kernels, function))
    text = chosen.trace(*arguments).lower(lowering_platforms=(platform,)).as_text()
    return "dpsparfl_" in text


@pytest.mark.parametrize(
    ("kernels", "platform", "clients", "used"),
    [
        ("auto", "cpu", False, True),
        ("xla", "cpu", False, False),
        ("auto", "cuda", False, False),
        ("auto", "cpu", True, False),
    ],
)
def test_kernels_are_used_on_cpus_where_clients_are_not_mapped(
    kernels, platform, clients, used
):
    x, kernel, d, geometry = make_case(*CASES[0])
    arrays = [jnp.asarray(each, jnp.float32) for each in (x, kernel, d)]

    def function(x, kernel, d):
        mask = {"kernel": jnp.ones(kernel.shape)}
        y = convolve(x, kernel, geometry)
        part = convolution_kernel(mask, ConvInput(x[:, None], geometry), d[:, None])
        total = part.weighted_sum(part.squared_norms, part.squared_norms > 0)["kernel"]
        return y, noise.add_noise(jax.random.key(0), total, kernel, jnp.float32(1))

    if clients:
        function, arrays = jax.vmap(function), [each[None] for each in arrays]
    assert calls(kernels, function, *arrays, platform=platform) == used


@pytest.mark.parametrize(("kernels", "used"), [("auto", True), ("xla", False)])
def test_a_client_that_is_to_do_without_our_kernels_has_none(kernels, used):
    """Neither in its clipped sums nor in its noise."""
    net, shape = models.make_model("small_cnn"), (8, 8, 1)
    params = models.init_params(net, jax.random.key(0), shape)
    spec = local.make_spec(
        *(net, params, shape),
        steps=1,
        padded_sizes=(4,),
        table_lengths=(8,),
        kernels=kernels,
    )
    images, labels = make_batch(shape, size=4)
    real, mask = jnp.ones(4, bool), jax.tree.map(jnp.ones_like, params)

    def step(params, images):
        one = jnp.float32(1)
        total = spec.clipped_sum(params, mask, images, labels, real, one).total
        return spec.add_noise(jax.random.key(0), total, mask, one, spec.noise_rounds)

    assert ("dpsparfl_" in jax.jit(step).lower(params, images).as_text()) == used


def test_without_built_kernels_everything_is_left_to_xla(monkeypatch):
    monkeypatch.setattr(cpu_kernels, "_built", None)
    cpu_kernels._registered.cache_clear()
    try:
        assert cpu_kernels.instructions() == ""
        assert not cpu_kernels.can_convolve((5, 5, 32, 64), (1, 1))
        assert not cpu_kernels.can_form_gradients((5, 5, 1, 32), (1, 1))
        assert not cpu_kernels.can_add_noise(20)
    finally:
        monkeypatch.undo()
        cpu_kernels._registered.cache_clear()
    assert cpu_kernels.can_convolve((5, 5, 32, 64), (1, 1))


class Smooth(nn.Module):
    """Convolutions as in the paper's networks, and nothing whose gradient jumps."""

    channels: tuple[int, ...]
    size: int

    @nn.compact
    def __call__(self, x):
        for features in self.channels:
            x = jnp.tanh(nn.Conv(features, (self.size, self.size))(x))
            x = x[:, ::2, ::2] + x[:, 1::2, 1::2]
        return nn.Dense(10)(x.reshape(x.shape[0], -1))


@pytest.mark.parametrize(
    ("net", "shape"),
    [
        (Smooth((32, 64), 5), (28, 28, 1)),
        (Smooth((64, 128), 3), (12, 12, 3)),
    ],
)
def test_clipped_sums_by_our_kernels_equal_the_textbook(net, shape, instructions):
    check_agreement(net, shape, 0.3, "mixed", kernels="auto")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "shape"), [("mnist_cnn", (28, 28, 1)), ("cifar_cnn", (32, 32, 3))]
)
def test_the_paper_networks_are_clipped_as_gradients_one_by_one_say(model, shape):
    """With pools, but by one forward pass for both: so no maximum turns over."""
    net = models.make_model(model)
    params = models.init_params(net, jax.random.key(0), shape)
    mask = draw_mask(params, 0.3)
    images, labels = make_batch(shape)
    real = jnp.arange(5) < 4

    def loss(params, image, label):
        logits = opened_layers.run_layers(net, params, image)[0]
        return clipping.example_losses(logits[None], label[None])[0]

    each = jax.jit(jax.vmap(jax.grad(loss), (None, 0, 0)))(params, images, labels)
    kept = jax.tree.map(
        lambda g, m: np.asarray(g, np.float64) * np.asarray(m), each, mask
    )
    norms = np.sqrt(sum((g**2).reshape(5, -1).sum(1) for g in jax.tree.leaves(kept)))
    bound = np.median(norms[:4])
    fast = jax.jit(clipping.make_clipped_sum(net, params, shape, "ghost"))(
        params, mask, images, labels, real, jnp.float32(bound)
    )
    np.testing.assert_allclose(fast.norms[:4], norms[:4], rtol=1e-5)
    factors = np.minimum(1, bound / norms) * np.asarray(real)
    total = jax.tree.map(lambda g: np.tensordot(factors, g, 1), kept)
    share = norm_errors.lost_share(params)  # by which norms are raised
    assert relative_error(fast.total, total) < 1e-5 + share
