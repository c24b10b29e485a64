"""Does a sparsifier say the same to planning, clipping and training?"""

import functools

import flax.linen as nn
import jax
import numpy as np
import pytest

import dpsparfl_jax as fl
from dpsparfl_jax import registry, sparsifiers
from dpsparfl_jax.privacy import poisson
from dpsparfl_jax.runner import tasks
from dpsparfl_jax.runner.run import outline
from dpsparfl_jax.training import masks, models
from dpsparfl_jax.types import ModelSize
from tests import toy, worlds

SHAPE = (8, 8, 1)


@functools.cache
def drawing(name):
    template = worlds.cached_init("small_cnn", SHAPE)
    sparsifier = sparsifiers.make_sparsifier(name)
    return jax.jit(lambda key, keep: sparsifier.draw(key, template, keep))


def draw(name, keep_rate, seed=0):
    keep = poisson.probability_word(keep_rate)
    return jax.device_get(drawing(name)(jax.random.key(seed), keep))


@pytest.mark.parametrize("name", registry.SPARSIFIERS.names())
def test_masks_are_zeros_and_ones_in_the_shapes_of_the_model(name):
    template = worlds.cached_init("small_cnn", SHAPE)
    made = draw(name, 0.4)
    assert jax.tree.structure(made) == jax.tree.structure(template)
    for mask, leaf in zip(
        jax.tree.leaves(made), jax.tree.leaves(template), strict=True
    ):
        assert mask.shape == leaf.shape
        assert mask.dtype == np.float32
        assert set(np.unique(mask)) <= {0.0, 1.0}


@pytest.mark.parametrize("name", registry.SPARSIFIERS.names())
def test_everything_is_kept_at_rate_one(name):
    assert all(np.all(mask == 1) for mask in jax.tree.leaves(draw(name, 1.0)))


def test_structured_masks_keep_or_drop_whole_units_with_their_bias():
    made = draw("structured", 0.5)
    for layer in made.values():
        kernel = layer["kernel"].reshape(-1, layer["kernel"].shape[-1])
        assert np.all(kernel == kernel[:1])
        np.testing.assert_array_equal(kernel[0], layer["bias"])


def test_units_are_kept_independently_with_probability_s():
    # 400 keys, 34 units: under independence the count is Binomial(13600, 0.3); five
    # standard deviations are 267, a false alarm of 6e-7.
    units = np.stack(
        [
            np.concatenate(
                [leaf["bias"] for leaf in draw("structured", 0.3, s).values()]
            )
            for s in range(400)
        ]
    )
    count = units.size
    assert abs(units.sum() - 0.3 * count) < 5 * np.sqrt(0.21 * count)
    assert abs(units.sum() - 0.35 * count) > 5 * np.sqrt(0.21 * count)  # 0.35 is told
    # Neighbouring units and neighbouring keys do not go together.
    centred = units - units.mean()
    for pair in (centred[:, 1:] * centred[:, :-1], centred[1:] * centred[:-1]):
        assert abs(pair.mean()) < 5 * 0.21 / np.sqrt(pair.size)


def test_model_sizes_count_units_once():
    size = models.measure("small_cnn", 10, (28, 28, 1))
    assert size == ModelSize(9098, 8 + 16 + 10)
    assert masks.count_units(worlds.cached_init("small_cnn", SHAPE)) == 34


def test_a_structured_mask_is_cheaper_to_tell():
    plain, structured = (
        fl.plan(
            toy.settings(training={"sparsifier": name}, schedule={"keep_rate": 0.5})
        )
        for name in ("bernoulli", "structured")
    )
    size = outline(toy.settings()).model
    sent = plain.bits[plain.sends][0], structured.bits[structured.sends][0]
    values = 32 * 0.5 * size.parameters
    assert sent == (values + size.parameters, values + size.units)
    assert structured.round_delay_s[0] < plain.round_delay_s[0]


def test_the_clip_bound_is_the_sparsifiers():
    class Half(sparsifiers.Bernoulli):
        def clip_factor(self, keep_rate):
            return np.asarray(keep_rate) / 2

    assert tasks.clip_bound(4.0, 0.25) == np.float32(2.0)
    assert tasks.clip_bound(4.0, 0.25, sparsifier=Half()) == np.float32(0.5)
    assert tasks.clip_bound(4.0, 0.25, "unadjusted", Half()) == np.float32(4.0)


def test_a_run_with_structured_masks_keeps_to_its_budgets():
    result = fl.simulate(toy.settings(training={"sparsifier": "structured"}))
    assert (result.clients["epsilon_spent"] <= result.clients["epsilon_asked"]).all()
    assert result.summary["diverged"] == 0


def test_parameters_of_one_layer_with_other_widths_have_units_of_their_own():
    class TwoWidths(nn.Module):
        @nn.compact
        def __call__(self, x):
            a = self.param("a", nn.initializers.ones, (3, 5))
            b = self.param("b", nn.initializers.ones, (7,))
            return x @ a, b

    params = TwoWidths().init(jax.random.key(0), np.ones((1, 3), np.float32))["params"]
    assert masks.count_units(params) == 12
