"""Do a run's files tell it whole, and are damaged ones refused?"""

import dataclasses
import json
import os
import pathlib
import shutil

import numpy as np
import pandas as pd
import pytest

from dpsparfl_jax import records
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning import schedule as schedule_lib
from dpsparfl_jax.runner import checkpoint
from dpsparfl_jax.runner.run import Run
from dpsparfl_jax.types import ServerState
from tests.commands import call_program
from tests.runner.runs import RUNS, run, settings, unfinished


def test_a_folder_tells_the_whole_run(whole):
    for number, expected in enumerate(RUNS):
        folder = whole / f"p{number}"
        found = records.load_run(folder)
        assert found.done
        assert found.settings == expected
        assert len(found.rounds) == found.manifest["planned_rounds"]
        assert found.facts["reason"] == "all rounds are done"
        assert (found.rounds["epsilon_margin"] >= 0).all()
        assert (found.rounds["device_s"] > 0).all()
        assert len(found.clients) == 6
        assert found.schedule.num_rounds == len(found.rounds)
        assert {"jax", "python", "numpy"} <= set(found.manifest["versions"])
        assert found.manifest["clip_norm"]["private"] is True
        assert not list(folder.glob("*.part"))
        assert isinstance(found.rounds, pd.DataFrame)


def test_every_line_is_strict_json(whole):
    def refuse(word):
        raise AssertionError(word)

    for line in (whole / "p0" / records.ROUNDS).read_text().splitlines():
        json.loads(line, parse_constant=refuse)


def test_events_are_what_tensorboard_reads(tmp_path):
    from tensorboardX.proto.event_pb2 import Event

    run(tmp_path, settings(0, perf={"tensorboard": True}))
    (path,) = (tmp_path / "p0").glob("events.out.tfevents.*")
    content, place, seen = path.read_bytes(), 0, {}
    while place < len(content):  # length (8), checksum (4), message, checksum (4)
        size = int.from_bytes(content[place : place + 8], "little")
        event = Event.FromString(content[place + 12 : place + 12 + size])
        for value in event.summary.value:
            seen.setdefault(value.tag, []).append((event.step, value.simple_value))
        place += 16 + size
    told = records.load_run(tmp_path / "p0").rounds
    assert [step for step, _ in seen["test/accuracy"]] == list(range(1, 7))
    np.testing.assert_allclose([v for _, v in seen["test/loss"]], told["loss"])
    assert "privacy/epsilon_max" in seen


def test_loaders_name_runs_apart_and_refuse_damage(whole, tmp_path):
    assert [r.name for r in records.find_runs([whole])] == ["p0", "p1", "p2"]
    relative = os.path.relpath(whole)
    assert len(records.find_runs([whole, relative, whole / "p1"])) == 3
    shutil.copytree(whole, tmp_path / "copy")
    names = [r.name for r in records.find_runs([whole / "p0", tmp_path / "copy"])]
    assert len(set(names)) == 4
    with pytest.raises(InputError, match="no recorded run in"):
        records.find_runs([tmp_path / "nothing"])
    for text in ("{", '{"config": {"seed": 0}}'):
        (tmp_path / "copy" / "p0" / records.MANIFEST).write_text(text)
    with pytest.raises(InputError, match="is no manifest of a run"):
        records.find_runs([tmp_path / "copy"])
    (tmp_path / "copy" / "p2" / records.CLIENTS).write_text("what,ever\n")
    with pytest.raises(InputError, match="is no table of clients"):
        records.load_run(tmp_path / "copy" / "p2")
    (tmp_path / "copy" / "p1" / records.DONE).write_text("{")
    with pytest.raises(InputError, match="is damaged"):
        records.load_run(tmp_path / "copy" / "p1")


def test_models_are_read_back_or_refused(whole, tmp_path):
    params = checkpoint.load_params(whole / "p0")
    assert params["Dense_0"]["kernel"].shape == (64, 10)
    with pytest.raises(InputError, match="there are no checkpoints"):
        checkpoint.load_params(tmp_path)
    (tmp_path / checkpoint.FOLDER / "3").mkdir(parents=True)
    with pytest.raises(InputError, match="can be used: "):
        checkpoint.load_params(tmp_path)
    other = {"Dense_0": {"kernel": np.zeros((3, 3)), "bias": np.zeros(3)}}
    kept = checkpoint.Checkpoints(whole / "p0")
    restored = kept.restore(ServerState(other, (), other), most=100)
    kept.close()
    assert restored.params is None
    assert "model or server of other shapes" in restored.complaints[0]


def test_reading_a_model_disturbs_no_writer(whole, tmp_path):
    folder = unfinished(whole, tmp_path)
    under_way = folder / checkpoint.FOLDER / "9.orbax-checkpoint-tmp"
    under_way.mkdir()
    checkpoint.load_params(folder)
    assert under_way.is_dir()


def test_schedules_are_kept_as_they_were_planned(whole):
    found = schedule_lib.load(pathlib.Path(whole, "p0", records.SCHEDULE))
    again = Run("p0", RUNS[0]).outlined().planned().schedule
    for name, column in dataclasses.asdict(found).items():
        np.testing.assert_array_equal(column, getattr(again, name), err_msg=name)


def test_a_folder_belongs_to_one_process(tmp_path):
    held = records.RunFolder(tmp_path / "p0")
    with pytest.raises(InputError, match="another process is writing to"):
        records.RunFolder(tmp_path / "p0")
    held.close()
    records.RunFolder(tmp_path / "p0").close()


def test_a_damaged_run_does_not_hide_the_others(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "runs")
    (tmp_path / "runs" / "p1" / records.MANIFEST).write_text('{"config')
    told = []
    found = records.find_runs([tmp_path / "runs"], damaged=told.append)
    assert [run.name for run in found] == ["p0", "p2"]
    assert len(told) == 1
    assert "p1/manifest.json is no manifest" in told[0]
    with pytest.raises(InputError, match=r"p1/manifest.json is no manifest"):
        records.find_runs([tmp_path / "runs"])
    with pytest.raises(InputError, match=r"p1/manifest.json is no manifest"):
        records.find_runs([tmp_path / "runs" / "p1"], damaged=told.append)
    done = call_program("experiments.report", tmp_path / "runs")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("Left out: ")
    assert "report of 2 run(s)" in done.stdout
