"""Are runs grouped by all but their seeds, and are means and bands what they say?"""

import json
import pathlib

import numpy as np
import pandas as pd
import pytest

from dpsparfl_jax import config, config_values
from dpsparfl_jax.records import IndexedRun, groups

NOWHERE = pathlib.Path("nowhere")


def make_run(seed=0, summary=(), curves=(), **changes):
    content = config_values.as_dict(config.RunConfig(seed=seed))
    for name, value in changes.items():
        section, _, field = name.partition("__")
        content[section][field] = value
    manifest = {"config": content, "clip_norm": {}, "planned_rounds": 9}
    text = json.dumps(dict(curves))
    return IndexedRun(f"run{seed}", NOWHERE, manifest, dict(summary), True, "", text)


def test_runs_that_differ_in_their_seed_alone_are_one_group():
    runs = [
        make_run(seed, schedule__tradeoff=tradeoff, perf__cache_dir=f"/tmp/{seed}")
        for tradeoff in (10.0, 9.0, 1.5)
        for seed in (1, 0)
    ]
    made = groups.group_runs(runs)
    assert [group.name for group in made] == [
        "tradeoff=1.5",
        "tradeoff=9",
        "tradeoff=10",
    ]
    assert [run.name for run in made[0].runs] == ["run0", "run1"]
    assert groups.group_runs([]) == []
    (alone,) = groups.group_runs(runs[:2])
    assert (alone.name, alone.settings) == ("all", {})


def test_names_say_the_section_only_where_needed():
    assert groups.short_names(["server.momentum", "training.momentum"]) == [
        "server.momentum",
        "training.momentum",
    ]
    assert groups.short_names(["server.momentum", "seed"]) == ["momentum", "seed"]
    assert groups.as_text("/home/me/owners.json") == "…/owners.json"


def test_spreads_leave_out_what_is_not_there():
    values = [0.25, None, 0.75, float("inf")]
    runs = [
        make_run(seed, {"accuracy": value}, privacy__noise=seed != 3)
        for seed, value in enumerate(values)
    ]
    group = groups.Group({}, runs)
    assert group.spread("accuracy") == groups.Spread(0.5, 0.25, 0.75)
    assert group.spread("epsilon_max") is None
    assert not group.private
    assert groups.Group({}, runs[:3]).private


def test_bands_are_those_of_the_rounds_that_all_seeds_reach():
    rng = np.random.default_rng(0)
    tables = [
        pd.DataFrame({"round": rounds, "accuracy": rng.random(len(rounds))})
        for rounds in ([2, 4, 6, 8], [2, 4, 6], [2, 4, 6, 7])
    ]
    runs = [
        make_run(seed, curves=table.to_dict("list"))
        for seed, table in enumerate(tables)
    ]
    found = groups.bands(runs)
    by_hand = pd.concat(tables).groupby("round")["accuracy"]
    whole = by_hand.count() == len(tables)
    assert found["round"].tolist() == [2, 4, 6]
    for column, expected in (
        ("accuracy", by_hand.mean()),
        ("accuracy_low", by_hand.min()),
        ("accuracy_high", by_hand.max()),
    ):
        np.testing.assert_allclose(found[column], expected[whole], rtol=1e-12)


def test_the_table_of_runs_has_every_run():
    runs = [
        make_run(seed, {"accuracy": seed / 4}, schedule__tradeoff=float(seed > 1))
        for seed in range(4)
    ]
    table = groups.runs_frame(runs)
    assert table["run"].tolist() == ["run0", "run1", "run2", "run3"]
    assert table["accuracy"].tolist() == [0, 0.25, 0.5, 0.75]
    assert table["schedule.tradeoff"].tolist() == [0, 0, 1, 1]
    assert table["seed"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("values", "ordered"),
    [([10, 9.5, 1e3], [9.5, 10, 1e3]), (["b", 2, "a"], [2, "a", "b"])],
)
def test_values_are_ordered_by_size_then_by_name(values, ordered):
    assert sorted(values, key=groups.order_of) == ordered
