"""Is the index of a sweep a cache only: never wrong, never needed, never in the way?"""

import dataclasses
import json
import os
import shutil
import threading

import pytest

from dpsparfl_jax import config, config_values, records, storage
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.records import index as index_lib
from dpsparfl_jax.records import rows
from tests.report.test_report import write_run

NAMES = [f"run{number}" for number in range(index_lib.FEW + 1)]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A sweep with as many runs as get an index by being read."""
    root = tmp_path_factory.mktemp("sweep")
    for seed, name in enumerate(NAMES):
        write_run(root / name, seed=seed, num_rounds=3)
    return root


@pytest.fixture
def sweep(made, tmp_path):
    return shutil.copytree(made, tmp_path / "sweep")


def read(folder, damaged=None):
    runs = records.FoundRuns([folder]).read(damaged)
    return {run.name: dataclasses.replace(run, path=None) for run in runs}


def lines_of(folder):
    return (folder / records.INDEX).read_bytes().splitlines(keepends=True)


def test_lines_say_what_folders_say_and_are_enough(sweep, monkeypatch):
    first = read(sweep)
    assert len(lines_of(sweep)) == len(NAMES)
    run = records.load_run(sweep / "run3")
    known = first["run3"]
    assert known.manifest["config"] == run.manifest["config"]
    assert known.digest == config_values.digest(run.settings)
    assert known.private == run.private
    whole = rows.summarise(
        run.rounds.to_dict("records"), run.clients.to_dict("records")
    )
    assert known.summary == whole
    assert known.curves["round"] == [1, 2, 3]
    assert known.curves["accuracy"] == pytest.approx(run.rounds["accuracy"], rel=1e-5)
    monkeypatch.setattr(index_lib, "read_run", None)  # no folder is read any more
    assert read(sweep) == first


def test_few_runs_get_no_index_by_being_read(sweep):
    shutil.rmtree(sweep / NAMES[-1])
    read(sweep)
    read(sweep / "run0")
    assert not list(sweep.rglob(records.INDEX))


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"",
        lambda text: b"\x00\xff junk \n" * 3,
        lambda text: text[: len(text) // 2],  # within a line
        lambda text: text.replace(b'"rounds":3', b'"rounds":4'),
        lambda text: text.replace(b'"format":1', b'"format":0'),
        lambda text: text.replace(b"\n", b""),
        lambda text: text[:-40] + b"\n" + text[-40:],
        lambda text: b"[1, 2]\n{}\nnull\n" + text + text,
        lambda text: b'{"check":"00000000",\n' + text,  # a good sum of nothing
    ],
)
def test_damaged_lines_are_not_believed(sweep, damage):
    expected = read(sweep)
    file = sweep / records.INDEX
    file.write_bytes(damage(file.read_bytes()))
    assert read(sweep) == expected
    assert read(sweep) == expected  # with the lines that were added


def test_a_line_of_other_defaults_is_made_anew(sweep, monkeypatch):
    expected = read(sweep)
    monkeypatch.setattr(index_lib, "_defaults_digest", lambda: "of a later version")
    assert read(sweep) == expected
    assert len(lines_of(sweep)) == 2 * len(NAMES)


def test_changes_of_a_folder_are_noticed(sweep):
    expected = read(sweep)
    (sweep / "run1" / records.DONE).unlink()
    shutil.rmtree(sweep / "run2")
    later = records.read_rounds(sweep / "run3")[:2]
    text = "".join(json.dumps(row) + "\n" for row in later)
    storage.write_whole(sweep / "run3" / records.ROUNDS, text)
    storage.write_whole(sweep / "run3" / records.DONE, json.dumps({"rounds": 2}))
    now = read(sweep)
    assert not now["run1"].done
    assert now["run1"].summary["accuracy"] == expected["run1"].summary["accuracy"]
    assert set(now) == set(NAMES) - {"run2"}
    assert (now["run3"].done, now["run3"].summary["rounds"]) == (True, 2)
    assert now["run4"] == expected["run4"]


def test_only_the_same_settings_are_known_as_finished(sweep):
    read(sweep)
    index, same = records.Index(sweep), config.RunConfig(seed=5)
    assert index.has_finished("run5", same)
    assert index.has_finished(
        "run5", dataclasses.replace(same, perf=config.PerfConfig(checkpoint_every=7))
    )
    assert not index.has_finished("run5", config.RunConfig(seed=6))
    assert not index.has_finished("run", same)
    os.utime(sweep / "run5" / records.DONE)
    assert not index.has_finished("run5", same)


def test_writers_at_once_lose_nothing(made, tmp_path):
    for name in NAMES:
        (tmp_path / name).symlink_to(made / name)
    (tmp_path / records.INDEX).write_bytes(b'{"check":"0')  # a writer was killed

    def write():
        index = records.Index(tmp_path)
        for name in NAMES:
            index.read(name)

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    index = records.Index(tmp_path)
    assert all(index.find(name) is not None for name in NAMES)
    assert lines_of(tmp_path)[0] == b'{"check":"0\n'


def test_a_folder_that_cannot_be_written_is_read(sweep, monkeypatch):
    (sweep / records.INDEX).mkdir()  # nobody can write or read this as a file
    assert set(read(sweep)) == set(NAMES)
    (sweep / records.INDEX).rmdir()

    def refuse(path, line):
        raise PermissionError(13, "Read-only file system")

    monkeypatch.setattr(index_lib, "_append", refuse)
    assert set(read(sweep)) == set(NAMES)
    assert not (sweep / records.INDEX).exists()


def test_damaged_runs_are_told_of(sweep):
    (sweep / "run7" / records.MANIFEST).write_text("{")
    with pytest.raises(InputError, match="is no manifest of a run"):
        read(sweep)
    told = []
    assert set(read(sweep, told.append)) == set(NAMES) - {"run7"}
    assert len(told) == 1
    with pytest.raises(InputError, match="there is no recorded run"):
        read(sweep / "run7" / "below")


@pytest.mark.parametrize("count", [0, 1, 7, 48, 49, 97, 1000])
def test_thinned_curves_keep_both_ends_and_share_rounds(count):
    def told(number):
        return index_lib.thin(
            [{"round": n, "accuracy": n / 7} for n in range(1, number + 1)]
        ).get("round", [])

    kept = told(count)
    assert len(kept) <= 50
    assert [*kept[:1], *kept[-1:]] == ([1, count] if count else [])
    longer = set(told(4 * count))
    assert len(longer & set(kept)) >= len([n for n in longer if n <= count]) - 1


def test_rounds_without_evaluation_are_left_out():
    table = [{"round": n, "accuracy": 0.5 if n % 3 == 0 else None} for n in range(1, 8)]
    assert index_lib.thin(table) == {"round": [3, 6], "accuracy": [0.5, 0.5]}
    unknown = index_lib.thin([{"round": 1, "accuracy": None, "loss": 2.0}])
    assert unknown == {"round": [1], "loss": [2]}
