"""Do all ways of running a cohort agree, and does nothing leak between tasks?"""

import jax
import numpy as np
import pytest

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.training import cohort
from tests import worlds

SEEDS = (0, 5, 9)
# What has nothing to do with the network is tried with the one that compiles quickly.
LINEAR = pytest.mark.parametrize("world", ["logistic"], indirect=True)


def grid_rows(world, round_index=0, **changes):
    """Tasks of three runs with three or four clients each and their own settings."""
    run = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2, 2])
    client = np.array([0, 1, 2, 2, 3, 4, 0, 3, 4, 5])
    settings = {
        "run": run,
        "client": client,
        "round_index": round_index,
        "keep_rate": np.linspace(0.2, 1.0, 10),
        "clip_norm": np.array([0.5, 1.0, 2.0])[run],
        "noise_multiplier": np.array([0.3, 0.6, 0.9])[run],
        "learning_rate": np.array([0.1, 0.05, 0.2])[run],
        "batch_size": np.array([3, 4, 5])[run],
        **changes,
    }
    return worlds.make_tasks(world, **settings)


def assert_same(a, b, tolerance=2e-6):
    """Equal to float rounding, or exactly if the tolerance is 0."""
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5 if tolerance else 0, atol=tolerance)


def only(rows, *tasks):
    """The same rows with all but these tasks idle (one shape, one compilation)."""
    return rows._replace(active=np.isin(np.arange(10), tasks))


@pytest.fixture(
    scope="module",
    params=["logistic", pytest.param("small_cnn", marks=pytest.mark.slow)],
)
def world(request):
    return worlds.make_world(request.param, seeds=SEEDS)


@pytest.fixture(scope="module")
def baseline(world):
    return worlds.run_round(world, grid_rows(world))


@pytest.mark.parametrize(
    ("execution", "devices"),
    [
        ("vmap", 1),
        ("map", 8),
        pytest.param("chunked", 3, marks=pytest.mark.slow),
    ],
)
def test_execution_and_devices_change_nothing(world, baseline, execution, devices):
    """Up to rounding; where tasks go one by one, not a bit."""
    got = worlds.run_round(world, grid_rows(world), execution, devices)
    assert_same(got, baseline, tolerance=0 if execution == "map" else 2e-6)


def test_permuting_slots_permutes_diagnostics_and_nothing_else(world, baseline):
    order = np.random.default_rng(1).permutation(10)
    rows = jax.tree.map(lambda leaf: leaf[order], grid_rows(world))
    params, diagnostics = worlds.run_round(world, rows)
    assert_same(params, baseline[0])
    for got, want in zip(diagnostics, baseline[1], strict=True):
        np.testing.assert_array_equal(got, want[order])


@LINEAR
def test_a_batch_of_three_runs_equals_three_single_runs(world, baseline):
    rows = grid_rows(world)
    for run, seed in enumerate(SEEDS):
        alone = worlds.make_world(world.model, seeds=(seed,))
        own = rows._replace(run=np.zeros_like(rows.run), active=rows.run == run)
        params, diagnostics = worlds.run_round(alone, own)
        together = jax.tree.map(lambda leaf, r=run: leaf[r : r + 1], baseline[0])
        assert_same(params, together)
        for got, all_runs in zip(diagnostics, baseline[1], strict=True):
            np.testing.assert_array_equal(got[own.active], all_runs[own.active])


def test_a_task_does_not_depend_on_the_rest_of_the_cohort(world, baseline):
    _, diagnostics = worlds.run_round(world, only(grid_rows(world), 9, 4, 2))
    for got, want in zip(diagnostics, baseline[1], strict=True):
        np.testing.assert_array_equal(got[[9, 4, 2]], want[[9, 4, 2]])


@LINEAR
@pytest.mark.parametrize("execution", ["map", "vmap"])
def test_idle_slots_do_nothing(world, execution):
    rows = only(grid_rows(world), 0, 2, 3, 4, 5, 7, 8, 9)
    params, diagnostics = worlds.run_round(world, rows, execution)
    # What an idle slot holds is of no consequence.
    strange = rows.learning_rate.copy()
    strange[[1, 6]] = 1e30
    assert_same(
        params,
        worlds.run_round(world, rows._replace(learning_rate=strange), execution)[0],
        0,
    )
    for leaf in diagnostics:
        assert (leaf[[1, 6]] == 0).all()
    unchanged, _ = worlds.run_round(world, only(rows), execution)
    assert_same(unchanged, world.params, 0)


@LINEAR
def test_aggregation_weighs_clients_by_their_data(world):
    rows = grid_rows(world)
    deltas = []
    for task in range(3):
        params, _ = worlds.run_round(world, only(rows, task))
        deltas.append(
            jax.tree.map(lambda new, old: new[0] - old[0], params, world.params)
        )
    sizes = world.tables.sizes[0, :3].astype(np.float64)
    assert len(set(sizes)) == 3
    whole, _ = worlds.run_round(world, only(rows, 0, 1, 2))
    wanted = jax.tree.map(
        lambda old, *d: old[0] + np.tensordot(sizes / sizes.sum(), np.stack(d), 1),
        world.params,
        *deltas,
    )
    assert_same(jax.tree.map(lambda leaf: leaf[0], whole), wanted)
    assert_same(
        jax.tree.map(lambda leaf: leaf[1:], whole),
        jax.tree.map(lambda leaf: leaf[1:], world.params),
        0,
    )


@LINEAR
@pytest.mark.parametrize("rate", [1e8, 1e38])
@pytest.mark.parametrize(
    "execution", ["map", pytest.param("vmap", marks=pytest.mark.slow)]
)
def test_a_diverged_client_is_dropped_counted_and_harms_nobody(world, execution, rate):
    rows = grid_rows(world)
    wild = rows.learning_rate.copy()
    wild[1] = rate
    params, diagnostics = worlds.run_round(
        world, rows._replace(learning_rate=wild), execution
    )
    assert diagnostics.diverged.tolist() == [k == 1 for k in range(10)]
    assert diagnostics.examples[1] > 0  # it did touch records: its cost is charged
    survivors = rows._replace(active=~diagnostics.diverged)
    assert_same(params, worlds.run_round(world, survivors, execution)[0])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))


@LINEAR
def test_one_trace_for_a_grid_and_no_implicit_transfer(world):
    _, step = worlds.cohort_step(world.model, "map", 1)
    step.clear_cache()
    plans = [
        grid_rows(
            world,
            round_index=t,
            clip_norm=1.0 + t,
            noise_multiplier=0.5 + t,
            learning_rate=0.01 * (t + 1),
            batch_size=3 + t,
            keep_rate=0.2 * (t + 1),
        )
        for t in range(3)
    ]
    state, records, constants, _ = cohort.replicate(
        worlds.round_inputs(world, plans[0])
    )
    plans = [cohort.replicate(rows) for rows in plans]
    with jax.transfer_guard("disallow"):
        for rows in plans:
            state, diagnostics = step(state, records, constants, rows)
        jax.block_until_ready(state)
    assert step._cache_size() == 1
    assert np.isfinite(jax.device_get(diagnostics.loss)).all()


def test_other_rounds_and_seeds_draw_other_masks(world, baseline):
    later = worlds.run_round(world, grid_rows(world, round_index=1))
    assert (later[1].kept != baseline[1].kept).sum() >= 8
    reseeded = world._replace(roots=world.roots + np.uint32(1))
    other = worlds.run_round(reseeded, grid_rows(world))
    assert (other[1].kept != baseline[1].kept).sum() >= 8


@LINEAR
@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((180, 9, 8, 1), np.uint8), r"these are uint8 of shape \[9, 8, 1\]"),
        (np.zeros((180, 8, 8, 1), np.float32), "these are float32 of shape"),
    ],
)
def test_images_of_another_shape_or_dtype_are_refused(world, images, message):
    strange = world._replace(data=world.data._replace(images=images))
    with pytest.raises(InputError, match=message):
        worlds.run_round(strange, grid_rows(world))


def test_automatic_execution_and_bad_names():
    assert cohort.resolve_execution("auto", "cpu") == "map"
    assert cohort.resolve_execution("auto", "gpu") == "chunked"
    assert cohort.resolve_execution("vmap", "cpu") == "vmap"
    with pytest.raises(InputError, match="unknown execution 'pmap'"):
        cohort.resolve_execution("pmap", "cpu")
    with pytest.raises(InputError, match="chunk size"):
        cohort.make_cohort_step(None, chunk_size=0)
