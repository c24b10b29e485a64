"""Is a simulated run the schedule, trained: alone, in a grid, resumed, on devices?"""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from dpsparfl_jax import api
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning.schedule import IDLE
from dpsparfl_jax.records import rows
from dpsparfl_jax.runner import programs, tasks
from dpsparfl_jax.runner.batch import Batch, lay_out
from dpsparfl_jax.runner.run import Run
from dpsparfl_jax.training import cohort, keys, local, server
from dpsparfl_jax.types import EvalRows, RunConstants
from tests import toy

GRID = [
    toy.settings(seed, schedule={"tradeoff": tradeoff}, length={"rounds": rounds})
    for seed, tradeoff, rounds in ((0, 50.0, 6), (1, 5.0, 3), (2, 500.0, 5))
]


def prepared(*runs):
    return [toy.prepare(settings) for settings in runs]


def train(batch, *given, **options):
    """All outputs by (run, round)."""
    found = [out for outs in batch.train(*given, **options) for out in outs]
    return {(out.run, out.round_index): out for out in found}


def same(left, right):
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def alone():
    """Every run of the grid by itself."""
    return [train(Batch(prepared(settings)), snapshot_every=1) for settings in GRID]


def test_a_run_is_its_schedule_round_by_round(alone):
    """Written out: rows from the schedule, one cohort step and one evaluation each."""
    (run,) = prepared(GRID[0])
    batch, plan, sets = Batch([run]), run.schedule, run.data.images.sets
    put = functools.partial(cohort.replicate, mesh=batch.program.mesh)
    state = put(jax.tree.map(lambda leaf: leaf[None], batch.initial[0]))
    constants = RunConstants(keys.root_key_words(0), server.plain_rates(1))
    test_rows = np.concatenate(run.data.clients.test).astype(np.int32)[None]
    for t in range(plan.num_rounds):
        slots = np.flatnonzero(plan.client[t] >= 0)
        columns = tasks.make_tasks(
            batch.tables,
            run=0,
            client=plan.client[t][slots],
            round_index=t,
            keep_rate=plan.keep_rate[t][slots],
            clip_norm=2.0,
            noise_multiplier=1.0,
            learning_rate=0.1,
            batch_size=6,
            capacity=run.outline.capacity,
        )
        records = local.Records(sets.train, batch.tables.rows)
        data = put((records, constants, columns))
        state, seen = batch.program.step(state, *data)
        told = batch.program.evaluate(
            state.params, *put((sets.test, EvalRows(test_rows, np.array([True]))))
        )
        got = alone[0][0, t]
        same(jax.tree.map(lambda leaf: leaf[0], jax.device_get(state)), got.state)
        assert got.accuracy == float(told.accuracy[0])
        assert got.loss == float(told.loss[0])
        np.testing.assert_array_equal(got.diagnostics.loss[slots], seen.loss)
    assert got.accuracy > 0.3  # it learns: chance is 0.1


def test_a_grid_equals_its_runs_one_by_one_and_compiles_once(alone):
    programs.get_program.cache_clear()  # other tests may have compiled the same
    batch = Batch(prepared(*GRID))
    together = train(batch, snapshot_every=1)
    assert batch.program.step._cache_size() == 1
    assert batch.program.evaluate._cache_size() == 1
    assert {key for key in together} == {
        (number, t) for number, run in enumerate(GRID) for t in range(run.length.rounds)
    }
    for (number, t), got in together.items():
        expected = alone[number][0, t]
        same(got.state, expected.state)
        same(got.diagnostics, expected.diagnostics)
        assert (got.accuracy, got.loss) == (expected.accuracy, expected.loss)


@pytest.mark.parametrize("cuts", [(1, 1, 1), (4, 2, 3), (0, 3, 4)])
def test_runs_go_on_from_any_rounds_to_the_bit(alone, cuts):
    batch = Batch(prepared(*GRID))
    states = [
        alone[number][0, cut - 1].state if cut else batch.initial[number]
        for number, cut in enumerate(cuts)
    ]
    resumed = train(batch, states, cuts)
    assert len(resumed) == sum(run.length.rounds for run in GRID) - sum(cuts)
    for (number, t), got in resumed.items():
        expected = alone[number][0, t]
        assert (got.accuracy, got.loss) == (expected.accuracy, expected.loss)
        last = t + 1 == GRID[number].length.rounds
        assert (got.state is not None) == (got.right is not None) == last
        if last:
            same(got.state, expected.state)


def test_stopping_leaves_a_snapshot_of_every_live_run(alone):
    batch = Batch(prepared(*GRID))
    calls = iter([False, False, False, True])
    got = train(batch, stop=lambda: next(calls))
    assert {t for _, t in got} == {0, 1, 2, 3}
    for number in (0, 2):  # run 1 has ended before
        same(got[number, 3].state, alone[number][0, 3].state)
    same(got[1, 2].state, alone[1][0, 2].state)


def test_nothing_moves_between_host_and_device_but_by_intent():
    batch = Batch(prepared(*GRID[:2]))
    first = batch.initial
    with jax.transfer_guard("disallow"):
        assert len(train(batch, first, snapshot_every=2)) == 9


@pytest.mark.slow
def test_a_grid_on_two_devices_equals_its_runs_one_by_one_to_the_bit():
    """Tasks fall on other devices, and are cut at other steps, than in a single run."""
    runs = [
        toy.settings(
            run.seed,
            schedule={"tradeoff": run.schedule.tradeoff},
            length={"rounds": 2},
            wireless={"num_channels": 3},
            perf={"devices": 2},
        )
        for run in GRID
    ]
    together = train(Batch(prepared(*runs)), snapshot_every=1)
    for number, settings in enumerate(runs):
        alone = train(Batch(prepared(settings)), snapshot_every=1)
        for (_, t), expected in alone.items():
            got = together[number, t]
            same(got.state, expected.state)
            same(got.diagnostics, expected.diagnostics)
            assert (got.accuracy, got.loss) == (expected.accuracy, expected.loss)


@pytest.mark.parametrize(
    "execution", ["map", pytest.param("vmap", marks=pytest.mark.slow)]
)
def test_devices_share_the_tasks(alone, execution):
    """Where tasks go one by one that moves no bit."""
    many = [
        toy.settings(
            run.seed,
            schedule={"tradeoff": run.schedule.tradeoff},
            length={"rounds": 3},
            perf={"devices": 4, "execution": execution},
        )
        for run in GRID
    ]
    got = train(Batch(prepared(*many)), snapshot_every=1)
    for (number, t), output in got.items():
        expected = alone[number][0, t]
        if execution == "map":
            same(output.state, expected.state)
            same(output.diagnostics, expected.diagnostics)
            assert (output.accuracy, output.loss) == (expected.accuracy, expected.loss)
        assert output.loss == pytest.approx(expected.loss, rel=1e-3)
        for a, b in zip(
            jax.tree.leaves(output.state),
            jax.tree.leaves(expected.state),
            strict=True,
        ):
            np.testing.assert_allclose(a, b, atol=1e-4)


def test_evaluations_come_when_due_and_at_the_end():
    settings = toy.settings(length={"rounds": 5, "eval_every": 2})
    got = train(Batch(prepared(settings)))
    assert [t for _, t in got if got[0, t].accuracy is not None] == [1, 3, 4]


def test_time_is_taken_from_the_clock_that_is_lent():
    ticks = iter(range(1000))
    got = train(Batch(prepared(GRID[1])), clock=lambda: float(next(ticks)))
    assert all(out.host_s > 0 and out.device_s > 0 for out in got.values())
    assert train(Batch(prepared(GRID[1])))[0, 0].device_s is None


def test_rounds_in_which_nobody_sends_leave_the_model_alone():
    settings = toy.settings(schedule={"energy_budget_j": 1e-6})
    batch = Batch(prepared(settings))
    got = train(batch)
    same(got[0, 5].state, batch.initial[0])
    row = rows.RoundRows(batch.runs[0].schedule).row(got[0, 5])
    assert row["clients"] == []
    assert row["train_loss"] is None


def test_private_and_other_runs_share_a_program():
    """Noise, clipping, learning rate and keep rate are data."""
    runs = [
        toy.settings(privacy={"noise": False}, training={"clipping": "off"}),
        toy.settings(training={"clipping": "unadjusted", "learning_rate": 0.02}),
        toy.settings(privacy={"noise_multiplier": 2.0}, schedule={"keep_rate": 0.3}),
    ]
    not_private = "this run is not private"
    with pytest.warns(UserWarning, match=not_private):
        together = api.simulate_grid(runs)
    for settings, got in zip(runs, together, strict=True):
        if settings.privacy.noise:
            expected = api.simulate(settings)
            assert expected.warnings == got.warnings == ()
        else:
            with pytest.warns(UserWarning, match=not_private):
                expected = api.simulate(settings)
            assert not_private in got.warnings[0]
        same(got.params, expected.params)
    assert together[0].summary["epsilon_max"] is None
    assert together[1].summary["epsilon_max"] > together[2].summary["epsilon_max"]


def test_too_many_devices_are_refused():
    with pytest.raises(InputError, match="asks for 99 devices, but there are 8"):
        api.simulate(toy.settings(perf={"devices": 99}))


def test_a_dropped_update_does_not_arrive_and_clients_may_have_noise_of_their_own():
    """The run in which those who were dropped never sent has the same models."""
    settings = toy.settings(
        wireless={"gain_error_db": 4.0, "outage": 0.2},
        schedule={"on_late": "drop"},
        privacy={"noise_multiplier": [0.8, 0.9, 1.0, 1.1, 1.2, 1.3]},
    )
    run = toy.prepare(settings)
    schedule = run.schedule
    lost = schedule.sends & ~schedule.arrived
    assert lost.any()
    assert schedule.arrived.any()
    columns = lay_out(run, 0, Batch([run]).tables, 2.0)
    noise = np.array(settings.privacy.noise_multiplier, np.float32)
    sent = schedule.client[schedule.arrived]
    np.testing.assert_array_equal(
        columns.noise_multiplier[schedule.arrived], noise[sent]
    )
    without = dataclasses.replace(
        schedule, client=np.where(lost, IDLE, schedule.client)
    )
    never = Run("never", settings).outlined().planned(without)
    results = [
        train(Batch([one]), snapshot_every=1)
        for one in (run, never.with_images(run.data.images))
    ]
    for t in range(schedule.num_rounds):
        same(results[0][0, t].state, results[1][0, t].state)
    table = rows.RoundRows(schedule)
    made = [table.row(results[0][0, t]) for t in range(schedule.num_rounds)]
    assert [row["lost"] for row in made] == lost.sum(axis=1).tolist()
    assert [row["late"] for row in made] == schedule.late.sum(axis=1).tolist()
    for t, row in enumerate(made):
        used = schedule.arrived[t]
        loss = results[0][0, t].diagnostics.loss[used]
        assert row["train_loss"] == (
            pytest.approx(np.mean(loss)) if used.any() else None
        )
