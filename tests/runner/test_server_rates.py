"""What the server may do with updates: schedules, averages, weights, an earlier end."""

import functools

import jax
import numpy as np
import pytest

import dpsparfl_jax as fl
from dpsparfl_jax.config import ServerConfig
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.runner import checkpoint, grouping, server_rates
from dpsparfl_jax.runner.batch import Batch
from dpsparfl_jax.training import keys, local, models
from dpsparfl_jax.types import Tasks
from tests import toy

KEPT = {"optimizer": "momentum", "momentum": 0.8, "optimizer_state": "kept"}
AVERAGED = {"averaging": "ema", "average_decay": 0.6}
# Options that must leave the model as it is, and what each is compared with.
LIMITS = {
    "average": ({"server": AVERAGED}, {}),
    "tail": ({"server": {"averaging": "tail"}}, {}),
    "planned total": ({"server": {"divide_by": "planned"}}, {}),
    "rescaled": ({"server": {"rescale": True}}, {}),
    "no server momentum": (
        {"server": {"optimizer": "momentum", "momentum": 0.0}},
        {"server": {"optimizer": "sgd"}},
    ),
    "no client momentum": (
        {"training": {"optimizer": "momentum", "momentum": 0.0}},
        {"training": {"optimizer": "sgd"}},
    ),
    "flat schedules": (
        {
            "server": {"optimizer": "sgd", "rate_schedule": "cosine", "rate_end": 1.0},
            "training": {"rate_schedule": "linear", "rate_end": 1.0},
        },
        {"server": {"optimizer": "sgd"}},
    ),
    "no earlier end": ({"length": {"rounds": 6, "least_channels": 1}}, {}),
}
# Options that do change the model, at the same epsilon.
CHANGES = {
    "server momentum": {"server": {"optimizer": "momentum", "momentum": 0.5}},
    "server schedule": {"server": {"optimizer": "sgd", "rate_schedule": "linear"}},
    "client momentum": {"training": {"optimizer": "momentum", "momentum": 0.5}},
    "client schedule": {"training": {"rate_schedule": "cosine"}},
    "rescaled": {"server": {"rescale": True}},
}


def run(**changes):
    """All clients keep half of the coordinates only where that is asked for."""
    return fl.simulate(toy.settings(**changes), progress=False)


def cut_back(folder):
    """A finished run without its last checkpoint."""
    newest = max((folder / "checkpoints").glob("[0-9]"))
    for path in sorted(newest.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    newest.rmdir()
    (folder / "DONE").unlink()


def sparse(**changes):
    """The same with half of the coordinates."""
    return run(schedule={"keep_rate": 0.5}, **changes)


@pytest.mark.parametrize("limit", LIMITS)
def test_an_option_at_its_limit_is_the_plain_run_to_the_bit(limit):
    changed, plain = LIMITS[limit]
    full = {"schedule": {"keep_rate": 1.0}}  # where 1/s is 1
    one, other = run(**changed, **full), run(**plain, **full)
    assert checkpoint.digest(one.params) == checkpoint.digest(other.params)
    np.testing.assert_array_equal(
        one.schedule.epsilon_spent, other.schedule.epsilon_spent
    )


OPTIONS = {
    "server": {
        "optimizer": "adam",
        "learning_rate": 0.1,
        "rate_schedule": "cosine",
        "averaging": "tail",
        "weights": "inverse_noise",
        "divide_by": "planned",
        "rescale": True,
    },
    "training": {**KEPT, "rate_schedule": "linear"},
    "length": {"rounds": 6, "eval_on": "validation"},
}


def test_plan_and_ledger_do_not_know_of_any_of_it():
    with pytest.warns(UserWarning, match="no client owns"):
        changed = fl.plan(toy.settings(**OPTIONS))
    for name, column in vars(fl.plan(toy.settings())).items():
        np.testing.assert_array_equal(column, getattr(changed, name), name)


@pytest.mark.parametrize("change", CHANGES)
def test_options_move_the_model_and_no_epsilon(change):
    one, other = sparse(**CHANGES[change]), sparse()
    assert checkpoint.digest(one.params) != checkpoint.digest(other.params)
    np.testing.assert_array_equal(
        one.schedule.epsilon_spent, other.schedule.epsilon_spent
    )
    np.testing.assert_array_equal(one.schedule.affordable, other.schedule.affordable)


def test_updates_divided_by_their_keep_rate_move_the_model_so_much_more():
    """One round: half of the coordinates, twice the step."""
    length = {"rounds": 1}
    first = Batch([toy.prepare(toy.settings())]).initial[0].params
    one = sparse(length=length).params
    other = sparse(length=length, server={"rescale": True}).params
    leaves = map(jax.tree.leaves, (first, one, other))
    for start, plain, scaled in zip(*leaves, strict=True):
        np.testing.assert_allclose(scaled - start, 2 * (plain - start), atol=1e-5)


@pytest.mark.parametrize("averaging", ["ema", "tail"])
def test_averages_are_means_of_the_models_of_rounds(averaging):
    """Written out from the models of runs that end after every round."""
    server = {"averaging": averaging, "average_decay": 0.6, "average_share": 0.5}
    models = [
        jax.tree.leaves(run(length={"rounds": rounds}).params) for rounds in range(1, 7)
    ]
    result = run(server=server)
    expected = [leaf.astype(np.float64) for leaf in models[0]]
    for number, model in enumerate(models, 1):
        share = max(0.4, 1 / number) if averaging == "ema" else 1 / max(number - 3, 1)
        expected = [
            (1 - share) * old + share * new
            for old, new in zip(expected, model, strict=True)
        ]
    for leaf, wanted in zip(jax.tree.leaves(result.average), expected, strict=True):
        np.testing.assert_allclose(leaf, wanted, rtol=1e-5, atol=1e-6)
    told = result.rounds["accuracy_averaged"].to_numpy(float)
    assert np.isfinite(told).all()
    if averaging == "tail":  # until it begins, it is the last model
        np.testing.assert_array_equal(told[:4], result.rounds["accuracy"][:4])
    assert result.summary["accuracy_averaged"] == told[-1]


def test_without_averaging_nothing_is_told_of_it():
    result = run()
    assert result.rounds["accuracy_averaged"].isna().all()
    assert checkpoint.digest(result.average) == checkpoint.digest(result.params)


def test_a_grid_of_options_is_one_program_and_single_runs_to_the_bit():
    grid = [
        toy.settings(server={"optimizer": "momentum", **changes})
        for changes in (
            {"learning_rate": 0.5, "averaging": "ema"},
            {"momentum": 0.3, "averaging": "tail", "rate_schedule": "cosine"},
            {"divide_by": "planned", "rescale": True},
            {"weights": "inverse_noise"},
        )
    ]
    batch = Batch([toy.prepare(each) for each in grid])
    before = batch.program.step._cache_size()
    last = {}
    for outputs in batch.train():
        last.update({output.run: output for output in outputs})
    assert batch.program.step._cache_size() <= before + 1
    for number, settings in enumerate(grid):
        alone = fl.simulate(settings, progress=False)
        state = last[number].state
        assert checkpoint.digest(state.params) == checkpoint.digest(alone.params)
        assert checkpoint.digest(state.average) == checkpoint.digest(alone.average)


@pytest.mark.slow
def test_a_resumed_run_has_its_average(tmp_path):
    """A run cut back to an earlier checkpoint ends with equal bits."""
    settings = toy.settings(server=AVERAGED, perf={"checkpoint_every": 2})
    whole = fl.simulate(settings, tmp_path / "run", progress=False)
    cut_back(tmp_path / "run")
    resumed = fl.simulate(settings, tmp_path / "run", progress=False)
    assert checkpoint.digest(resumed.average) == checkpoint.digest(whole.average)
    loaded = fl.load_params(tmp_path / "run", averaged=True)
    assert checkpoint.digest(loaded) == checkpoint.digest(whole.average)
    assert checkpoint.digest(loaded) != checkpoint.digest(whole.params)
    in_memory = fl.simulate(settings, progress=False)
    assert checkpoint.digest(in_memory.average) == checkpoint.digest(whole.average)
    wall = ["host_s", "device_s"]
    assert resumed.rounds.drop(columns=wall).equals(whole.rounds.drop(columns=wall))


@pytest.mark.parametrize("schedule", ["constant", "cosine", "linear"])
def test_rates_go_from_one_to_their_end(schedule):
    factors = server_rates.rate_factors(schedule, 0.2, 9)
    assert factors[0] == 1
    assert np.all(np.diff(factors) <= 0)
    if schedule != "constant":
        assert factors[-1] == pytest.approx(0.2)
        assert factors[4] == pytest.approx(0.6)
    assert server_rates.rate_factors(schedule, 0.2, 1).tolist() == [1.0]


def test_sums_are_divided_by_the_most_that_is_planned():
    weights = np.array([[300.0, 0.0], [300.0, 600.0], [0.0, 0.0]])
    plain = server_rates.server_rates(ServerConfig(), weights)
    assert plain.total_weight.tolist() == [0, 0, 0]
    fixed = server_rates.server_rates(ServerConfig(divide_by="planned"), weights)
    assert fixed.total_weight.tolist() == [900, 900, 900]


@pytest.mark.slow
def test_noisier_updates_weigh_less():
    noise = np.array([0.5, 1.0, 2.0, 1.0, 1.0, 1.0])
    settings = toy.settings(
        server={"weights": "inverse_noise"},
        privacy={"noise_multiplier": ",".join(map(str, noise)), "epsilon_lo": 3.0},
    )
    prepared = toy.prepare(settings)
    rows = Batch([prepared]).tasks[0]
    sends = rows.active
    expected = 1 / (noise[rows.client] ** 2 * prepared.schedule.keep_rate)[sends]
    ratio = rows.weight[sends] / expected
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-5)


def test_refusals():
    with pytest.raises(InputError, match="rate_schedule has no effect on plain"):
        fl.ServerConfig(rate_schedule="cosine")
    with pytest.raises(InputError, match="inverse noise need noise"):
        toy.settings(server={"weights": "inverse_noise"}, privacy={"noise": False})


def test_validation_images_are_owned_by_nobody_and_change_no_model():
    length = {"rounds": 6, "eval_on": "validation"}
    with pytest.warns(UserWarning, match="that no client owns, not of test images"):
        judged = run(length=length)
    plain = run()
    assert checkpoint.digest(judged.params) == checkpoint.digest(plain.params)
    assert judged.rounds["accuracy"].tolist() != plain.rounds["accuracy"].tolist()
    prepared = toy.prepare(toy.settings(length=length))
    clients, images = prepared.data.clients, prepared.data.images.sets.train
    owned = np.concatenate(clients.train)
    rows = np.concatenate(clients.test)
    assert not set(owned) & set(rows)
    # The accuracy by hand: the last model on those rows of the training images.
    params = jax.tree.map(np.float64, judged.params)["Dense_0"]
    pixels = (images.images[rows].reshape(len(rows), -1) / 255 - 0.5) / 0.5
    told = np.argmax(pixels @ params["kernel"] + params["bias"], axis=1)
    right = np.mean(told == images.labels[rows])
    assert judged.rounds["accuracy"].iloc[-1] == pytest.approx(right, abs=0.01)


def test_runs_on_validation_images_do_not_share_a_batch_with_others():
    runs = [
        toy.prepare(toy.settings(length={"eval_on": images}))
        for images in ("test", "validation", "test")
    ]
    assert sorted(grouping.group_runs(runs)) == [[0, 2], [1]]


@pytest.mark.parametrize(
    ("execution", "devices"),
    [("map", 2), pytest.param("chunked", 2, marks=pytest.mark.slow)],
)
def test_momentum_that_is_kept_goes_on_where_its_client_left_off(execution, devices):
    """Written out: every task by hand, from the state its client had at its end."""
    perf = {"execution": execution, "devices": devices, "chunk_size": 2}
    settings = toy.settings(training=KEPT, perf=perf)
    prepared = toy.prepare(settings)
    batch = Batch([prepared])
    *_, (last,) = batch.train()
    sets, plan = prepared.data.images.sets, prepared.schedule
    outline = prepared.outline
    model = models.make_model("logistic")
    params = batch.initial[0].params
    spec = local.make_spec(
        model,
        params,
        outline.image_shape,
        steps=4,
        padded_sizes=outline.padded_sizes,
        table_lengths=outline.table_lengths,
        optimizer="momentum",
    )
    train = jax.jit(functools.partial(local.train_client, spec, choose_size=False))
    kept = {}
    records = local.Records(sets.train, batch.tables.rows)
    root = keys.root_key_words(settings.seed)[0]
    for t in range(plan.num_rounds):
        total, weights = jax.tree.map(np.zeros_like, params), 0.0
        for slot in np.flatnonzero(plan.sends[t]):
            task = Tasks(*(column[t, slot] for column in batch.tasks[0]))
            client = int(task.client)
            result = train(params, records, task, root, kept.get(client))
            kept[client] = result.optimizer
            total = jax.tree.map(
                lambda a, b, w=task.weight: a + w * b, total, result.update
            )
            weights += task.weight
        params = jax.tree.map(lambda a, b, w=weights: a + b / w, params, total)
    leaves = map(jax.tree.leaves, (params, last.state.params))
    for mine, other in zip(*leaves, strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-5, atol=2e-5)
    trace = last.state.clients[0].trace
    for client, state in kept.items():
        leaves = map(jax.tree.leaves, (state[0].trace, trace))
        for mine, other in zip(*leaves, strict=True):
            np.testing.assert_allclose(mine, other[client], rtol=1e-4, atol=1e-4)
    never = set(range(6)) - set(kept)
    assert all(not leaf[list(never)].any() for leaf in jax.tree.leaves(trace))


@pytest.mark.slow
def test_momentum_that_is_kept_is_resumed_and_matters(tmp_path):
    settings = toy.settings(training=KEPT, perf={"checkpoint_every": 2})
    whole = fl.simulate(settings, tmp_path / "run", progress=False)
    cut_back(tmp_path / "run")
    resumed = fl.simulate(settings, tmp_path / "run", progress=False)
    assert checkpoint.digest(resumed.params) == checkpoint.digest(whole.params)
    anew = run(training={**KEPT, "optimizer_state": "reset"})
    assert checkpoint.digest(anew.params) != checkpoint.digest(whole.params)
    nothing = {**KEPT, "momentum": 0.0}
    kept, sgd = run(training=nothing), run(training={"optimizer": "sgd"})
    assert checkpoint.digest(kept.params) == checkpoint.digest(sgd.params)
