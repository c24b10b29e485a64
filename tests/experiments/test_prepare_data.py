"""Does the command prepare sets, and refuse what it cannot do?"""

import numpy as np
import pytest

from dpsparfl_jax.data import files, tfds_sets
from tests.commands import assert_refused, call_program, run_program
from tests.data.test_files import write_idx
from tests.data.test_sources import write


def prepare(*flags, how=call_program):
    return how("experiments.prepare_data", *flags)


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    write(folder / "toy.npz")
    write_idx(folder / "digits")
    return folder


def test_every_set_is_prepared_once(tmp_path, source):
    target = tmp_path / "tfds"
    flags = (f"--from={source}", f"--to={target}")
    done = prepare(*flags, how=run_program)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    first, second = done.stdout.splitlines()
    assert first.startswith("digits: 5 training and 3 test images from the idx files")
    assert second.startswith("toy: 4 training and 2 test images from ")
    assert second.endswith(" s")
    for name in ("toy", "digits"):
        got, _ = tfds_sets.load_tfds(name, target)
        wanted, _ = files.load_folder(name, source)
        np.testing.assert_array_equal(got.train.images, wanted.train.images)
        np.testing.assert_array_equal(got.test.labels, wanted.test.labels)
    assert_refused(prepare(*flags), "digits is there already: remove ")


def test_one_set_by_name_and_idx_files_without_one(tmp_path):
    write_idx(tmp_path / "plain")
    flags = (f"--from={tmp_path / 'plain'}", f"--to={tmp_path / 'tfds'}")
    assert_refused(prepare(*flags), "its idx files need --name")
    assert prepare(*flags, "--name=toy").returncode == 0
    assert [one.name for one in (tmp_path / "tfds").iterdir()] == ["toy"]


def test_bad_folders_are_refused(tmp_path, source):
    (tmp_path / "file").write_text("")
    to, empty = f"--to={tmp_path / 'tfds'}", tmp_path / "empty"
    empty.mkdir()
    assert_refused(prepare(to), "--from is missing")
    assert_refused(prepare(f"--from={source}"), "--to is missing")
    assert_refused(prepare(f"--from={tmp_path / 'no'}", to), "is no folder")
    assert_refused(prepare(f"--from={empty}", to), "has no set that can be named")
    assert_refused(prepare(f"--from={source}", to, "--name=other"), "but digits, toy")
    below = f"--to={tmp_path / 'file' / 'tfds'}"
    assert_refused(prepare(f"--from={source}", below), "cannot be made")
    assert_refused(
        prepare(f"--from={source}", f"--to={tmp_path / 'file'}"), "cannot be"
    )
