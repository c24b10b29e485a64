"""Are the gradients behind the convergence bound right, and those of the real run?"""

import dataclasses
import functools
import json

import jax
import numpy as np
import pytest

import dpsparfl_jax as fl
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning import theory
from dpsparfl_jax.runner.batch import Batch
from dpsparfl_jax.training import models
from experiments.paper import bound
from tests import toy

SHORT = {"max_participations": 20}  # more would only be accounted for
SETTINGS = toy.settings(
    data={"partition": "imbalanced", "group_sizes": "40,80"},
    privacy=SHORT,
    perf={"padded_sizes": 1},
)


@functools.cache
def prepared():
    return toy.prepare(SETTINGS)


@functools.cache
def measured():
    return bound.measure(SETTINGS, [0, 3, 4, 6])


@functools.cache
def trained(rounds=6):
    """Parameters of an ordinary run."""
    length = dataclasses.replace(SETTINGS.length, rounds=rounds)
    settings = dataclasses.replace(SETTINGS, length=length)
    return fl.simulate(settings, progress=False).params


def softmax_gradient(params, images, labels):
    """Mean loss of softmax regression and its flat gradient, bias first."""
    kernel, bias = (np.float64(params["Dense_0"][name]) for name in ("kernel", "bias"))
    pixels = (images.reshape(len(images), -1) / 255 - 0.5) / 0.5
    logits = pixels @ kernel + bias
    logits -= logits.max(axis=1, keepdims=True)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    loss = -np.mean(np.log(chances[np.arange(len(labels)), labels]))
    errors = (chances - np.eye(10)[labels]) / len(labels)
    return loss, np.concatenate([errors.sum(axis=0), (pixels.T @ errors).ravel()])


def expected(params, run, owned=None):
    """Squared norm, divergence, largest norm and loss from their definitions."""
    train = run.data.images.sets.train
    found = [
        softmax_gradient(params, train.images[rows], train.labels[rows])
        for rows in owned or run.data.clients.train
    ]
    losses, gradients = map(np.array, zip(*found, strict=True))
    sizes = np.array([len(rows) for rows in run.data.clients.train])
    weights = sizes / sizes.sum()
    mean = weights @ gradients
    squares = np.sum((gradients - mean) ** 2, axis=1)
    norms = np.linalg.norm(gradients, axis=1)
    return mean @ mean, weights @ squares, norms.max(), weights @ losses, mean


def flat(params):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])


@pytest.mark.slow
def test_measurements_have_their_closed_forms_at_models_of_an_ordinary_run():
    run = prepared()
    assert {len(rows) for rows in run.data.clients.train} == {40, 80}
    assert [one.round for one in measured()] == [0, 3, 4, 6]
    for one in (measured()[1], measured()[3]):
        *want, _ = expected(trained(one.round), run)
        np.testing.assert_allclose(one[1:5], want, rtol=1e-5)
        assert one.images == 6 * 60
        assert one.clip_norm == SETTINGS.training.clip_norm
    assert measured()[3].loss < measured()[0].loss


def test_models_are_those_of_an_ordinary_run():
    found = dict(bound.models_at(Batch([prepared()]), [6, 0]))
    assert list(found) == [0, 6]
    jax.tree.map(np.testing.assert_array_equal, found[6], trained())
    *want, _ = expected(found[0], prepared())
    np.testing.assert_allclose(measured()[0][1:5], want, rtol=1e-5)


@pytest.mark.parametrize("size", [5, 60, 75])
def test_the_gradient_over_chunks(size):
    """With chunks that are full, and with a last one that is filled up."""
    train, rows = prepared().data.images.sets.train, np.arange(100, 100 + size)
    gradient = bound.make_gradient(models.make_model("logistic"))
    loss, found = bound.client_gradient(gradient, trained(), train, rows, chunk=20)
    want_loss, want = softmax_gradient(
        trained(), train.images[rows], train.labels[rows]
    )
    np.testing.assert_allclose(found, want, atol=1e-5)
    assert loss == pytest.approx(want_loss, abs=1e-5)


def test_slopes_are_between_neighbours():
    run = prepared()
    seen = [trained(3), trained(6), trained(6)]
    meter = bound.Meter(run)
    slopes = [meter.measure(0, params).slope for params in seen]
    turned = expected(seen[1], run)[-1] - expected(seen[0], run)[-1]
    moved = flat(seen[1]) - flat(seen[0])
    want = np.linalg.norm(turned) / np.linalg.norm(moved)
    np.testing.assert_allclose(slopes, [np.nan, want, np.nan], rtol=1e-4)


def test_clients_with_the_same_images_do_not_diverge(tmp_path):
    with np.load(f"{toy.folder()}/toy.npz") as toys:
        arrays = dict(toys)
    for kind in ("images", "labels"):
        one = arrays[f"train_{kind}"][:30]
        arrays[f"train_{kind}"] = np.concatenate([one] * 6)
    np.savez(tmp_path / "toy.npz", **arrays)
    lists = np.arange(180).reshape(6, 30).tolist()
    (tmp_path / "owners.json").write_text(json.dumps({"train": lists}))
    settings = toy.settings(
        data={
            "dir": str(tmp_path),
            "partition": "file",
            "partition_file": str(tmp_path / "owners.json"),
        },
        privacy=SHORT,
    )
    one = bound.Meter(toy.prepare(settings)).measure(0, trained())
    assert one.divergence == pytest.approx(0, abs=1e-12)
    assert one.largest_norm**2 == pytest.approx(one.squared_norm)
    assert one.squared_norm > 0.1


def test_a_limit_takes_images_from_the_whole_list():
    run = toy.prepare(toy.settings(data={"partition": "dirichlet"}, privacy=SHORT))
    meter = bound.Meter(run, 20)
    one = meter.measure(6, trained())
    spread = [rows[::3] for rows in run.data.clients.train]
    np.testing.assert_allclose(one[1:5], expected(trained(), run, spread)[:4], 1e-5)
    assert one.images == 6 * 20
    with pytest.raises(InputError, match="at least 1 image"):
        bound.Meter(run, 0)


def test_rows_hold_the_terms_of_the_cut_schedule():
    rows = bound.bound_rows(SETTINGS, measured())
    assert [row.rounds for row in rows] == [3, 4, 6]
    slope = max(one.slope for one in measured()[1:])
    step = 0.1 * slope * 4
    squares = [one.squared_norm for one in measured()]
    first_three = squares[0] + np.array([0, 1, 2]) / 3 * (squares[1] - squares[0])
    assert rows[0].mean_squared_norm == pytest.approx(np.mean(first_three))
    for row in rows:
        assert row.bound == pytest.approx(sum(row[3:7]))
        assert row.start == pytest.approx(
            2 * measured()[0].loss / (0.1 * 4 * row.rounds)
        )
        assert row.divergence == 3 * max(one.divergence for one in measured())
        assert row.gradient_bound == max(one.largest_norm for one in measured())
        assert (row.smoothness, row.step) == pytest.approx((slope, step))
        assert row.holds == (step <= theory.LARGEST_STEP)
        assert row.images == 360
        kept = unkept(prepared().schedule, row.rounds)
        assert row.sparsification == pytest.approx(3 * row.gradient_bound**2 * kept)


def unkept(schedule, rounds):
    """Mean of sum p (1 - s) over the first rounds, those in which somebody sends."""
    found = []
    for clients, keeps in zip(schedule.client, schedule.keep_rate, strict=True):
        sizes = np.array(
            [len(prepared().data.clients.train[c]) for c in clients if c >= 0]
        )
        if sizes.size:
            found.append(np.average(1 - keeps[clients >= 0], weights=sizes))
        else:
            found.append(np.nan)
    return np.nanmean(found[:rounds])


def test_the_calibrated_clip_norm_is_the_one_of_the_noise():
    twice = [one._replace(clip_norm=2 * one.clip_norm) for one in measured()]
    plan = prepared().schedule
    noise = [
        bound.bound_rows(SETTINGS, each, schedule=plan)[0].noise
        for each in (measured(), twice)
    ]
    assert noise[1] == pytest.approx(4 * noise[0])


@pytest.mark.parametrize(
    ("changes", "some", "message"),
    [
        ({}, slice(1, None), "at round 0"),
        ({}, slice(1), "two measured models"),
        ({"training": {"optimizer": "adam"}}, slice(None), "plain SGD"),
        ({"training": {"clipping": "unadjusted"}}, slice(None), "adjusted"),
        ({}, slice(None), "5 rounds only"),
    ],
)
def test_what_the_bound_is_not_about_is_refused(changes, some, message):
    plan = prepared().schedule
    shorter = dataclasses.replace(plan, client=plan.client[:5])
    with pytest.raises(InputError, match=message):
        bound.bound_rows(toy.settings(**changes), measured()[some], schedule=shorter)


@pytest.mark.parametrize("rounds", [[], [-1], [0, 7]])
def test_rounds_outside_the_run_are_refused(rounds):
    with pytest.raises(InputError, match="from 0 to 6"):
        list(bound.models_at(Batch([prepared()]), rounds))
