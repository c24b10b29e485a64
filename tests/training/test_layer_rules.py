"""Is every rule the gradient of its layer, and can a wrong one be told?"""

import logging

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.training import (
    clipping,
    cohort,
    evaluate,
    layer_gradients,
    layer_rules,
    models,
    opened_layers,
)
from dpsparfl_jax.types import EvalRows, ImageSet
from tests import worlds
from tests.training.clipped_sums import (
    CLIPS,
    both_methods,
    check_agreement,
    draw_mask,
    make_batch,
    relative_error,
)
from tests.training.odd_models import tokens

SHAPE = (8, 8, 1)


class NormedRows(nn.Module):
    use_scale: bool = True
    use_bias: bool = True

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(6)(x.reshape(x.shape[0], -1))
        x = nn.LayerNorm(use_scale=self.use_scale, use_bias=self.use_bias)(x)
        return nn.Dense(10)(nn.relu(x))


class NormedSpace(nn.Module):
    """Layer normalisation of every pixel, then of a vector without a batch axis."""

    use_fast_variance: bool = True

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(5, (3, 3), strides=2)(x)
        norm = nn.LayerNorm(epsilon=1e-3, use_fast_variance=self.use_fast_variance)
        x = nn.relu(norm(x)).reshape(-1)
        return nn.Dense(10)(nn.LayerNorm(name="vector")(x)[None])


class Grouped(nn.Module):
    num_groups: int | None
    group_size: int | None = None
    use_scale: bool = True
    use_bias: bool = True
    rows: bool = False

    @nn.compact
    def __call__(self, x):
        if self.rows:
            x = nn.Dense(8)(x.reshape(x.shape[0], -1))
        else:
            x = nn.Conv(8, (3, 3), strides=2)(x)
        norm = nn.GroupNorm(
            self.num_groups,
            group_size=self.group_size,
            use_scale=self.use_scale,
            use_bias=self.use_bias,
        )
        return nn.Dense(10)(nn.relu(norm(x)).reshape(x.shape[0], -1))


class Embedded(nn.Module):
    """A table shorter or longer than the 64 tokens, then a dense layer on each."""

    count: int
    dtype: type = jnp.int32

    @nn.compact
    def __call__(self, x):
        words = nn.Embed(self.count, 6)(tokens(x, self.count, self.dtype))
        places = nn.Embed(64, 6, name="places")(np.arange(64))
        x = nn.tanh(nn.Dense(7)(words + places[None]))
        return nn.Dense(10)(x.reshape(x.shape[0], -1))


class Transformer(nn.Module):
    """A small one: tokens, places, one block of attention, and a head."""

    width: int = 8

    @nn.compact
    def __call__(self, x):
        x = nn.Embed(16, self.width)(tokens(x, 16).reshape(x.shape[0], 16, 4)).mean(2)
        x = x + nn.Embed(16, self.width)(jnp.arange(16))[None]
        y = nn.LayerNorm()(x)
        query, key, value = (nn.Dense(self.width, use_bias=False)(y) for _ in range(3))
        scores = jnp.einsum("bqf,bkf->bqk", query, key) / np.float32(self.width**0.5)
        x = x + nn.Dense(self.width)(nn.softmax(scores) @ value)
        x = x + nn.Dense(self.width)(nn.gelu(nn.Dense(16)(nn.LayerNorm()(x))))
        return nn.Dense(10)(nn.LayerNorm()(x).mean(1))


def name(net):
    """A model's type and the settings that are not the usual ones."""
    usual = type(net).__dataclass_fields__
    settings = [
        f"{key}={getattr(value, '__name__', value)}"
        for key, value in vars(net).items()
        if key in usual and key not in ("parent", "name") and not key.startswith("_")
        if value is not usual[key].default
    ]
    return "-".join([type(net).__name__, *settings])


QUICK = (NormedSpace(), Embedded(7))
OTHERS = (
    NormedRows(),
    Grouped(2),
    NormedRows(use_scale=False),
    NormedRows(use_bias=False),
    NormedRows(use_scale=False, use_bias=False),
    NormedSpace(use_fast_variance=False),
    Grouped(1),
    Grouped(4, use_scale=False),
    Grouped(None, group_size=4, use_bias=False),
    Grouped(2, rows=True),
    Embedded(1),
    Embedded(64, jnp.uint8),
    Embedded(200, jnp.uint8),
    Embedded(1000, jnp.int16),
    Transformer(),
)
NETS = [*QUICK, *(pytest.param(net, marks=pytest.mark.slow) for net in OTHERS)]


@pytest.mark.parametrize("net", NETS, ids=name)
def test_a_model_of_layers_with_rules_is_opened(net, caplog):
    params = models.init_params(net, jax.random.key(0), SHAPE)
    with caplog.at_level(logging.WARNING):
        clipping.make_clipped_sum(net, params, SHAPE, "ghost")
    assert not caplog.records
    opened = {layer.path for layer in opened_layers.find_layers(net, params, SHAPE)}
    assert opened == {(name,) for name in params}


@pytest.mark.parametrize("net", NETS, ids=name)
@pytest.mark.parametrize(
    "keep_rate", [pytest.param(0.05, marks=pytest.mark.slow), 0.3, 1.0]
)
@pytest.mark.parametrize("clip", CLIPS)
def test_every_rule_equals_the_textbook(net, keep_rate, clip):
    check_agreement(net, SHAPE, keep_rate, clip)


@pytest.mark.slow
def test_tokens_outside_the_table_are_those_of_flax():
    class Outside(nn.Module):
        @nn.compact
        def __call__(self, x):
            ids = jnp.array([[0, -1, 3, 4, -5, -4, 2**31 - 1, -(2**31)]])
            rows = nn.Embed(4, 5)(ids)
            kept = jnp.where(jnp.isnan(rows), np.float32(0), rows)
            pixels = x.reshape(1, -1)[:, :8, None]
            return nn.Dense(10)((kept * pixels).reshape(1, -1))

    net = Outside()
    check_agreement(net, SHAPE, 1.0, "mixed")
    params = models.init_params(net, jax.random.key(0), SHAPE)
    image = make_batch(SHAPE)[0][0]
    opened = opened_layers.run_layers(net, params, image)[0]
    plain = net.apply({"params": params}, image[None])[0]
    np.testing.assert_allclose(opened, plain, rtol=1e-6)


@pytest.mark.parametrize("net", QUICK, ids=name)
def test_an_example_that_is_not_finite_adds_nothing(net):
    params, ghost, textbook = both_methods(net, SHAPE)
    mask = draw_mask(params, 0.5)
    images, labels = make_batch(SHAPE)
    bad = images.at[1].set(np.float32(np.nan))
    unknown = labels.at[3].set(10)  # the model has classes 0 to 9
    real, bound = jnp.arange(5) < 4, jnp.float32(0.5)
    got = ghost(params, mask, bad, unknown, real, bound)
    slow = textbook(params, mask, bad, unknown, real, bound)
    assert got.finite.tolist() == slow.finite.tolist()
    assert not got.finite[3]
    calm = jnp.where(got.finite[:, None, None, None], bad, images)
    wanted = ghost(params, mask, calm, labels, got.finite, bound)
    assert relative_error(got.total, wanted.total) < 1e-6


def gradient_of(rule, mask, recorded, cotangent, factors, usable):
    made = rule.gradient(mask, recorded, cotangent)
    return made.squared_norms, made.weighted_sum(factors, usable)


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
@pytest.mark.parametrize("layer", [nn.LayerNorm, nn.GroupNorm, nn.Embed])
@pytest.mark.parametrize("length", [3, 50])
def test_values_of_unusable_examples_never_reach_the_sum(layer, value, length):
    rng = np.random.default_rng(0)
    d = jnp.asarray(rng.normal(size=(3, 1, 6, 4)), jnp.float32)
    d = d.at[1, 0, 2].set(np.float32(value))
    if layer is nn.Embed:
        mask = {"embedding": jnp.ones((length, 4))}
        x = jnp.asarray(rng.integers(0, length, (3, 1, 6)), jnp.int32)
    else:
        mask = {"scale": jnp.ones(4), "bias": jnp.ones(4)}
        x = jnp.asarray(rng.normal(size=d.shape), jnp.float32)
        x = x.at[1].set(np.float32(value))
    rule = layer_rules.find_rule(layer)
    usable = jnp.array([True, False, True])
    factors = jnp.array([0.5, 0.0, 1.0])
    squares, total = gradient_of(rule, mask, x, d, factors, usable)
    assert np.isfinite(squares).tolist() == usable.tolist()
    calm = jnp.where(usable[:, None, None, None], d, np.float32(0))
    still = x if layer is nn.Embed else x.at[1].set(np.float32(1))
    _, wanted = gradient_of(rule, mask, still, calm, factors, usable)
    for name in mask:
        np.testing.assert_array_equal(total[name], wanted[name])


@pytest.mark.parametrize("net", QUICK, ids=name)
def test_no_example_weighs_more_than_the_bound(net):
    params, ghost, _ = both_methods(net, SHAPE)
    mask = draw_mask(params, 0.5)
    for scale in (1e-3, 1.0, 1e3, 1e8, 1e30):
        images, labels = make_batch(SHAPE, seed=9)
        images, one = images * np.float32(scale), jnp.arange(5) < 1
        out = ghost(params, mask, images, labels, one, jnp.float32(0.1))
        norm = float(jnp.sqrt(sum((x**2).sum() for x in jax.tree.leaves(out.total))))
        assert norm <= 0.1 * (1 + 1e-6)
        dropped = jax.tree.map(lambda t, m: t[m == 0], out.total, mask)
        assert all((leaf == 0).all() for leaf in jax.tree.leaves(dropped))


def test_equal_tokens_that_cancel_are_measured_as_they_are_added():
    rule = layer_rules.find_rule(nn.Embed)
    mask = {"embedding": jnp.ones((50, 1))}
    ids = jnp.zeros((1, 4), jnp.int32)
    d = jnp.array([3e7, 0.7, -3e7, 0.7]).reshape(1, 4, 1)
    made = rule.gradient(mask, ids, d)
    total = made.weighted_sum(jnp.ones(1), jnp.ones(1, bool))["embedding"]
    assert float(made.squared_norms[0]) == float(jnp.sum(total * total))


@pytest.mark.slow
def test_memory_of_a_long_table_does_not_grow_with_the_batch():
    def planned(batch):
        def fn(mask, ids, d, factors, usable):
            rule = layer_rules.find_rule(nn.Embed)
            return gradient_of(rule, {"embedding": mask}, ids, d, factors, usable)

        mask = jnp.zeros((5000, 16))
        ids, d = jnp.zeros((batch, 8), jnp.int32), jnp.zeros((batch, 8, 16))
        arguments = (mask, ids, d, jnp.zeros(batch), jnp.ones(batch, bool))
        compiled = jax.jit(fn).lower(*arguments).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert (planned(24) - planned(8)) / 16 < 10 * 4 * 8 * 16  # a few cotangents


@pytest.mark.slow
def test_clients_train_by_ghost_without_falling_back(caplog):
    net = Transformer()
    params = models.init_params(net, jax.random.key(0), worlds.SHAPE)
    params = jax.device_get(jax.tree.map(lambda p: p[None], params))
    world = worlds.make_world()._replace(net=net, params=params)
    rows = worlds.make_tasks(world)
    results = {}
    with caplog.at_level(logging.WARNING):
        for method, execution in [("ghost", "vmap"), ("vmap", "map")]:
            spec = worlds.make_spec(world, method=method, padded_sizes=(12,))
            step = cohort.make_cohort_step(
                spec,
                mesh=cohort.task_mesh(jax.devices()[:1]),
                execution=execution,
                chunk_size=2,
            )
            inputs = cohort.replicate(worlds.round_inputs(world, rows))
            state, _ = jax.device_get(step(*inputs))
            results[method, execution] = state.params
    assert not caplog.records
    textbook = results.pop(("vmap", "map"))
    assert relative_error(textbook, params) > 1e-3
    for after in results.values():
        assert relative_error(after, textbook) < 1e-4


@pytest.mark.slow
def test_a_transformer_learns_by_clipped_sums():
    net = Transformer()
    params = models.init_params(net, jax.random.key(0), SHAPE)
    mask = jax.tree.map(jnp.ones_like, params)
    fn = clipping.make_clipped_sum(net, params, SHAPE, "ghost")
    images, labels = make_batch(SHAPE, size=10)

    @jax.jit
    def step(params):
        out = fn(params, mask, images, labels, jnp.ones(10, bool), jnp.float32(1.0))
        rate = np.float32(0.1)
        return jax.tree.map(lambda p, g: p - rate * g, params, out.total), out.losses

    first = step(params)[1].mean()
    for _ in range(60):
        params, losses = step(params)
    assert losses.mean() < 0.2 * first


@pytest.mark.slow
def test_evaluation_runs_opened_layers_too():
    net = Transformer()
    params = models.init_params(net, jax.random.key(0), SHAPE)
    images = np.random.default_rng(0).integers(0, 256, (5, *SHAPE), np.uint8)
    labels = np.arange(5, dtype=np.int32)
    rows = EvalRows(np.arange(5, dtype=np.int32)[None], np.ones(1, bool))
    got = evaluate.make_evaluate(net, SHAPE)(
        jax.tree.map(lambda p: p[None], params), ImageSet(images, labels), rows
    )
    pixels = jnp.asarray((images / 255.0 - 0.5) / 0.5, jnp.float32)
    losses = clipping.example_losses(net.apply({"params": params}, pixels), labels)
    assert got.loss[0] == pytest.approx(float(losses.mean()), rel=1e-5)


class Leaky(nn.Module):
    """A user's layer: a slope of its own for negative values of every feature."""

    @nn.compact
    def __call__(self, x):
        half = nn.initializers.constant(0.5)
        slope = self.param("slope", half, (x.shape[-1],))
        return jnp.where(x < 0, jnp.broadcast_to(slope, x.shape) * x, x)


class UsesLeaky(nn.Module):
    layer: type = Leaky

    @nn.compact
    def __call__(self, x):
        x = self.layer()(nn.Conv(4, (3, 3), strides=2)(x))
        return nn.Dense(10)(x.reshape(x.shape[0], -1))


@layer_rules.register_layer_rule(Leaky)
class LeakyRule(layer_rules.LayerRule):
    def record(self, module, x):
        return x

    def output(self, params, x):
        return jnp.where(x < 0, jnp.broadcast_to(params["slope"], x.shape) * x, x)

    def gradient(self, mask, x, d):
        slope = layer_gradients.positions(jnp.where(x < 0, x * d, np.float32(0)))
        return layer_gradients.formed(mask, {"slope": jnp.sum(slope, axis=1)})


class WrongLeaky(Leaky):
    """Equal to the layer above, but its rule forgets a factor of the gradient."""


@layer_rules.register_layer_rule(WrongLeaky)
class WrongLeakyRule(LeakyRule):
    def gradient(self, mask, x, d):
        return super().gradient(mask, x, d * np.float32(1.001))


class WrongOutput(Leaky):
    """Equal to the layer above, but its rule computes another output."""


@layer_rules.register_layer_rule(WrongOutput)
class WrongOutputRule(LeakyRule):
    def output(self, params, x):
        return super().output(params, x) * np.float32(1.001)


class Unknown(Leaky):
    """A subclass has no rule."""


@pytest.mark.parametrize("keep_rate", [0.3, 1.0])
@pytest.mark.parametrize("clip", CLIPS)
def test_a_users_rule_works(keep_rate, clip, caplog):
    with caplog.at_level(logging.WARNING):
        check_agreement(UsesLeaky(), SHAPE, keep_rate, clip)
    assert not caplog.records


@pytest.mark.parametrize(
    "layer", [WrongLeaky, pytest.param(WrongOutput, marks=pytest.mark.slow)]
)
def test_a_wrong_rule_is_told_by_the_comparison(layer):
    with pytest.raises(AssertionError):
        check_agreement(UsesLeaky(layer), SHAPE, 1.0, "inactive")


def test_a_subclass_of_a_layer_with_a_rule_falls_back(caplog):
    with caplog.at_level(logging.WARNING):
        check_agreement(UsesLeaky(Unknown), SHAPE, 1.0, "mixed")
    assert "Unknown_0/slope is in another layer" in caplog.text


def test_a_rule_that_reads_parameters_while_recording_is_caught(caplog):
    class Peeking(Leaky):
        pass

    @layer_rules.register_layer_rule(Peeking)
    class PeekingRule(LeakyRule):
        def record(self, module, x):
            return x * jnp.sum(module.variables["params"]["slope"])

    with caplog.at_level(logging.WARNING):
        check_agreement(UsesLeaky(Peeking), SHAPE, 1.0, "mixed")
    assert "read from outside the layer" in caplog.text


def test_a_layer_has_one_rule():
    with pytest.raises(InputError, match="already a layer rule named 'Dense'"):
        layer_rules.register_layer_rule(nn.Dense)(LeakyRule)
    assert isinstance(layer_rules.find_rule(nn.Dense), layer_rules.DenseRule)
