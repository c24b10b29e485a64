"""Are runs never mixed up, and does one that fails leave the others alone?"""

import os
import shutil

import jax
import pytest

from benchmarks import run_facts
from dpsparfl_jax import records
from dpsparfl_jax.errors import InputError, StorageError
from dpsparfl_jax.registry import POLICIES
from dpsparfl_jax.runner import drive as drive_lib
from dpsparfl_jax.runner.run import Run
from tests import toy
from tests.runner.runs import RUNS, Log, run, settings, sink


def test_finished_points_are_skipped_and_left_alone(whole):
    before = {p: p.stat().st_mtime_ns for p in whole.rglob("*") if p.is_file()}
    outcome, log = run(whole, *RUNS)
    assert outcome.skipped == ["p0", "p1", "p2"]
    assert outcome.finished == []
    assert log.said == []
    assert before == {p: p.stat().st_mtime_ns for p in whole.rglob("*") if p.is_file()}


def test_another_run_in_the_folder_is_refused_with_the_difference(whole, tmp_path):
    before = run_facts.facts(whole / "p0")
    other = settings(0, training={"clip_norm": 3.0}, privacy={"delta": 1e-4})
    with pytest.raises(
        InputError,
        match=r"holds another run \(privacy.delta was 0.001, is 0.0001; "
        r"training.clip_norm was 2.0, is 3.0\)",
    ):
        run(whole, other, resume=True)
    assert run_facts.facts(whole / "p0") == before
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
    with pytest.raises(InputError, match="holds another run: choose another folder"):
        run(whole / "p0", RUNS[0])
    lost = shutil.copytree(whole, tmp_path / "lost") / "p0"
    (lost / records.MANIFEST).unlink()
    with pytest.raises(InputError, match=r"a run without its manifest.json: restore"):
        run(tmp_path / "lost", RUNS[0])
    with pytest.raises(InputError, match="holds other runs in folders of their own"):
        sink(whole, RUNS[0], Log(), resume=True)
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "p0").touch()
    with pytest.raises(InputError, match="is a file: choose another"):
        run(tmp_path / "file", RUNS[0])


def test_a_folder_taken_by_another_run_meanwhile_is_refused(tmp_path):
    """Between the first look at a folder and its lock there may be hours."""
    late = settings(0, training={"clip_norm": 9.0}, length={"rounds": 4})
    log = Log()
    folder = sink(tmp_path / "p0", late, log, resume=True)
    assert not folder.is_done
    ready = toy.prepare(late, "p0")
    run(tmp_path, settings(0, length={"rounds": 4}), log=Log(1))
    with pytest.raises(InputError, match="holds another run"):
        folder.open(ready)
    folder.close()


def test_points_that_cannot_run_are_listed_and_the_others_run(tmp_path):
    outcome, _ = run(
        tmp_path,
        settings(0, privacy={"noise_multiplier": 0.1, "accountant": "rdp"}),
        settings(0, data={"name": "nothing"}),
        settings(0, training={"batch_size": 61.0}),
        settings(0, length={"rounds": 1}),
    )
    assert outcome.finished == ["p3"]
    assert "no client can take part even once" in outcome.failed["p0"]
    assert "nothing" in outcome.failed["p1"]
    assert "sampling rate above 1" in outcome.failed["p2"]


def test_a_policy_that_breaks_fails_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(POLICIES, "_entries", dict(POLICIES._entries))

    @POLICIES.register("broken")
    class Broken:
        def __init__(self, settings):
            pass

        def init(self, num_clients, num_channels):
            return 1 // 0

    outcome, _ = run(
        tmp_path,
        settings(0, schedule={"policy": "broken"}),
        settings(0, length={"rounds": 1}),
    )
    assert outcome.finished == ["p1"]
    assert outcome.failed["p0"].startswith(
        "policy 'broken' failed in init, before the first round: ZeroDivisionError: "
    )


def test_whatever_breaks_a_recording_is_listed(tmp_path, monkeypatch):
    real = Run.with_images

    def breaks(known, images):
        if known.settings.seed == 1:
            raise RuntimeError("no luck")
        return real(known, images)

    monkeypatch.setattr(Run, "with_images", breaks)
    outcome, _ = run(tmp_path, *(settings(s, length={"rounds": 1}) for s in range(3)))
    assert outcome.finished == ["p0", "p2"]
    assert outcome.failed == {"p1": "RuntimeError: no luck"}


def test_a_batch_that_fails_is_tried_one_by_one(tmp_path, monkeypatch):
    real = drive_lib.Batch

    def scarce(runs):
        if len(runs) > 1 or runs[0].settings.seed == 1:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory\nat x")
        return real(runs)

    monkeypatch.setattr(drive_lib, "Batch", scarce)
    outcome, log = run(tmp_path, *(settings(s, length={"rounds": 1}) for s in range(3)))
    assert outcome.finished == ["p0", "p2"]
    assert outcome.failed == {
        "p1": "there is too little memory to train this (RESOURCE_EXHAUSTED: out of "
        "memory): lower training.batch_size or perf.batch_memory_mb, or choose a "
        "smaller model."
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
    assert run_facts.facts(tmp_path / "p0") == run_facts.facts(whole / "p0")
