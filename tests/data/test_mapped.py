"""Are large arrays mapped, equal to what reading gives, and damage refused?"""

import numpy as np
import pytest

from dpsparfl_jax.config import DataConfig
from dpsparfl_jax.data import files, mapped, sources
from dpsparfl_jax.errors import InputError
from tests import toy


@pytest.fixture
def folder(tmp_path, monkeypatch):
    toy.write(tmp_path / "toy.npz", toy.SHAPE, train=60, test=20)
    monkeypatch.setattr(mapped, "LARGE", 100)
    return tmp_path


def is_mapped(array):
    while array is not None and not isinstance(array, np.memmap):
        array = array.base
    return array is not None


def test_stored_arrays_are_mapped_and_packed_ones_are_read(folder):
    arrays = dict(np.load(folder / "toy.npz"))
    np.savez_compressed(folder / "packed.npz", **arrays)
    for name, maps in (("toy", True), ("packed", False)):
        sets = files.load_npz(name, folder)
        assert is_mapped(sets.train.images) is maps
        np.testing.assert_array_equal(sets.train.images, arrays["train_images"])
        np.testing.assert_array_equal(sets.test.labels, arrays["test_labels"])


@pytest.mark.parametrize("damage", ["bit", "end"])
def test_a_damaged_file_is_refused(folder, damage):
    content = bytearray((folder / "toy.npz").read_bytes())
    if damage == "bit":
        content[500] ^= 1
    else:
        content = content[:-2000]
    (folder / "toy.npz").write_bytes(bytes(content))
    with pytest.raises(InputError, match="not readable as an npz"):
        files.load_npz("toy", folder)


def test_four_npy_files_are_a_set(folder):
    expected = files.load_npz("toy", folder)
    (folder / "plain").mkdir()
    for name, array in np.load(folder / "toy.npz").items():
        np.save(folder / "plain" / f"{name}.npy", array)
    settings = DataConfig(name="plain", dir=str(folder))
    loaded = sources.load(settings)
    assert loaded.source == f"the npy files in {folder / 'plain'}"
    assert is_mapped(loaded.sets.train.images)
    assert sources.count(settings) == (60, 20)
    assert files.set_names(folder) == ("plain", "toy")
    for mine, other in zip(loaded.sets[:2], expected[:2], strict=True):
        np.testing.assert_array_equal(mine.images, other.images)
        np.testing.assert_array_equal(mine.labels, other.labels)
    (folder / "plain" / "test_labels.npy").write_bytes(b"nothing")
    with pytest.raises(InputError, match="is not readable as npy"):
        sources.load(settings)
    (folder / "plain" / "test_labels.npy").unlink()
    with pytest.raises(InputError, match="add test_labels"):
        sources.load(settings)
