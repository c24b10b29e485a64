"""Are TensorFlow Datasets written and read right, without TensorFlow?"""

import json
import subprocess
import sys

import numpy as np
import pytest

from dpsparfl_jax.config import DataConfig
from dpsparfl_jax.data import files, sources, tfds_sets
from dpsparfl_jax.errors import InputError
from tests.commands import ROOT


def make_sets(shape=(28, 28, 1), train=30, test=12):
    rng = np.random.default_rng(1)
    labels = np.arange(train + test) % 9
    images = rng.integers(0, 256, (train + test, *shape), np.uint8)
    parts = [images[:train], labels[:train], images[train:], labels[train:]]
    return files.join_sets(parts, "toy", "memory", classes=10)


def assert_same(got, wanted):
    for a, b in zip(
        (*got.train, *got.test), (*wanted.train, *wanted.test), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    assert got.num_classes == wanted.num_classes


@pytest.mark.parametrize(
    ("name", "shape", "version"),
    [
        ("mnist", (28, 28, 1), None),
        ("cifar10", (32, 32, 3), None),
        ("toy", (5, 4, 1), 1),
    ],
)
def test_round_trip(tmp_path, capfd, name, shape, version):
    sets = make_sets(shape)
    seen = []
    path = tfds_sets.write_tfds(sets, name, tmp_path, seen.append)
    assert len(seen) == 42
    assert path.parent == tmp_path / name
    assert (path.name == "1.0.0") == (version == 1)
    loaded = sources.load(DataConfig(name=name, tfds_dir=str(tmp_path)))
    assert_same(loaded.sets, sets)
    assert loaded.source == f"TensorFlow Datasets in {tmp_path} ({name}, array_record)"
    assert capfd.readouterr() == ("", "")
    assert [one.name for one in tmp_path.iterdir()] == [name]


def test_the_package_itself_reads_what_was_written(tmp_path):
    sets = make_sets()
    tfds_sets.write_tfds(sets, "mnist", tmp_path)
    code = (
        "import sys, numpy as np, tensorflow_datasets as tfds\n"
        f"test = tfds.data_source('mnist', split='test', data_dir={str(tmp_path)!r})\n"
        "assert 'tensorflow' not in sys.modules\n"
        "print(len(test), int(test[3]['label']), int(test[3]['image'].sum()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    wanted = [12, sets.test.labels[3], sets.test.images[3].sum(dtype=int)]
    assert done.stdout.split() == [str(one) for one in wanted]


def test_what_is_there_is_not_overwritten(tmp_path):
    tfds_sets.write_tfds(make_sets(), "toy", tmp_path)
    with pytest.raises(InputError, match=r"toy is there already: remove .*/toy/1.0.0"):
        tfds_sets.write_tfds(make_sets(), "toy", tmp_path)
    with pytest.raises(InputError, match="cannot name a set"):
        tfds_sets.write_tfds(make_sets(), "../toy", tmp_path)


def test_an_interrupted_preparation_leaves_nothing_to_load(tmp_path, bare):
    def stop(count):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tfds_sets.write_tfds(make_sets(), "mnist", tmp_path, stop)
    assert tfds_sets.prepared("mnist", tmp_path) == {}
    left = tmp_path / "mnist" / "incomplete.ABC_3.0.1"
    left.mkdir(parents=True)
    (left / "dataset_info.json").write_text('{"fileFormat": "array_record"}')
    with pytest.raises(InputError, match="has no mnist"):
        sources.load(DataConfig(name="mnist", tfds_dir=str(tmp_path)))
    tfds_sets.write_tfds(make_sets(), "mnist", tmp_path)


def test_sets_that_need_tensorflow_say_so(tmp_path, bare):
    settings = DataConfig(name="mnist", tfds_dir=str(tmp_path))
    hint = r"needs TensorFlow: pip install 'dpsparfl_jax\[tf\]' .* data\.dir"
    with pytest.raises(InputError, match=f"has no mnist, and preparing it {hint}"):
        sources.load(settings)
    folder = tmp_path / "mnist" / "3.0.1"
    folder.mkdir(parents=True)
    info = {"name": "mnist", "version": "3.0.1", "fileFormat": "tfrecord"}
    (folder / "dataset_info.json").write_text(json.dumps(info))
    with pytest.raises(InputError, match=f"has mnist only as tfrecord, which {hint}"):
        sources.load(settings)


def test_the_newest_version_is_read(tmp_path):
    for version in ("2.9.0", "2.10.0"):
        (tmp_path / "toy" / version).mkdir(parents=True)
        info = tmp_path / "toy" / version / "dataset_info.json"
        info.write_text('{"fileFormat": "array_record"}')
    found = tfds_sets.prepared("toy", tmp_path)
    assert found == {"array_record": tmp_path / "toy" / "2.10.0"}


@pytest.mark.parametrize("damage", ["features.json", "dataset_info.json", "record"])
def test_a_damaged_set_is_refused_in_one_sentence(tmp_path, damage, bare):
    path = tfds_sets.write_tfds(make_sets(), "toy", tmp_path)
    if damage == "record":
        next(path.glob("*test.array_record*")).unlink()
    else:
        (path / damage).write_text("{" if damage == "features.json" else "{}")
    with pytest.raises(InputError) as caught:
        sources.load(DataConfig(name="toy", tfds_dir=str(tmp_path)))
    assert "\n" not in str(caught.value)
