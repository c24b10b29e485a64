"""Does a dry run count what would be trained, once, and not what is finished?"""

import pytest

from experiments import presets
from experiments.paper import catalogue, dry_run, plans, sweeps, trained
from experiments.paper.protocol_sweeps import POLICIES
from tests import made_study, toy
from tests.commands import assert_refused, call_program


@pytest.fixture
def two_figures(monkeypatch):
    """Two sweeps that share our policy's run, two seeds each."""
    toys = toy.settings(length={"rounds": 0}, privacy={"accountant": "rdp"})
    monkeypatch.setitem(presets.PRESETS, "toy", presets.Preset("", toys))
    pair, alone = sweeps.Sweep("toy", POLICIES[::3]), sweeps.Sweep("toy", POLICIES[:1])
    monkeypatch.setitem(sweeps.SWEEPS, "noniid", pair)
    monkeypatch.setitem(sweeps.SWEEPS, "imbalance", alone)
    few = sweeps.Scale((0, 1), (0, 1, 2), 3, {"length.eval_every": "2"}, 1, None)
    monkeypatch.setitem(sweeps.SCALES, "few", few)
    return {name: catalogue.FIGURES[name] for name in ("noniid", "imbalance")}


def test_shared_runs_count_once_and_finished_ones_not(two_figures, tmp_path):
    left = dry_run.work_left(two_figures, tmp_path, scale="few", changes={})
    assert {name: work.runs for name, work in left.items()} == {
        "noniid": 4,
        "imbalance": 0,
    }
    assert left["noniid"].rounds == 4 * 3  # the scale's, not the schedule's
    runs = sweeps.runs_of("noniid", "few", {})
    examples = 0.0
    for run in (run for run in runs if run.trained is not None):
        schedule = plans.plan_once(run.planned, tmp_path / "runs/plans")
        training = run.trained.training
        sent = int(schedule.sends[:3].sum())
        examples += sent * training.local_steps * training.batch_size
    assert left["noniid"].examples == examples
    home = "noniid/policy=random,seed=1"
    (done,) = (run.trained for run in runs if run.home == home)
    trained.keep({home: made_study.finished(done)}, tmp_path)
    again = dry_run.work_left(two_figures, tmp_path, scale="few", changes={})
    assert again["noniid"].runs == 3
    assert again["noniid"].rounds == 9


def test_hours_are_those_of_the_rate():
    left = {"one": dry_run.Work(2, 10, 3600.0), "two": dry_run.Work(1, 5, 7200.0)}
    lines = dry_run.as_text(left, 2.0).splitlines()
    assert lines[1].split() == ["one", "2", "10", "3,600", "0.50"]
    assert lines[3].split() == ["all", "3", "15", "10,800", "1.50"]
    assert "2 examples/s" in lines[4]


def test_measured_gradients_count_with_their_images():
    run = sweeps.runs_of("bound", "quick", {})[0]
    work = dry_run._with_gradients(dry_run.Work(1, 30, 3000.0), run, "quick")
    assert (work.runs, work.rounds) == (1, 3)
    assert work.examples == 300 + 20 * 50 * 4  # of 50 images, at four models
    assert list(sweeps.measured_rounds(35, "full")) == [0, 10, 20, 30]


def test_the_command_trains_nothing(tmp_path):
    done = call_program(
        *("experiments.figures", "--figure=solver", "--scale=quick", "--dry_run"),
        f"--out={tmp_path}",
    )
    assert done.returncode == 0, done.stderr
    first, *_ = done.stdout.splitlines()[1:]
    assert first.split()[:3] == ["solver", "2", "6"]
    kept = {path.name for path in (tmp_path / "quick/runs").iterdir()}
    assert kept == {"plans"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--dry_run", "--plan_only"], "choose one of --plan_only and --dry_run."),
        (["--dry_run", "--examples_per_s=0"], "--examples_per_s must be above 0."),
        (["--dry_run", "--examples_per_s=nan"], "--examples_per_s must be above 0."),
    ],
)
def test_bad_requests_are_refused(flags, message, tmp_path):
    done = call_program("experiments.figures", *flags, f"--out={tmp_path}")
    assert_refused(done, message)
