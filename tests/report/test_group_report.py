"""Does a report of many runs show all of them, with means that can be checked?"""

import csv
import json
import re
import shutil

import numpy as np
import plotly.graph_objects as go
import pytest

from dpsparfl_jax import records
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.records import groups
from dpsparfl_jax.report import group_charts, group_page, heat_maps
from tests.commands import call_program
from tests.records.test_groups import make_run
from tests.report.test_report import Loaded, write_run

TRADEOFFS, CLIPS, BUDGETS, SEEDS = (
    (1.0, 10.0, 100.0),
    (2.0, 3.0),
    (6.0, 10.0),
    (0, 1, 2),
)
POINTS = [
    (tradeoff, clip, budget, seed)
    for tradeoff in TRADEOFFS
    for clip in CLIPS
    for budget in BUDGETS
    for seed in SEEDS
]


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """36 runs of a grid, an unfinished one, and their report."""
    root = tmp_path_factory.mktemp("swept")
    for number, (tradeoff, clip, budget, seed) in enumerate(POINTS):
        write_run(
            root / f"run<{number}>",
            seed=seed,
            num_rounds=4 + number % 3,
            schedule={"tradeoff": tradeoff},
            training={"clip_norm": clip},
            privacy={"epsilon_hi": budget},
        )
    write_run(root / "half", done=False, schedule={"tradeoff": 7.0})
    done = call_program("experiments.report", root, f"--out={root / 'out'}")
    return root, done


def spec_of(folder):
    text = (folder / "report.html").read_text(encoding="utf-8")
    return json.loads(re.search(r'id="spec">(.*?)</script>', text, re.DOTALL)[1])


def mean_of(runs, metric, **wanted):
    """The plain mean over runs with these settings."""
    return np.mean(
        [
            run.summary[metric]
            for run in runs
            if all(
                run.manifest["config"][name.partition("__")[0]][name.partition("__")[2]]
                == value
                for name, value in wanted.items()
            )
        ]
    )


def test_all_files_are_there_and_have_every_run(swept):
    root, done = swept
    assert (done.returncode, done.stderr) == (0, "")
    assert "report of 37 run(s)" in done.stdout
    files = {f"{name}.png" for name in group_charts.FIGURES}
    files |= {f"heat_{name}.png" for name in ("accuracy", "best_accuracy", "delay")}
    files |= {"heat_epsilon_max.png", "report.html", "runs.csv", "rounds.csv"}
    assert {file.name for file in (root / "out").iterdir()} == files
    with open(root / "out" / "runs.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(POINTS) + 1
    assert [row["run"] for row in table if row["done"] == "False"] == ["half"]
    with open(root / "out" / "rounds.csv", newline="") as file:
        rounds = list(csv.DictReader(file))
    first = records.load_run(root / "run<0>").rounds
    told = [float(row["accuracy"]) for row in rounds if row["run"] == "run<0>"]
    assert told == pytest.approx(first["accuracy"], rel=1e-5)


def test_the_page_fetches_nothing_and_says_what_it_leaves_out(swept):
    root, _ = swept
    text = (root / "out" / "report.html").read_text(encoding="utf-8")
    page = Loaded(text)
    assert page.fetched == []
    words = " ".join(" ".join(page.words).split())
    assert "37 runs. 1 is unfinished" in words
    assert "one of 12 settings" in words
    assert "6 of 12 curves are switched on at first" in words
    assert "delta = 0.001, pld accountant" in words
    assert text.count('aria-pressed="true"') == 6
    assert text.count('aria-pressed="false"') == 6
    assert str(root) not in text


def test_the_table_and_the_heat_maps_are_means_over_runs(swept):
    root, _ = swept
    runs = [run for run in records.FoundRuns([root]).read() if run.done]
    spec = spec_of(root / "out")
    table = spec["table"]
    assert table["heads"][:5] == ["clip_norm", "epsilon_hi", "tradeoff", "runs",
                                  "accuracy"]  # fmt: skip
    for clip, budget, tradeoff, count, accuracy, delay, *_ in table["rows"]:
        wanted = {
            "training__clip_norm": float(clip),
            "privacy__epsilon_hi": float(budget),
            "schedule__tradeoff": float(tradeoff),
        }
        assert count == len(SEEDS)
        assert accuracy[0] == pytest.approx(mean_of(runs, "accuracy", **wanted), 1e-3)
        assert delay[0] == pytest.approx(mean_of(runs, "delay_s", **wanted), abs=1)
        assert accuracy[1] <= accuracy[0] <= accuracy[2]
    means = [row[4][0] for row in table["rows"]]
    assert means == sorted(means, reverse=True)
    (heat,) = spec["charts"]["heat_accuracy"]["data"]
    (menu,) = spec["charts"]["heat_accuracy"]["layout"]["updatemenus"]
    labels = [button["label"] for button in menu["buttons"]]
    assert (heat["x"], heat["y"]) == (["1", "10", "100"], ["2", "3"])
    assert labels == ["mean over the others", "epsilon_hi=6", "epsilon_hi=10"]
    for number, tradeoff in enumerate(TRADEOFFS):
        for line, clip in enumerate(CLIPS):
            both = {"schedule__tradeoff": tradeoff, "training__clip_norm": clip}
            whole = mean_of(runs, "accuracy", **both)
            assert heat["z"][line][number] == pytest.approx(whole, rel=1e-3)
            for button in menu["buttons"][1:]:
                budget = float(button["label"].partition("=")[2])
                part = mean_of(runs, "accuracy", **both, privacy__epsilon_hi=budget)
                cells = button["args"][0]["z"][0]
                assert cells[line][number] == pytest.approx(part, rel=1e-3)


def test_charts_are_valid_and_end_where_the_shortest_seed_does(swept):
    root, _ = swept
    spec = spec_of(root / "out")
    assert set(spec["charts"]) == {
        *(f"heat_{name}" for name in ("accuracy", "best_accuracy", "delay")),
        "heat_epsilon_max",
        *(set(group_charts.CHARTS) - {"accuracy_averaged"}),
    }
    for chart in spec["charts"].values():
        go.Figure(chart)  # refuses unknown names and bad values
    lines = spec["charts"]["accuracy_rounds"]["data"]
    assert sum(line["meta"]["band"] for line in lines) == len(lines) // 2 == 12
    for line in lines:
        assert max(line["x"]) == 4  # seeds have 4, 5 and 6 rounds


def test_curves_are_an_even_choice_and_tables_show_all(tmp_path):
    assert group_charts.choose(5, 36) == [0, 1, 2, 3, 4]
    chosen = group_charts.choose(500, 36)
    assert (chosen[0], chosen[-1], len(chosen)) == (0, 499, 36)
    assert set(np.diff(chosen)) <= {14, 15}
    curves = {"round": [1, 2], "accuracy": [0.1, 0.5]}
    runs = [
        make_run(
            number % 2,
            {"accuracy": number / 1000, "rounds": 2},
            curves,
            training__clip_norm=float(number // 2),
        )
        for number in range(600)
    ]
    page = group_page.write_report(runs, tmp_path)
    spec = spec_of(tmp_path)
    assert len(spec["table"]["rows"]) == 300
    assert len(spec["charts"]["accuracy_rounds"]["data"]) == 36
    assert "heat_accuracy" not in spec["charts"]  # too many values for a map
    assert page.stat().st_size < 6_000_000


def test_one_axis_no_axis_and_runs_without_noise(tmp_path):
    runs = [
        make_run(seed, {"accuracy": 0.5, "rounds": 1}, {"round": [1]},
                 privacy__noise=False, training__clip_norm=clip)
        for seed in (0, 1) for clip in (1.0, 2.0)
    ]  # fmt: skip
    maps = heat_maps.heat_maps(groups.group_runs(runs))
    assert list(maps) == ["heat_accuracy"]
    assert maps["heat_accuracy"].choices["all"].tolist() == [[0.5, 0.5]]
    assert heat_maps.heat_maps(groups.group_runs(runs[::2])) == {}
    group_page.write_report(runs, tmp_path)
    assert [row[4] for row in spec_of(tmp_path)["table"]["rows"]] == ["not private"] * 2
    text = group_page.write_report(runs[::2], tmp_path).read_text(encoding="utf-8")
    assert "not private: no noise is added" in text
    with pytest.raises(InputError, match="at least one recorded run"):
        group_page.write_report([], tmp_path)


def test_unfinished_runs_alone_are_shown_as_such(tmp_path):
    write_run(tmp_path / "first", done=False)
    for number in range(25):
        shutil.copytree(tmp_path / "first", tmp_path / f"run{number}")
    done = call_program("experiments.report", tmp_path, f"--out={tmp_path / 'out'}")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "26 are unfinished, which is all there is" in text
