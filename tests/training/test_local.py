"""Is a client's round the algorithm of the paper, and does it reduce to known ones?"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.registry import OPTIMIZERS
from dpsparfl_jax.rng import Purpose
from dpsparfl_jax.training import keys, local, masks, noise, sampling
from tests import worlds
from tests.reference import plain

MODELS = ["logistic", pytest.param("small_cnn", marks=pytest.mark.slow)]


def pieces(world, client, row, steps, capacity=12):
    """Mask, batches and noise that the engine draws, from the same functions."""
    root = jnp.asarray(world.roots[0])
    mask_key, sampling_key, noise_key = (
        keys.task_key(root, purpose, jnp.int32(row.round), jnp.int32(client))
        for purpose in (Purpose.MASK, Purpose.SAMPLING, Purpose.NOISE)
    )
    params = worlds.first_params(world)
    mask = jax.jit(masks.bernoulli_mask)(mask_key, params, jnp.uint32(row.keep))
    batches = sampling.poisson_batches(
        sampling_key,
        jnp.uint32(row.inclusion),
        jnp.int32(world.tables.sizes[0, client]),
        steps=steps,
        table_lengths=(int(world.tables.sizes.max()),),
        capacity=capacity,
    )
    unit = jax.tree.map(jnp.zeros_like, params)
    kept = jax.tree.map(jnp.ones_like, params)
    add = jax.jit(noise.add_noise)
    noises = [
        add(jax.random.fold_in(noise_key, step), unit, kept, jnp.float32(1))
        for step in range(steps)
    ]
    return jax.device_get((mask, batches, noises))


def batch_rows(world, client, batches):
    for positions, count in zip(batches.positions, batches.counts, strict=True):
        yield world.tables.of(0, client)[positions[:count]]


def normalised(world, rows):
    return (world.data.images[rows] / 255.0 - 0.5) / 0.5


def train(world, row, client, spec, choose_size=True):
    @jax.jit
    def run(params, records, row, root):
        return local.train_client(
            spec, params, records, row, root, choose_size=choose_size
        )

    records = worlds.records(world)
    arguments = (worlds.first_params(world), records, row, world.roots[0])
    return jax.device_get(run(*jax.tree.map(jnp.asarray, arguments)))


def one_row(world, client, **changes):
    rows = worlds.make_tasks(world, client=[client], keep_rate=0.4, **changes)
    return jax.tree.map(lambda leaf: leaf[0], rows)


@pytest.mark.parametrize("clipping", ["adjusted", "unadjusted"])
def test_equals_the_equations_in_float64(clipping):
    world, client, steps = worlds.make_world("logistic"), 2, 4
    row = one_row(world, client, clip_norm=3.0, clipping=clipping)
    result = train(world, row, client, worlds.make_spec(world, steps=steps))
    mask, batches, noises = pieces(world, client, row, steps)
    batch_data = [
        (normalised(world, rows).reshape(len(rows), -1), world.data.labels[rows])
        for rows in batch_rows(world, client, batches)
    ]
    bound = 3.0 * (0.4**0.5 if clipping == "adjusted" else 1.0)
    layer = worlds.first_params(world)["Dense_0"]
    kernel, bias = plain.local_dp_sgd(
        layer["kernel"],
        layer["bias"],
        batch_data,
        (mask["Dense_0"]["kernel"], mask["Dense_0"]["bias"]),
        [(z["Dense_0"]["kernel"], z["Dense_0"]["bias"]) for z in noises],
        bound=bound,
        noise_std=0.5 * bound,
        rate=0.1,
        batch=4,
    )
    update = result.update["Dense_0"]
    np.testing.assert_allclose(update["kernel"], kernel - layer["kernel"], atol=2e-6)
    np.testing.assert_allclose(update["bias"], bias - layer["bias"], atol=2e-6)
    assert result.sensitivity == pytest.approx(bound)


def test_diagnostics_equal_the_equations():
    world, client, steps = worlds.make_world("logistic"), 1, 1
    row = one_row(world, client, clip_norm=9.0)
    got = train(world, row, client, worlds.make_spec(world, steps=steps)).diagnostics
    mask, batches, _ = pieces(world, client, row, steps)
    (rows,) = batch_rows(world, client, batches)
    layer = worlds.first_params(world)["Dense_0"]
    pixels = normalised(world, rows).reshape(len(rows), -1)
    labels = world.data.labels[rows]
    grads = plain.logistic_gradients(
        layer["kernel"].astype(float), layer["bias"], pixels, labels
    )
    bound = 9.0 * 0.4**0.5
    kernel, bias, norms = plain.clipped_sum(
        *grads, mask["Dense_0"]["kernel"], mask["Dense_0"]["bias"], bound
    )
    logits = pixels @ layer["kernel"] + layer["bias"]
    losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(rows)), labels]
    kept = mask["Dense_0"]["kernel"].sum() + mask["Dense_0"]["bias"].sum()
    assert got.examples == len(rows) > 1
    assert got.loss == pytest.approx(losses.mean(), rel=1e-5)
    assert got.clipped_fraction == pytest.approx((norms > bound).mean())
    assert got.median_norm == pytest.approx(np.sort(norms)[(len(norms) - 1) // 2])
    assert got.kept == kept
    signal = np.sqrt((kernel**2).sum() + (bias**2).sum())
    assert got.gradient_to_noise == pytest.approx(signal / (0.5 * bound * kept**0.5))
    assert not got.diverged
    assert got.overflow == got.nonfinite_examples == 0


@jax.numpy_dtype_promotion("standard")  # optax's Adam mixes int and float itself
@pytest.mark.parametrize(
    ("model", "optimizer"),
    [
        ("logistic", "sgd"),
        ("logistic", "adam"),
        pytest.param("logistic", "momentum", marks=pytest.mark.slow),
        pytest.param("small_cnn", "sgd", marks=pytest.mark.slow),
    ],
)
def test_without_clip_noise_and_mask_it_is_fedavgs_local_training(model, optimizer):
    """Against a plain loop over an unmodified Flax model and native convolutions."""
    world, client, steps = worlds.make_world(model), 3, 3
    row = one_row(world, client, clipping="off", noise_multiplier=None)
    row = row._replace(keep=np.uint32(2**32 - 1))
    spec = worlds.make_spec(world, steps=steps, optimizer=optimizer)
    result = train(world, row, client, spec)
    _, batches, _ = pieces(world, client, row, steps)
    start = jax.tree.map(jnp.asarray, worlds.first_params(world))
    params = start
    transform = OPTIMIZERS.get(optimizer)(0.1)
    state = transform.init(params)

    @jax.jit
    def gradient(params, images, labels):
        def loss(params):
            logits = world.net.apply({"params": params}, images)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
            return losses.sum() / 4

        return jax.grad(loss)(params)

    for rows in batch_rows(world, client, batches):
        images = jnp.asarray(normalised(world, rows), jnp.float32)
        grads = gradient(params, images, jnp.asarray(world.data.labels[rows]))
        updates, state = transform.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    wanted = jax.tree.map(lambda a, b: a - b, params, start)
    got, want = (
        np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(tree)])
        for tree in (result.update, wanted)
    )
    # Adam divides tiny gradients by their own size, so rounding shows more.
    limit = 1e-3 if optimizer == "adam" else 1e-5
    assert np.linalg.norm(got - want) < limit * np.linalg.norm(want)


def test_full_sampling_of_one_client_is_gradient_descent():
    world = worlds.make_world("logistic", clients=1, examples=12)
    row = one_row(world, 0, clipping="off", noise_multiplier=None, batch_size=12)
    row = row._replace(keep=np.uint32(2**32 - 1))
    spec = worlds.make_spec(world, steps=5, padded_sizes=(12,))
    got = train(world, row, 0, spec).update["Dense_0"]["kernel"]
    layer = worlds.first_params(world)["Dense_0"]
    kernel, bias = layer["kernel"].astype(float), layer["bias"].astype(float)
    rows = world.tables.of(0, 0)
    pixels = normalised(world, rows).reshape(12, -1)
    for _ in range(5):
        grads = plain.logistic_gradients(kernel, bias, pixels, world.data.labels[rows])
        kernel, bias = kernel - 0.1 * grads[0].mean(0), bias - 0.1 * grads[1].mean(0)
    np.testing.assert_allclose(got, kernel - layer["kernel"], atol=2e-6)


@pytest.mark.parametrize("model", MODELS)
def test_padded_sizes_and_methods_do_not_matter(model):
    world, client = worlds.make_world(model), 0
    row = one_row(world, client)
    several = worlds.make_spec(world, padded_sizes=(4, 8, 12))
    base = train(world, row, client, several)
    others = [
        (several, False),
        (worlds.make_spec(world, method="vmap"), True),
        (worlds.make_spec(world, microbatch=5), model == "logistic"),
    ]
    if model == "logistic":  # what follows has nothing to do with convolutions
        others += [
            (worlds.make_spec(world, padded_sizes=(12,)), True),
            (worlds.make_spec(world, table_lengths=(20, 40)), True),
        ]
    for spec, choose in others:
        other = train(world, row, client, spec, choose)
        for a, b in zip(jax.tree.leaves(base), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def test_an_empty_batch_which_is_not_computed_is_nothing_but_noise():
    world = worlds.make_world("logistic")
    row = one_row(world, 0)._replace(inclusion=np.uint32(0))  # nobody: 1 in 2^32
    plain, calls = worlds.make_spec(world, padded_sizes=(4, 8, 12)), []

    def counted(*arguments):
        jax.debug.callback(lambda: calls.append("sum"))
        return plain.clipped_sum(*arguments)

    spec = plain._replace(clipped_sum=counted)
    skipped = train(world, row, 0, spec, choose_size=True)
    jax.effects_barrier()
    assert not calls
    computed = train(world, row, 0, spec, choose_size=False)
    jax.effects_barrier()
    assert len(calls) == 3  # one a step
    assert skipped.diagnostics.examples == 0
    assert any(np.any(leaf) for leaf in jax.tree.leaves(skipped.update))
    for a, b in zip(jax.tree.leaves(skipped), jax.tree.leaves(computed), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_mask_is_fixed_over_the_local_steps():
    world = worlds.make_world("logistic")
    row = one_row(world, 0)
    result = train(world, row, 0, worlds.make_spec(world, steps=6))
    changed = sum(np.count_nonzero(leaf) for leaf in jax.tree.leaves(result.update))
    assert changed == result.diagnostics.kept
    exact = worlds.make_spec(world, sparsifier="fixed_count")
    assert train(world, row, 0, exact).diagnostics.kept == round(0.4 * 650)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": "lion"}, "unknown optimizer 'lion'"),
        ({"sparsifier": "topk"}, "unknown sparsifier 'topk'"),
        ({"generator": "dice"}, "unknown noise generator 'dice'"),
        ({"method": "magic"}, "unknown clipping method 'magic'"),
        ({"steps": 0}, "local steps must be at least 1"),
        ({"pixel_std": (0.0,)}, "pixel mean and standard deviation"),
        ({"pixel_mean": (np.nan,)}, "pixel mean and standard deviation"),
        ({"pixel_mean": (0.1, 0.2)}, "each of the 1 channels"),
    ],
)
def test_bad_settings_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        worlds.make_spec(worlds.make_world("logistic"), **changes)
