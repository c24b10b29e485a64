"""Does `experiments.tune` search what it says, go on, and never see test images?"""

import json

import numpy as np
import pandas as pd
import pytest

from dpsparfl_jax import records
from dpsparfl_jax.errors import InputError
from experiments import search
from tests import toy
from tests.commands import assert_refused, call_program
from tests.experiments.small_runs import SMALL

SETTINGS = tuple(flag for flag in SMALL if not flag.startswith("--length.rounds"))
SPACE = "--search=training.learning_rate=0.01..0.3;server.averaging=ema,tail"
IDLE = "--data.dirichlet_alpha=1"  # their partition does not ask for it
FLAGS = (SPACE, "--trials=4", "--rounds=1,2", "--kept=0.5", IDLE)


def tune(out, *flags):
    return call_program("experiments.tune", f"--out={out}", *SETTINGS, *flags)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    out = tmp_path_factory.mktemp("tune")
    cache = f"--perf.cache_dir={toy.curves()}"
    return out, cache, tune(out, *FLAGS, cache)


@pytest.mark.slow
def test_the_better_half_goes_on_and_the_best_is_told(tuned):
    out, _, done = tuned
    assert done.returncode == 0, done.stderr
    assert "data.dirichlet_alpha has no effect with data.partition=iid." in done.stderr
    runs = {run.path.name: run for run in records.find_runs([out / "rung1"])}
    assert sorted(runs) == [f"trial{n:03d}" for n in range(4)]
    scores = {
        name: run.rounds["accuracy_averaged"].iloc[-1] for name, run in runs.items()
    }
    longer = {run.path.name for run in records.find_runs([out / "rung2"])}
    assert longer == set(sorted(scores, key=scores.get, reverse=True)[:2])
    table = pd.read_csv(out / "tune.csv")
    assert table["rung"].tolist() == [2, 2, 1, 1, 1, 1]
    best = table.iloc[0]
    assert best["accuracy"] == table[table["rung"] == 2]["accuracy"].max()
    assert f"Best: trial {best['trial']}" in done.stdout
    flags = (out / "best.flags").read_text()
    assert f"--training.learning_rate={best['training.learning_rate']:g}" in flags
    assert (out / "tune.png").stat().st_size > 5000


@pytest.mark.slow
def test_trials_are_judged_by_validation_images(tuned):
    out, _, _ = tuned
    for run in records.find_runs([out]):
        assert run.settings.length.eval_on == "validation"
        assert json.loads((run.path / "manifest.json").read_text())["warnings"]


@pytest.mark.slow
def test_the_same_command_trains_nothing_again(tuned):
    out, cache, first = tuned
    made = {path: path.stat().st_mtime_ns for path in out.rglob("rounds.jsonl")}
    again = tune(out, *FLAGS, cache)
    assert again.returncode == 0, again.stderr
    assert {p: p.stat().st_mtime_ns for p in out.rglob("rounds.jsonl")} == made
    assert again.stdout.splitlines()[-1] == first.stdout.splitlines()[-1]


@pytest.mark.slow
def test_the_best_flags_are_a_flagfile(tuned, tmp_path):
    out, cache, _ = tuned
    done = call_program(
        "experiments.run",
        f"--flagfile={out / 'best.flags'}",
        f"--out={tmp_path / 'best'}",
        *SETTINGS,
        "--schedule.policy=random",
        "--length.rounds=1",
        cache,
    )
    assert done.returncode == 0, done.stderr
    (run,) = records.find_runs([tmp_path / "best"])
    assert run.settings.server.averaging in ("ema", "tail")


def test_draws_cover_their_ranges_evenly():
    space = search.parse(
        "training.clip_norm=0.1..10;training.local_steps=5..50;server.rescale=true,false"
    )
    drawn = search.draw(space, 400, seed=3)
    clips = np.log10([float(one["training.clip_norm"]) for one in drawn])
    # Uniform on [-1, 1]: the largest of 20 bins' deviations, at 1e-4 by Hoeffding.
    assert np.all((clips >= -1) & (clips <= 1))
    ranks = np.sort(clips)
    gap = np.max(np.abs(ranks - np.linspace(-1, 1, 400))) / 2
    assert gap < np.sqrt(np.log(2 / 1e-4) / 800) + 1 / 400  # Massart
    steps = [one["training.local_steps"] for one in drawn]
    assert all(5 <= int(step) <= 50 for step in steps)
    assert {one["server.rescale"] for one in drawn} == {"true", "false"}
    assert search.draw(space, 10, seed=3) == drawn[:10]
    assert search.draw(space, 10, seed=4) != drawn[:10]


def test_searched_values_may_have_commas():
    (space,) = search.parse("data.group_sizes=[300,600],[100,900]")
    assert space.values == ("300,600", "100,900")


def test_who_goes_on():
    assert search.best({0: 0.1, 1: 0.5, 2: 0.5, 3: 0.2}, 0.5) == [1, 2]
    assert search.best({4: 0.1}, 0.0) == [4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is nothing to search"),
        ("training.clip_norm", "is not of the form"),
        ("training.clip=1..2", "--search: unknown setting"),
        ("training.clip_norm=2..1", "is an empty range"),
        ("training.clip_norm=1,x", "--search: 'x' is no float"),
        ("training.clip_norm=1..2;training.clip_norm=3,4", "or is twice"),
        ("seed=1,2", "no setting to search"),
    ],
)
def test_bad_spaces(text, message):
    with pytest.raises(InputError, match=message):
        search.parse(text)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "there is nothing to search"),
        ((SPACE, "--rounds=4,2"), "every rung must be longer"),
        ((SPACE, "--rounds=a"), "is not of the form 10,40"),
        ((SPACE, "--length.eval_on=test"), "what tuning sets itself"),
        ((SPACE, "--length.rounds=3"), "what tuning sets itself"),
        (("--search=training.clip_norm=-1..2",), "clip_norm must be above 0"),
    ],
)
def test_bad_flags_are_refused_before_anything_is_made(flags, message, tmp_path):
    done = tune(tmp_path / "out", *flags)
    assert_refused(done, message)
    assert not (tmp_path / "out").exists()
