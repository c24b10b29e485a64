"""Are glyphs reproducible, balanced, quick, and hard for a linear model only?"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpsparfl_jax.data import glyphs
from dpsparfl_jax.training import models


def test_shape_and_balance():
    sets = glyphs.glyphs(0, train=1230, test=70)
    assert sets.train.images.shape == (1230, 28, 28, 1)
    assert sets.train.images.dtype == sets.test.images.dtype == np.uint8
    assert sets.train.labels.dtype == np.int32
    assert sets.num_classes == 10
    assert (np.bincount(sets.train.labels) == 123).all()
    assert (np.bincount(sets.test.labels) == 7).all()


def test_images_depend_on_seed_set_and_number_alone():
    small, large = glyphs.glyphs(3, 730, 20), glyphs.glyphs(3, 1200, 40)
    np.testing.assert_array_equal(small.train.images, large.train.images[:730])
    np.testing.assert_array_equal(small.test.images, large.test.images[:20])
    other = glyphs.glyphs(4, 730, 20)
    assert (small.train.images != other.train.images).any(axis=(1, 2, 3)).all()


def test_no_image_appears_twice():
    sets = glyphs.glyphs(0, 2000, 2000)
    every = np.concatenate([sets.train.images, sets.test.images])
    assert len(np.unique(every.reshape(4000, -1), axis=0)) == 4000


def test_drawing_is_quick():
    start = time.process_time()
    glyphs.glyphs(0, 4000, 1000)
    assert time.process_time() - start < 3  # about 0.3 s


def accuracy(name, sets, learning_rate, epochs=3, batch=50):
    model = models.make_model(name)
    params = models.init_params(model, jax.random.key(0), (28, 28, 1))
    optimizer = optax.adam(learning_rate)

    def scale(images):
        return jnp.asarray(images / np.float32(127.5) - np.float32(1), jnp.float32)

    def loss(params, images, labels):
        logits = model.apply({"params": params}, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    @jax.jit
    def step(params, state, images, labels):
        gradient = jax.grad(loss)(params, images, labels)
        with jax.numpy_dtype_promotion("standard"):  # inside Optax's Adam
            updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(params, updates), state

    state, order = optimizer.init(params), np.random.default_rng(0)
    for _ in range(epochs):
        for rows in order.permutation(len(sets.train.labels)).reshape(-1, batch):
            images, labels = scale(sets.train.images[rows]), sets.train.labels[rows]
            params, state = step(params, state, images, jnp.asarray(labels))
    guess = jax.jit(model.apply)({"params": params}, scale(sets.test.images)).argmax(1)
    return float(np.mean(np.asarray(guess) == sets.test.labels))


@pytest.mark.slow
def test_a_small_network_beats_a_linear_model():
    sets = glyphs.glyphs(0, 4000, 1000)
    linear = accuracy("logistic", sets, 1e-3)
    network = accuracy("small_cnn", sets, 4e-3)
    print(f"logistic {linear:.3f}, small_cnn {network:.3f}")
    assert 0.3 < linear < 0.75
    assert network > linear + 0.15


@pytest.mark.parametrize("letter", list(glyphs._LETTERS))
def test_letters_stay_in_their_square(letter):
    dots = glyphs._dots(*glyphs._LETTERS[letter])
    assert np.isfinite(dots).all()
    assert np.abs(dots).max() <= 1.01
    gaps = np.hypot(*np.diff(dots, axis=0).T)
    assert np.median(gaps) < 0.12  # the brush leaves no holes
