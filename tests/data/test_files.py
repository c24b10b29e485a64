"""Are idx files read right, and damaged or missing ones refused clearly?"""

import gzip

import numpy as np
import pytest

from dpsparfl_jax.data import files
from dpsparfl_jax.errors import InputError
from tests.data.test_sources import arrays, write

STEMS = ("train-images", "train-labels", "t10k-images", "t10k-labels")


def idx_bytes(array):
    sizes = np.array(array.shape, ">u4").tobytes()
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def write_idx(folder, sign="-", packed=False):
    images, labels = arrays(5)
    folder.mkdir(exist_ok=True, parents=True)
    for stem in STEMS:
        array = images[..., 0] if "images" in stem else labels
        name = f"{stem}{sign}idx{array.ndim}-ubyte"
        content = idx_bytes(array if "train" in stem else array[:3])
        if packed:
            name, content = f"{name}.gz", gzip.compress(content, mtime=0)
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("sign", ["-", "."])
@pytest.mark.parametrize("place", ["toy", "."])
def test_idx_files_are_found_in_every_spelling(tmp_path, place, sign, packed):
    write_idx(tmp_path / place, sign, packed)
    sets, where = files.load_folder("toy", tmp_path)
    images, labels = arrays(5)
    np.testing.assert_array_equal(sets.train.images, images)
    np.testing.assert_array_equal(sets.test.images, images[:3])
    np.testing.assert_array_equal(sets.train.labels, labels)
    np.testing.assert_array_equal(sets.test.labels, labels[:3])
    assert sets.num_classes == 3
    assert where == f"the idx files in {tmp_path / place}"


def test_an_npz_comes_before_idx_files_and_the_own_folder_before_the_root(tmp_path):
    write_idx(tmp_path)
    write_idx(tmp_path / "toy")
    assert files.load_folder("toy", tmp_path)[1].endswith("/toy")
    write(tmp_path / "toy.npz")
    assert files.load_folder("toy", tmp_path)[1] == str(tmp_path / "toy.npz")


def test_a_folder_without_the_set_says_what_it_has(tmp_path):
    with pytest.raises(InputError, match=r"neither toy.npz nor .* but no image set"):
        files.load_folder("toy", tmp_path)
    with pytest.raises(InputError, match=r"put toy\.npz \(Keras' own file, or any npz"):
        files.load_folder("toy", tmp_path)
    write(tmp_path / "other.npz")
    write_idx(tmp_path / "digits")
    assert files.set_names(tmp_path) == ("digits", "other")
    with pytest.raises(InputError, match=r"but digits, other: change data\.name"):
        files.load_folder("toy", tmp_path)
    with pytest.raises(InputError, match=r"no folder .*/nowhere"):
        files.load_folder("toy", tmp_path / "nowhere")


def test_a_missing_idx_file_is_named(tmp_path):
    write_idx(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(InputError, match=r"only some of .* add t10k-labels"):
        files.load_folder("toy", tmp_path)


GOOD = idx_bytes(np.arange(24).reshape(2, 3, 4))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an idx file of bytes with 3 axes"),
        (GOOD[:10], "not an idx file"),
        (b"\0\0\x0d\3" + GOOD[4:], "not an idx file"),  # floats
        (b"\0\0\x08\1" + GOOD[4:], "not an idx file"),
        (GOOD[:-1], "should hold 24 values but holds 23"),
        (GOOD + b"x", "should hold 24 values but holds 25"),
        (GOOD[:4] + b"\xff" * 12, "should hold"),  # sizes that would not fit
        (gzip.compress(GOOD, mtime=0)[:-9], "not readable"),
        (gzip.compress(GOOD, mtime=0)[:15] + b"junk" * 9, "not readable"),
    ],
)
def test_damaged_idx_files_are_refused(tmp_path, content, message):
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        files.read_idx(path, 3)


def test_any_damaged_byte_of_a_packed_file_is_refused_or_harmless(tmp_path):
    path = tmp_path / "a"
    array = np.random.default_rng(0).integers(0, 256, (3, 9, 9))
    whole = gzip.compress(idx_bytes(array), mtime=0)
    refused = 0
    for position in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        try:
            np.testing.assert_array_equal(files.read_idx(path, 3), array)
        except InputError:
            refused += 1
    assert refused > 50


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_labels": np.array([0, 1, 2, 10**9])}, "labels up to 1000000000 on 4"),
        ({"train_labels": np.array([0, 1, 2, 10**12])}, "must be class numbers"),
        (
            {"test_labels": np.array([0, 3])},
            "images of class 3, which no training",
        ),
        ({"test_labels": np.array([0, 10**9])}, "of class 1000000000, which no"),
    ],
)
def test_labels_that_make_no_sense_are_refused(tmp_path, changes, message):
    write(tmp_path / "toy.npz", **changes)
    with pytest.raises(InputError, match=message):
        files.load_npz("toy", tmp_path)


def test_images_are_counted_without_being_read(tmp_path):
    write(tmp_path / "toy.npz", train_images=np.zeros(3))  # not even looked at
    assert files.count_folder("toy", tmp_path) == (4, 2)
    write_idx(tmp_path / "digits", packed=True)
    assert files.count_folder("digits", tmp_path) == (5, 3)
    (tmp_path / "digits" / "train-images-idx3-ubyte.gz").unlink()
    with pytest.raises(InputError, match=r"add train-images"):
        files.count_folder("digits", tmp_path)
