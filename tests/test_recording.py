"""Are runs recorded whole, resumed to the bit, and never mixed up?"""

import json
import os
import pathlib
import shutil

import jax
import numpy as np
import pandas as pd
import pytest

from benchmarks import same
from dpsparfl_jax import records
from dpsparfl_jax import schedule as schedule_lib
from dpsparfl_jax.data import sources
from dpsparfl_jax.errors import InputError, StorageError
from dpsparfl_jax.recording import campaign, checkpoint, points, recorder
from dpsparfl_jax.recording.points import Hooks, Point
from dpsparfl_jax.scheduling import base
from dpsparfl_jax.simulation import inputs
from tests import toy

EVERY = 2


def settings(seed=0, **changes):
    perf = {"checkpoint_every": EVERY, **changes.pop("perf", {})}
    return toy.settings(seed, perf=perf, **changes)


class Log:
    """Hooks for tests: a clock that ticks, what was said, a stop after some calls."""

    def __init__(self, stop_after=10**9):
        self.said, self.ticks, self.calls, self.stop_after = [], 0.0, 0, stop_after

    def clock(self):
        self.ticks += 1.0
        return self.ticks

    def stop(self):
        self.calls += 1
        return self.calls > self.stop_after

    @property
    def hooks(self):
        return Hooks(self.clock, self.said.append, self.stop)

    @property
    def text(self):
        return "\n".join(self.said)


def run(folder, *points, resume=False, log=None):
    log = log or Log()
    made = [Point(f"p{i}", each, folder / f"p{i}") for i, each in enumerate(points)]
    return campaign.run_points(made, log.hooks, resume=resume), log


RUNS = (settings(0), settings(1, run={"rounds": 5}), settings(2, run={"rounds": 3}))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Three runs in one batch, never interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    outcome, _ = run(folder, *RUNS)
    assert outcome.finished == ["p0", "p1", "p2"]
    return folder


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


def test_finished_points_are_skipped_and_left_alone(whole):
    before = {p: p.stat().st_mtime_ns for p in whole.rglob("*") if p.is_file()}
    outcome, log = run(whole, *RUNS)
    assert outcome.skipped == ["p0", "p1", "p2"]
    assert outcome.finished == []
    assert log.said == []
    assert before == {p: p.stat().st_mtime_ns for p in whole.rglob("*") if p.is_file()}


@pytest.mark.parametrize("stop_after", [1, 2, 3, 5])
def test_a_stopped_batch_goes_on_to_the_same_bits(whole, tmp_path, stop_after):
    outcome, _ = run(tmp_path, *RUNS, log=Log(stop_after))
    assert outcome.stopped
    assert not outcome.failed
    with pytest.raises(InputError, match="unfinished run: add --resume"):
        run(tmp_path, *RUNS)
    outcome, log = run(tmp_path, *RUNS, resume=True)
    assert not outcome.stopped
    # The first question comes before the batch, the second before its first round.
    assert ("going on after round" in log.text) == (stop_after > 1)
    for name in ("p0", "p1", "p2"):
        assert same.facts(tmp_path / name) == same.facts(whole / name)


def test_runs_at_different_rounds_go_on_together(whole, tmp_path):
    """One lost everything, one lost its newest checkpoint, one is finished."""
    shutil.copytree(whole, tmp_path / "x")
    shutil.rmtree(tmp_path / "x" / "p0")
    lost = tmp_path / "x" / "p1"
    (lost / records.DONE).unlink()
    (lost / records.CLIENTS).unlink()
    shutil.rmtree(lost / checkpoint.FOLDER / "5")
    outcome, log = run(tmp_path / "x", *RUNS, resume=True)
    assert outcome.finished == ["p0", "p1"]
    assert outcome.skipped == ["p2"]
    assert "p1: going on after round 4 of 5" in log.text
    for name in ("p0", "p1", "p2"):
        assert same.facts(tmp_path / "x" / name) == same.facts(whole / name)


def unfinished(whole, tmp_path):
    """p0 as if it had been killed just before DONE."""
    folder = tmp_path / "p0"
    shutil.copytree(whole / "p0", folder)
    (folder / records.DONE).unlink()
    return folder


def test_killed_between_the_last_checkpoint_and_done(whole, tmp_path):
    folder = unfinished(whole, tmp_path)
    outcome, _ = run(tmp_path, RUNS[0], resume=True)
    assert outcome.finished == ["p0"]
    assert same.facts(folder) == same.facts(whole / "p0")


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_a_damaged_newest_checkpoint_falls_back_and_says_so(whole, tmp_path, damage):
    folder = unfinished(whole, tmp_path)
    newest = folder / checkpoint.FOLDER / "6"
    files = sorted((f for f in newest.rglob("*") if f.is_file()), key=_size)
    biggest = files[-1]
    if damage == "flip":
        content = bytearray(biggest.read_bytes())
        for place in range(len(content) // 4, len(content), 97):
            content[place] ^= 0x55
        biggest.write_bytes(content)
    elif damage == "truncate":
        for file in files:
            file.write_bytes(file.read_bytes()[: _size(file) // 2])
    else:
        biggest.unlink()
    outcome, log = run(tmp_path, RUNS[0], resume=True)
    assert outcome.finished == ["p0"]
    assert "checkpoint 6 is damaged" in log.text
    assert "going on from round 4" in log.text
    assert same.facts(folder) == same.facts(whole / "p0")


def _size(path):
    return path.stat().st_size


def test_other_conditions_are_named(whole, tmp_path):
    folder = unfinished(whole, tmp_path)
    manifest = json.loads((folder / records.MANIFEST).read_text())
    manifest["versions"]["jax"] = "0.0.1"
    (folder / records.MANIFEST).write_text(json.dumps(manifest))
    changed = settings(0, perf={"padded_sizes": 1})
    _, log = run(tmp_path, changed, resume=True)
    assert "goes on under other conditions (versions.jax was '0.0.1', is" in log.text
    assert "perf.padded_sizes was 2, is 1" in log.text


def test_a_checkpoint_ahead_of_the_rows_is_not_used(whole, tmp_path):
    folder = unfinished(whole, tmp_path)
    lines = (folder / records.ROUNDS).read_text().splitlines(keepends=True)
    (folder / records.ROUNDS).write_text("".join(lines[:4]) + lines[4][:30])
    _, log = run(tmp_path, RUNS[0], resume=True)
    assert "checkpoint 6 is ahead of the 4 recorded rounds" in log.text
    assert same.facts(folder) == same.facts(whole / "p0")


def test_a_damaged_row_is_named_and_nothing_is_lost(whole, tmp_path):
    folder = unfinished(whole, tmp_path)
    lines = (folder / records.ROUNDS).read_text().splitlines(keepends=True)
    damaged = lines[0] + '{"round": garbage\n' + "".join(lines[2:])
    (folder / records.ROUNDS).write_text(damaged)
    _, log = run(tmp_path, RUNS[0], resume=True)
    assert "line 2 of rounds.jsonl is damaged (all is kept in" in log.text
    assert (folder / "rounds.jsonl.damaged").read_text() == damaged
    assert same.facts(folder) == same.facts(whole / "p0")
    # A finished run is never told shorter than it was.
    (folder / records.ROUNDS).write_text(damaged)
    with pytest.raises(InputError, match=r"finished run of 6 rounds, but rounds.jsonl"):
        records.load_run(folder)
    shutil.copy(whole / "p0" / records.ROUNDS, folder)
    (folder / records.CLIENTS).unlink()
    with pytest.raises(InputError, match=r"or clients.csv is missing"):
        records.load_run(folder)


def test_without_any_good_checkpoint_a_run_starts_again(whole, tmp_path):
    folder = unfinished(whole, tmp_path)
    shutil.rmtree(folder / checkpoint.FOLDER)
    (folder / records.SCHEDULE).write_bytes(b"junk")
    _, log = run(tmp_path, RUNS[0], resume=True)
    assert "is no schedule, or a damaged one" in log.text
    assert records.load_run(folder).schedule.num_rounds == 6  # written anew
    assert same.facts(folder) == same.facts(whole / "p0")


def lists(tmp_path, size):
    """A partition file of six clients with `size` images each."""
    path = tmp_path / "lists.json"
    train = np.arange(6 * size).reshape(6, size).tolist()
    path.write_text(json.dumps({"train": train}))
    return str(path)


def test_a_resumed_run_must_have_the_same_images_and_owners(tmp_path):
    given = {"partition": "file", "partition_file": lists(tmp_path, 60)}
    outcome, _ = run(tmp_path, settings(0, data=given), log=Log(3))
    assert outcome.stopped == ["p0"]
    # Other owners: fewer images each, so that less could be afforded.
    lists(tmp_path, 40)
    outcome, _ = run(tmp_path, settings(0, data=given), resume=True)
    assert "belongs to other clients or budgets" in outcome.failed["p0"]
    # As many images, but others.
    path = tmp_path / "lists.json"
    train = (np.arange(360).reshape(6, 60) + 1).tolist()
    path.write_text(json.dumps({"train": train}))
    outcome, _ = run(tmp_path, settings(0, data=given), resume=True)
    assert "started with other owners of images" in outcome.failed["p0"]
    lists(tmp_path, 60)
    (tmp_path / "images").mkdir()
    toy.write(tmp_path / "images" / "toy.npz", toy.SHAPE, test=390)
    moved = settings(0, data={**given, "dir": str(tmp_path / "images")})
    outcome, _ = run(tmp_path, moved, resume=True)
    assert "started with other images of images" in outcome.failed["p0"]
    outcome, _ = run(tmp_path, settings(0, data=given), resume=True)
    assert outcome.finished == ["p0"]


def test_the_schedule_of_another_run_is_refused(whole, tmp_path):
    folder = unfinished(whole, tmp_path)
    other = settings(0, privacy={"epsilon_lo": 20.0, "epsilon_hi": 30.0})
    schedule_lib.save(inputs.plan_run(other).schedule, folder / records.SCHEDULE)
    outcome, _ = run(tmp_path, RUNS[0], resume=True)
    assert "belongs to other clients or budgets" in outcome.failed["p0"]
    other = settings(0, schedule={"policy": "random"})
    schedule_lib.save(inputs.plan_run(other).schedule, folder / records.SCHEDULE)
    outcome, _ = run(tmp_path, RUNS[0], resume=True)
    assert "does not follow the run's schedule" in outcome.failed["p0"]


def test_a_folder_taken_by_another_run_meanwhile_is_refused(tmp_path):
    """Between the first look at a folder and its lock there may be hours."""
    late = settings(0, training={"clip_norm": 9.0}, run={"rounds": 4})
    log = Log()
    point = Point("p0", late, tmp_path / "p0")
    assert not campaign.is_finished(point, resume=True)
    planned = points.plan_point(point, inputs.outline(late), log.hooks)
    run(tmp_path, settings(0, run={"rounds": 4}), log=Log(1))
    loaded = sources.load(late.data)
    images = points.Images(loaded, inputs.digest_images(loaded))
    with pytest.raises(InputError, match="holds another run"):
        recorder.Recording(planned, images, log.hooks)


def test_a_private_clip_norm_is_the_same_after_resuming(tmp_path):
    private = settings(
        0,
        privacy={"clip_calibration": "private", "clip_noise_multiplier": 2.0,
                 "epsilon_lo": 8.0, "noise_multiplier": 2.0},
    )  # fmt: skip
    run(tmp_path / "whole", private)
    run(tmp_path / "cut", private, log=Log(3))
    _, log = run(tmp_path / "cut", private, resume=True)
    assert "private 0.5-quantile" in log.text
    assert same.facts(tmp_path / "cut" / "p0") == same.facts(tmp_path / "whole" / "p0")


def test_reading_a_model_disturbs_no_writer(whole, tmp_path):
    folder = unfinished(whole, tmp_path)
    under_way = folder / checkpoint.FOLDER / "9.orbax-checkpoint-tmp"
    under_way.mkdir()
    checkpoint.load_params(folder)
    assert under_way.is_dir()


def test_a_policy_that_breaks_fails_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))

    @base.register_policy("broken")
    class Broken:
        def __init__(self, settings):
            pass

        def init(self, num_clients, num_channels):
            return 1 // 0

    outcome, _ = run(
        tmp_path,
        settings(0, schedule={"policy": "broken"}),
        settings(0, run={"rounds": 1}),
    )
    assert outcome.finished == ["p1"]
    assert outcome.failed["p0"].startswith("ZeroDivisionError: ")


def test_whatever_breaks_a_recording_is_listed(tmp_path, monkeypatch):
    real = inputs.with_data

    def breaks(known, plan, loaded):
        if known.seed == 1:
            raise RuntimeError("no luck")
        return real(known, plan, loaded)

    monkeypatch.setattr(inputs, "with_data", breaks)
    outcome, _ = run(tmp_path, *(settings(s, run={"rounds": 1}) for s in range(3)))
    assert outcome.finished == ["p0", "p2"]
    assert outcome.failed == {"p1": "RuntimeError: no luck"}


def test_another_run_in_the_folder_is_refused_with_the_difference(whole, tmp_path):
    before = same.facts(whole / "p0")
    other = settings(0, training={"clip_norm": 3.0}, privacy={"delta": 1e-4})
    with pytest.raises(
        InputError,
        match=r"holds another run \(privacy.delta was 0.001, is 0.0001; "
        r"training.clip_norm was 2.0, is 3.0\)",
    ):
        run(whole, other, resume=True)
    assert same.facts(whole / "p0") == before
    with pytest.raises(InputError, match="seed was 0, is 9"):
        run(whole, settings(9))
    # Speed, and where images lie, may change.
    elsewhere = shutil.copytree(toy.folder(), tmp_path / "images")
    moved = settings(0, perf={"eval_batch_size": 7}, data={"dir": str(elsewhere)})
    assert run(whole, moved)[0].skipped == ["p0"]


def test_foreign_folders_are_refused(whole, tmp_path):
    (tmp_path / "p0").mkdir()
    (tmp_path / "p0" / "thesis.tex").touch()
    with pytest.raises(InputError, match=r"holds other files \(thesis.tex\)"):
        run(tmp_path, RUNS[0])
    with pytest.raises(InputError, match="holds another run: choose another --out"):
        run(whole / "p0", RUNS[0])
    lost = shutil.copytree(whole, tmp_path / "lost") / "p0"
    (lost / records.MANIFEST).unlink()
    with pytest.raises(InputError, match=r"a run without its manifest.json: restore"):
        run(tmp_path / "lost", RUNS[0])
    single = Point("x", RUNS[0], whole)
    with pytest.raises(InputError, match="holds other runs in folders of their own"):
        campaign.is_finished(single, resume=True)
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "p0").touch()
    with pytest.raises(InputError, match="is a file: choose another"):
        run(tmp_path / "file", RUNS[0])


def test_a_folder_belongs_to_one_process(tmp_path):
    held = records.RunFolder(tmp_path / "p0")
    with pytest.raises(InputError, match="another process is writing to"):
        records.RunFolder(tmp_path / "p0")
    held.close()
    records.RunFolder(tmp_path / "p0").close()


def test_points_that_cannot_run_are_listed_and_the_others_run(tmp_path):
    outcome, _ = run(
        tmp_path,
        settings(0, privacy={"noise_multiplier": 0.1, "accountant": "rdp"}),
        settings(0, data={"name": "nothing"}),
        settings(0, training={"batch_size": 61.0}),
        settings(0, run={"rounds": 1}),
    )
    assert outcome.finished == ["p3"]
    assert "no client can take part even once" in outcome.failed["p0"]
    assert "nothing" in outcome.failed["p1"]
    assert "sampling rate above 1" in outcome.failed["p2"]


def test_a_batch_that_fails_is_tried_one_by_one(tmp_path, monkeypatch):
    real = recorder.Batch

    def scarce(runs):
        if len(runs) > 1 or runs[0].settings.seed == 1:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory\nat x")
        return real(runs)

    monkeypatch.setattr(recorder, "Batch", scarce)
    outcome, log = run(tmp_path, *(settings(s, run={"rounds": 1}) for s in range(3)))
    assert outcome.finished == ["p0", "p2"]
    assert outcome.failed == {
        "p1": "JaxRuntimeError: RESOURCE_EXHAUSTED: out of memory"
    }
    assert "3 runs failed together" in log.text


def test_a_full_disk_is_one_sentence_and_nothing_is_lost(whole, tmp_path, monkeypatch):
    real, calls = os.fsync, []

    def full(handle):
        calls.append(handle)
        if len(calls) > 6:
            raise OSError(28, "No space left on device")
        return real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"No space left on device\): make room"):
        run(tmp_path, RUNS[0])
    monkeypatch.undo()
    assert run(tmp_path, RUNS[0], resume=True)[0].finished == ["p0"]
    assert same.facts(tmp_path / "p0") == same.facts(whole / "p0")


def test_events_are_what_tensorboard_reads(tmp_path):
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import RecordWriter  # noqa: F401  (format's home)

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
    restored = kept.restore(other, most=100)
    kept.close()
    assert restored.params is None
    assert "model of other shapes" in restored.complaints[0]


def test_schedules_are_kept_as_they_were_planned(whole):
    found = schedule_lib.load(pathlib.Path(whole, "p0", records.SCHEDULE))
    again = inputs.plan_run(RUNS[0]).schedule
    for name, column in found._asdict().items():
        np.testing.assert_array_equal(column, getattr(again, name), err_msg=name)
