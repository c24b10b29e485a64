"""Do stopped, killed and damaged runs go on to the same bits, or not at all?"""

import errno
import json
import os
import shutil

import numpy as np
import pytest

from benchmarks import run_facts
from dpsparfl_jax import records
from dpsparfl_jax.errors import InputError, StorageError
from dpsparfl_jax.planning import schedule as schedule_lib
from dpsparfl_jax.runner import checkpoint
from dpsparfl_jax.runner.run import Run
from dpsparfl_jax.types import ServerState
from tests import toy
from tests.runner.runs import RUNS, Log, run, settings, unfinished


@pytest.mark.parametrize(
    "stop_after",
    [
        pytest.param(1, marks=pytest.mark.slow),
        pytest.param(2, marks=pytest.mark.slow),
        3,
        pytest.param(5, marks=pytest.mark.slow),
    ],
)
def test_a_stopped_batch_goes_on_to_the_same_bits(whole, tmp_path, stop_after):
    outcome, _ = run(tmp_path, *RUNS, log=Log(stop_after))
    assert outcome.stopped
    assert not outcome.failed
    with pytest.raises(InputError, match="unfinished run: resume it, or choose"):
        run(tmp_path, *RUNS)
    outcome, log = run(tmp_path, *RUNS, resume=True)
    assert not outcome.stopped
    # The first question comes before the batch, the second before its first round.
    assert ("going on after round" in log.text) == (stop_after > 1)
    for name in ("p0", "p1", "p2"):
        assert run_facts.facts(tmp_path / name) == run_facts.facts(whole / name)


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
        assert run_facts.facts(tmp_path / "x" / name) == run_facts.facts(whole / name)


def test_killed_between_the_last_checkpoint_and_done(whole, tmp_path):
    folder = unfinished(whole, tmp_path)
    outcome, _ = run(tmp_path, RUNS[0], resume=True)
    assert outcome.finished == ["p0"]
    assert run_facts.facts(folder) == run_facts.facts(whole / "p0")


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
    assert run_facts.facts(folder) == run_facts.facts(whole / "p0")


def _size(path):
    return path.stat().st_size


def test_a_checkpoint_whose_checksum_was_not_written_yet_is_used(whole, tmp_path):
    folder = unfinished(whole, tmp_path)
    (folder / checkpoint.FOLDER / "6.sha256").unlink()
    outcome, log = run(tmp_path, RUNS[0], resume=True)
    assert outcome.finished == ["p0"]
    assert "damaged" not in log.text
    assert run_facts.facts(folder) == run_facts.facts(whole / "p0")
    kept = {file.name for file in (folder / checkpoint.FOLDER).glob("*.sha256")}
    assert kept <= {"4.sha256", "6.sha256"}


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
    assert run_facts.facts(folder) == run_facts.facts(whole / "p0")


def test_a_damaged_row_is_named_and_nothing_is_lost(whole, tmp_path):
    folder = unfinished(whole, tmp_path)
    lines = (folder / records.ROUNDS).read_text().splitlines(keepends=True)
    damaged = lines[0] + '{"round": garbage\n' + "".join(lines[2:])
    (folder / records.ROUNDS).write_text(damaged)
    _, log = run(tmp_path, RUNS[0], resume=True)
    assert "line 2 of rounds.jsonl is damaged (all is kept in" in log.text
    assert (folder / "rounds.jsonl.damaged").read_text() == damaged
    assert run_facts.facts(folder) == run_facts.facts(whole / "p0")
    # A finished run is never told shorter than it was.
    (folder / records.ROUNDS).write_text(damaged)
    with pytest.raises(InputError, match=r"finished run of 6 rounds, but rounds.jsonl"):
        records.load_run(folder)
    shutil.copy(whole / "p0" / records.ROUNDS, folder)
    (folder / records.CLIENTS).unlink()
    with pytest.raises(InputError, match=r"or clients.csv is missing"):
        records.load_run(folder)
    (folder / records.DONE).unlink()  # as that sentence advises
    run(tmp_path, RUNS[0], resume=True)
    assert run_facts.facts(folder) == run_facts.facts(whole / "p0")


def test_rows_that_changed_are_made_anew(whole, tmp_path):
    """They are legal, so only the checkpoints know: both do, so all begins anew."""
    folder = unfinished(whole, tmp_path)
    lines = (folder / records.ROUNDS).read_text().splitlines(keepends=True)
    row = json.loads(lines[1])
    lines[1] = json.dumps(row | {"round_delay_s": 99.0}) + "\n"
    (folder / records.ROUNDS).write_text("".join(lines))
    _, log = run(tmp_path, RUNS[0], resume=True)
    assert "rows of rounds.jsonl up to round 6 are damaged" in log.text
    assert "up to round 4 are damaged" in log.text
    assert "going on from the start" in log.text
    assert (folder / "rounds.jsonl.damaged").read_text() == "".join(lines)
    assert run_facts.facts(folder) == run_facts.facts(whole / "p0")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda table: table[:-3], "it ends within a line"),
        (lambda table: table[: table[:-1].rindex(b"\n") + 1], "missing or cut off"),
        (lambda table: table.replace(b"0,", b"1,", 1), ""),  # a number like others
    ],
)
def test_a_damaged_table_of_clients_is_refused_or_made_anew(
    whole, tmp_path, damage, told
):
    folder = unfinished(whole, tmp_path)
    (folder / records.CLIENTS).write_bytes(
        damage((whole / "p0" / records.CLIENTS).read_bytes())
    )
    if told:
        shutil.copy(whole / "p0" / records.DONE, folder)
        with pytest.raises(InputError, match=told):
            records.load_run(folder)
        (folder / records.DONE).unlink()
    _, log = run(tmp_path, RUNS[0], resume=True)
    assert "clients.csv is damaged; going on from round 4" in log.text
    assert run_facts.facts(folder) == run_facts.facts(whole / "p0")


def test_without_any_good_checkpoint_a_run_starts_again(whole, tmp_path):
    folder = unfinished(whole, tmp_path)
    shutil.rmtree(folder / checkpoint.FOLDER)
    (folder / records.SCHEDULE).write_bytes(b"junk")
    _, log = run(tmp_path, RUNS[0], resume=True)
    assert "is no schedule, or a damaged one" in log.text
    assert records.load_run(folder).schedule.num_rounds == 6  # written anew
    assert run_facts.facts(folder) == run_facts.facts(whole / "p0")


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
    assert "started with other images: restore" in outcome.failed["p0"]
    outcome, _ = run(tmp_path, settings(0, data=given), resume=True)
    assert outcome.finished == ["p0"]


def planned(each):
    return Run("other", each).outlined().planned().schedule


def test_the_schedule_of_another_run_is_refused(whole, tmp_path):
    folder = unfinished(whole, tmp_path)
    other = settings(0, privacy={"epsilon_lo": 20.0, "epsilon_hi": 30.0})
    schedule_lib.save(planned(other), folder / records.SCHEDULE)
    outcome, _ = run(tmp_path, RUNS[0], resume=True)
    assert "belongs to other clients or budgets" in outcome.failed["p0"]
    other = settings(0, schedule={"policy": "random"})
    schedule_lib.save(planned(other), folder / records.SCHEDULE)
    outcome, _ = run(tmp_path, RUNS[0], resume=True)
    assert "does not follow the run's schedule" in outcome.failed["p0"]


def test_a_resumed_run_must_have_the_same_clip_norm(whole, tmp_path):
    folder = unfinished(whole, tmp_path)
    manifest = json.loads((folder / records.MANIFEST).read_text())
    manifest["clip_norm"]["value"] *= 1 + 1e-6
    (folder / records.MANIFEST).write_text(json.dumps(manifest))
    outcome, _ = run(tmp_path, RUNS[0], resume=True)
    assert "was started with another clip norm" in outcome.failed["p0"]


def test_raw_numbers_are_recorded_for_a_whole_run_or_not_at_all(whole, tmp_path):
    unfinished(whole, tmp_path)
    quiet = settings(0, records={"private_only": True})
    outcome, _ = run(tmp_path, quiet, resume=True)
    assert "started with another records.private_only" in outcome.failed["p0"]


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
    assert run_facts.facts(tmp_path / "cut" / "p0") == run_facts.facts(
        tmp_path / "whole" / "p0"
    )


def test_a_checkpoint_without_room_is_one_sentence_and_leaves_nothing(
    tmp_path, monkeypatch
):
    """It is found out before Orbax starts, whose threads would fail at length."""

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    kept = checkpoint.Checkpoints(tmp_path)
    params = {"kernel": np.ones((3, 2), np.float32)}
    state = ServerState(params, (), params, ())
    kept.save(1, state)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StorageError, match=r"checkpoints \(No space left on device\)"):
        kept.save(2, state)
    kept.close()
    names = {path.name for path in (tmp_path / checkpoint.FOLDER).iterdir()}
    assert names == {"1", "1.sha256"}
