"""Is the server's step the optimizer's, batched over runs, and plain addition plain?"""

import jax
import numpy as np
import optax
import pytest

import dpsparfl_jax as fl
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.registry import OPTIMIZERS
from dpsparfl_jax.runner import checkpoint
from dpsparfl_jax.training import cohort, server
from dpsparfl_jax.types import ServerState
from tests import toy, worlds

RUNS = 3


@pytest.fixture(autouse=True)
def _plain_promotion():
    """optax's Adam does not run under strict promotion."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def params(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "kernel": rng.normal(size=(RUNS, 7, 4)).astype(np.float32),
        "bias": rng.normal(size=(RUNS, 4)).astype(np.float32),
    }


def sums(seed, weights=(300.0, 0.0, 7.0)):
    totals = jax.tree.map(lambda leaf: 100 * leaf, params(seed))
    return server.RunSums(totals, np.array(weights, np.float32))


def one_run(tree, run):
    return jax.tree.map(lambda leaf: leaf[run], tree)


def after(optimizer, rates, rounds=3):
    made = server.make_server(optimizer)
    state, step = made.init(params()), jax.jit(made.step)
    for number in range(rounds):
        told = server.plain_rates(RUNS)._replace(
            learning_rate=np.array(rates, np.float32),
            momentum=np.full(RUNS, 0.9, np.float32),
        )
        state = step(state, sums(number + 1), told)
    return jax.device_get(state)


@pytest.mark.parametrize("optimizer", ["plain", "momentum"])
def test_the_step_is_the_same_to_the_bit_on_several_devices(optimizer):
    """A division would not be: XLA multiplies by the inverse, here and there."""
    made, rng = server.make_server(optimizer), np.random.default_rng(0)
    first = worlds.make_world("small_cnn", seeds=range(RUNS)).params
    totals = jax.tree.map(
        lambda leaf: rng.normal(0, 30, leaf.shape).astype(np.float32), first
    )
    told = server.RunSums(totals, np.array([77, 123, 61], np.float32))

    def bits(devices):
        mesh = cohort.task_mesh(jax.devices()[:devices])
        state = jax.device_get(made.init(first))
        inputs = cohort.replicate((state, told, server.plain_rates(RUNS, 0.3)), mesh)
        everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        got = jax.jit(made.step, out_shardings=everywhere)(*inputs)
        return [leaf.tobytes() for leaf in jax.tree.leaves(jax.device_get(got))]

    assert bits(1) == bits(2)


def test_plain_adds_the_mean_update():
    state = after("plain", [1, 1, 1], rounds=1)
    expected = jax.tree.map(
        lambda leaf, total: np.asarray(leaf[0], np.float64) + total[0] / 300.0,
        params(),
        sums(1).updates,
    )
    for name, leaf in expected.items():
        np.testing.assert_allclose(state.params[name][0], leaf, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["plain", "sgd", "momentum", "adam"])
def test_a_run_without_updates_keeps_its_whole_state_to_the_bit(optimizer):
    state = after(optimizer, [1, 1, 1])
    first = jax.device_get(server.make_server(optimizer).init(params()))
    for new, old in zip(
        jax.tree.leaves(one_run(state, 1)),
        jax.tree.leaves(one_run(first, 1)),
        strict=True,
    ):
        np.testing.assert_array_equal(new, old)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_each_run_is_optax_on_its_own(optimizer):
    rates = [0.5, 1.0, 0.1]
    state = after(optimizer, rates)
    for run in (0, 2):
        transform = OPTIMIZERS.get(optimizer)(rates[run])
        local = one_run(params(), run)
        inner = transform.init(local)
        for number in range(3):
            total = sums(number + 1)
            gradient = jax.tree.map(
                lambda leaf, w=total.weights[run]: -leaf / w,
                one_run(total.updates, run),
            )
            updates, inner = transform.update(gradient, inner, local)
            local = optax.apply_updates(local, updates)
        for name, leaf in local.items():
            np.testing.assert_allclose(
                state.params[name][run], leaf, rtol=1e-5, atol=1e-4
            )


def test_sgd_at_rate_one_is_plain_addition_up_to_rounding():
    plain, sgd = after("plain", [1, 1, 1]), after("sgd", [1, 1, 1])
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(sgd), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "optimizer", ["momentum", pytest.param("adam", marks=pytest.mark.slow)]
)
def test_a_resumed_run_has_the_optimizers_state(optimizer, tmp_path):
    """A run recorded whole, and one cut back to an earlier checkpoint: equal bits."""
    settings = toy.settings(
        server={"optimizer": optimizer, "learning_rate": 0.5},
        perf={"checkpoint_every": 2},
    )
    whole = fl.simulate(settings, tmp_path / "whole", progress=False)
    fl.simulate(settings, tmp_path / "cut", progress=False)
    newest = max((tmp_path / "cut" / "checkpoints").glob("[0-9]"))
    for path in sorted(newest.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    newest.rmdir()
    (tmp_path / "cut" / "DONE").unlink()
    resumed = fl.simulate(settings, tmp_path / "cut", progress=False)
    assert checkpoint.digest(resumed.params) == checkpoint.digest(whole.params)
    in_memory = fl.simulate(settings, progress=False)
    assert checkpoint.digest(in_memory.params) == checkpoint.digest(whole.params)


@pytest.mark.slow
def test_runs_of_a_grid_with_other_rates_are_single_runs_to_the_bit():
    grid = [
        toy.settings(server={"optimizer": "momentum", "learning_rate": rate})
        for rate in (0.3, 1.0)
    ]
    together = fl.simulate_grid(grid, progress=False)
    for settings, result in zip(grid, together, strict=True):
        alone = fl.simulate(settings, progress=False)
        assert checkpoint.digest(alone.params) == checkpoint.digest(result.params)
    first, second = (checkpoint.digest(result.params) for result in together)
    assert first != second


def test_checkpoints_of_another_optimizer_are_not_taken(tmp_path):
    made = server.make_server("momentum")
    state = one_run(jax.device_get(made.init(params())), 0)
    files = checkpoint.Checkpoints(tmp_path)
    files.save(3, ServerState(*state))
    plain = ServerState(state.params, (), state.params)
    restored = files.restore(plain, most=9)
    files.close()
    assert restored.params is None
    assert "other shapes" in restored.complaints[0]


def test_refusals():
    with pytest.raises(InputError, match="no effect on plain addition"):
        fl.ServerConfig(learning_rate=0.5)
    with pytest.raises(InputError, match="plain addition is for the server"):
        toy.settings(training={"optimizer": "plain"})
    with pytest.raises(InputError, match="learning_rate must be above 0"):
        fl.ServerConfig(optimizer="adam", learning_rate=0.0)
