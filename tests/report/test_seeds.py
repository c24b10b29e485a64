"""Are runs that differ in their seed alone shown as one, with the right bands?"""

import numpy as np
import pytest

from dpsparfl_jax import records
from dpsparfl_jax.report import charts, palette, panels, seeds
from tests.report.test_report import write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("seeds")
    for policy in ("random", "dp_sparfl"):
        for seed in (0, 1, 2):
            schedule = {"policy": policy}
            folder = root / f"{policy},{seed}"
            write_run(folder, seed=seed, num_rounds=9 + seed, schedule=schedule)
    write_run(root / "half", num_rounds=5, done=False, schedule={"policy": "random"})
    return records.find_runs([root])


def test_finished_seeds_are_one_and_colours_follow_settings(runs):
    entries = seeds.show_runs(runs)
    told = [(entry.shown.name, len(entry.runs)) for entry in entries]
    assert told == [
        ("policy=dp_sparfl (3 seeds)", 3),
        ("half", 1),
        ("policy=random (3 seeds)", 3),
    ]
    ours, unfinished, others = (entry.shown.colour for entry in entries)
    assert (ours, others) == (palette.look(0).colour, palette.look(3).colour)
    assert unfinished == palette.look(4).colour
    again = seeds.show_runs(runs[::-1])
    assert [entry.shown.name for entry in again] == [name for name, _ in told]
    looks = seeds.looks_of(runs, entries)
    assert [one.name for one in looks] == [run.name for run in runs]
    assert {one.colour for one in looks[:3]} == {palette.COLOURS[0]}


def test_runs_with_the_same_seed_stay_apart(runs):
    twice = [runs[0], runs[0], runs[1]]
    assert [len(entry.runs) for entry in seeds.show_runs(twice)] == [1, 1, 1]


def test_names_have_only_settings_that_tell_apart(tmp_path):
    for number, (clip, data) in enumerate(((1.0, "glyphs"), (2.0, "x"), (2.0, "y"))):
        for seed in (0, 1):
            changes = {"training": {"clip_norm": clip, "batch_size": 4 * clip}}
            changes |= {"data": {"name": data}}
            write_run(tmp_path / f"{number},{seed}", seed=seed, num_rounds=2, **changes)
    entries = seeds.show_runs(records.find_runs([tmp_path]))
    names = [entry.shown.name for entry in entries]
    assert names == [f"name={data} (2 seeds)" for data in ("glyphs", "x", "y")]
    assert seeds.telling([{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 2, "b": 2}]) == [
        "a",
        "b",
    ]
    assert seeds.telling([{}]) == []


def test_bands_go_from_the_least_to_the_largest_seed(runs):
    ours = [run for run in runs if run.name.startswith("dp_sparfl")]
    shown = seeds.show_runs(ours)[0].shown
    assert shown.name == "all runs (3 seeds)"
    assert len(shown.rounds) == 9  # which all seeds reach
    for name in ("accuracy", "cumulative_delay_s", "epsilon_max", "mean_delay_s"):
        values = np.stack(
            [charts.with_derived(run.rounds)[name].to_numpy(float)[:9] for run in ours]
        )
        found = [shown.rounds[f"{name}{end}"] for end in ("", "_low", "_high")]
        wanted = [values.mean(axis=0), values.min(axis=0), values.max(axis=0)]
        np.testing.assert_allclose(found, wanted)
    band, line = charts.CHARTS["accuracy_rounds"].curves([shown])
    assert (band.kind, line.kind) == ("band", "line")
    assert band.x.tolist() == [*range(1, 10), *range(9, 0, -1)]


def test_keep_rates_are_quantiles_of_all_senders_in_windows_of_rounds(runs):
    shown = seeds.show_runs([run for run in runs if run.name == "random,2"])[0].shown
    across, found = charts.keep_quantiles(shown, (0.1, 0.5, 0.9))
    rounds = shown.rounds
    assert len(across) == 8  # of eleven rounds: three windows of two
    pooled = np.concatenate([rounds["keep_rates"][0], rounds["keep_rates"][1]])
    assert across[0] == 1.5
    np.testing.assert_allclose(found[:, 0], np.quantile(pooled, (0.1, 0.5, 0.9)))
    (panel,) = panels.panels([shown]).values()
    assert panel["layout"]["yaxis"]["range"] == [0, 1.04]
    older = shown._replace(rounds=rounds.drop(columns="keep_rates"))
    across, found = charts.keep_quantiles(older, (0.5,))
    assert len(across) == 8
    none = shown._replace(rounds=rounds.iloc[:0])
    assert charts.keep_quantiles(none, (0.5,))[0].size == 0
