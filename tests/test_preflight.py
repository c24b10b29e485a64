"""Is what cannot work refused before anything is planned, with what to do?"""

import json

import numpy as np
import pytest

from dpsparfl_jax import memory, preflight
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning import planner as planner_lib
from dpsparfl_jax.runner import drive, grouping
from dpsparfl_jax.runner.run import Run
from dpsparfl_jax.runner.sinks import MemorySink
from tests import toy


def test_memory_is_that_of_the_machine_or_less():
    assert 1e8 < memory.total_bytes() < 1e15
    memory.require(1, "this", "lower it")
    with pytest.raises(
        InputError, match=r"this takes about 1,000,000 GB .*: lower it\."
    ):
        memory.require(1e15, "this", "lower it")


def test_a_container_may_have_less(monkeypatch, tmp_path):
    (tmp_path / "limit").write_text("5000\n")
    (tmp_path / "none").write_text("max\n")
    names = ("limit", "none", "not there")
    monkeypatch.setattr(memory, "_LIMITS", [str(tmp_path / name) for name in names])
    assert memory.total_bytes() == 5000


@pytest.mark.parametrize(
    "changes",
    [
        {"data": {"num_clients": 10**8}},
        {"wireless": {"num_channels": 10**9}},
        {"data": {"num_clients": 10**5}, "wireless": {"num_channels": 10**6}},
    ],
)
def test_cells_too_large_to_plan_are_refused_by_an_estimate(changes):
    settings = toy.settings(**changes)
    with pytest.raises(
        InputError, match=r"takes about [\d,]+ GB .* lower data\.num_cl"
    ):
        preflight.check(settings)
    with pytest.raises(InputError, match=r"takes about [\d,]+ GB"):
        Run("run", settings).outlined()


def test_schedules_too_long_to_keep_are_refused(monkeypatch):
    run = Run("run", toy.settings(length={"rounds": 0})).outlined()
    assert run.planned().schedule.num_rounds > 0
    monkeypatch.setattr(memory, "total_bytes", lambda: 1000.0)
    monkeypatch.setattr(memory, "_CLIENT", 0)
    with pytest.raises(InputError, match=r"a schedule of .* set length\.rounds"):
        run.planned()


def test_models_too_large_to_train_are_refused(monkeypatch):
    run = Run("run", toy.settings()).outlined()
    grouping.check_memory(run)
    monkeypatch.setattr(memory, "total_bytes", lambda: 10_000.0)
    with pytest.raises(InputError, match=r"training 650 parameters for 6 clients"):
        grouping.check_memory(run)


def write_split(tmp_path, lists):
    path = tmp_path / "split.json"
    path.write_text(json.dumps(lists))
    return {"partition": "file", "partition_file": str(path)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"name": "other"}}, "neither other.npz nor the four idx files"),
        ({"data": {"dir": "/nowhere"}}, "no folder /nowhere"),
        ({"data": {"train_examples": 201}}, "ask for 1206 training images"),
        ({"data": {"test_examples": 67}}, "ask for 402 test images"),
        (
            {"data": {"train_examples": 190}, "length": {"eval_on": "validation"}},
            "validation needs 120 training images that no client owns",
        ),
        (
            {"data": {"partition": "imbalanced", "num_clients": 5}},
            "must be a multiple of the 3 groups",
        ),
        ({"training": {"batch_size": 61}}, "exceeds the smallest client's 60"),
        ({"training": {"batch_size": 1e-9}}, "raise the batch size"),
    ],
)
def test_images_that_do_not_suffice_are_refused_before_planning(
    monkeypatch, changes, message
):
    settings = toy.settings(**changes)
    with pytest.raises(InputError, match=message):
        preflight.check(settings)

    def plan(self, *arguments):
        raise AssertionError("was planned")

    monkeypatch.setattr(Run, "planned", plan)
    hooks = drive.Hooks(say=print, warn=print, progress=False)
    outcome = drive.drive([Run("run", settings)], [MemorySink()], hooks)
    with pytest.raises(InputError, match=message):
        raise outcome.failed["run"]


def test_lists_of_a_file_are_checked_before_planning(tmp_path):
    lists = [[10 * n + k for k in range(10)] for n in range(6)]
    preflight.check(toy.settings(data=write_split(tmp_path, {"train": lists})))
    lists[5] = [0, *range(1190, 1201)]
    for last, message in ((lists[5], "1200"), ([0, *range(60, 66)], "taken")):
        split = {"train": [*lists[:5], last]}
        with pytest.raises(InputError, match=message):
            preflight.check(toy.settings(data=write_split(tmp_path, split)))


def test_good_settings_pass(tmp_path):
    for changes in ({}, {"data": {"partition": "dirichlet"}}, {"data": {"dir": ""}}):
        name = {"name": "glyphs"} if changes.get("data", {}).get("dir") == "" else {}
        data = {**changes.get("data", {}), **name}
        preflight.check(toy.settings(data=data))


def test_runs_without_an_end_are_refused():
    endless = toy.settings(privacy={"noise": False}, length={"rounds": 0})
    with pytest.raises(InputError, match=r"no budget ends this run: .* 2000 times"):
        Run("run", endless).outlined().planned()
    tiny = toy.settings(training={"batch_size": 1e-3}, length={"rounds": 0})
    with pytest.raises(InputError, match=r"set length\.rounds, or lower privacy\.max"):
        Run("run", tiny).outlined().planned()
    ended = toy.settings(
        privacy={"noise": False, "max_participations": 3}, length={"rounds": 0}
    )
    assert Run("run", ended).outlined().planned().schedule.num_rounds == 9


def test_sentences_on_what_cannot_be_reached():
    def warning(**schedule):
        return " ".join(
            Run("run", toy.settings(schedule=schedule))
            .outlined()
            .planned()
            .plan.warnings
        )

    assert "target of 0.0001 s cannot be met" in warning(delay_target_s=1e-4)
    assert "No client can send" in warning(energy_budget_j=1e-12)
    assert not warning()


def test_nothing_of_a_plan_is_infinite_at_the_ends_of_the_bounds():
    """What is recorded must be JSON."""
    for radio in (
        {"max_power_dbm": 100.0},
        {"max_power_dbm": -200.0},
        {"noise_dbm": -300.0},
        {"bandwidth_hz": 1e12},
        {"min_distance_m": 1e-30},
        {"cycles_per_sample": 1e-30},
        {"cpu_high_hz": 1e18},
    ):
        settings = toy.settings(wireless=radio, length={"rounds": 2})
        schedule = Run("run", settings).outlined().planned().schedule
        for name in ("delay_s", "upload_j", "power_w", "round_delay_s", "value"):
            assert np.isfinite(getattr(schedule, name)).all(), (radio, name)


@pytest.mark.parametrize(
    "radio",
    [
        {"noise_dbm": 100.0},
        {"ap_power_dbm": -200.0},
        {"downlink_gain": 1e-39},
        {"bandwidth_hz": 1e-30},
        {"area_m": 1e9},
        {"cycles_per_sample": 1e18},
    ],
)
def test_rounds_that_take_for_ever_are_refused(radio):
    settings = toy.settings(wireless=radio, length={"rounds": 2})
    with pytest.raises(InputError, match=r"the fastest client takes .* s to receive"):
        Run("run", settings).outlined().planned()


def test_planning_alone_needs_no_images():
    settings = toy.settings(data={"name": "mnist", "dir": "", "tfds_dir": "/nowhere"})
    run = Run("run", settings).outlined()
    assert planner_lib.plan(run.make_planner(run.planned().plan.ledger)).num_rounds
