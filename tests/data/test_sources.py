"""Are image files read right, and bad ones refused in one clear sentence?"""

import numpy as np
import pytest

from dpsparfl_jax.data import files
from dpsparfl_jax.errors import InputError


def arrays(n=4, shape=(3, 3, 1)):
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (n, *shape), np.uint8), np.arange(n) % 3


def write(path, **changes):
    images, labels = arrays()
    content = {
        "train_images": images,
        "train_labels": labels,
        "test_images": images[:2],
        "test_labels": labels[:2],
        **changes,
    }
    np.savez(path, **{k: v for k, v in content.items() if v is not None})


def test_reads_an_npz(tmp_path):
    write(tmp_path / "toy.npz")
    sets = files.load_npz("toy", tmp_path)
    np.testing.assert_array_equal(sets.train.images, arrays()[0])
    assert sets.train.labels.dtype == np.int32
    assert sets.test.images.shape == (2, 3, 3, 1)
    assert sets.num_classes == 3


def test_reads_an_npz_as_keras_has_it(tmp_path):
    images, labels = arrays()
    names = ("x_train", "y_train", "x_test", "y_test")
    for shaped in (labels.astype(np.uint8), labels[:, None]):
        both = (images[..., 0], shaped, images[:2, :, :, 0], shaped[:2])
        np.savez(tmp_path / "mnist.npz", **dict(zip(names, both, strict=True)))
        sets = files.load_npz("mnist", tmp_path)
        np.testing.assert_array_equal(sets.train.images, images)
        np.testing.assert_array_equal(sets.train.labels, labels)
        np.testing.assert_array_equal(sets.test.images, images[:2])
        np.testing.assert_array_equal(sets.test.labels, labels[:2])
        assert files.count_folder("mnist", tmp_path) == (4, 2)


def test_names_of_two_kinds_are_refused(tmp_path):
    images, _ = arrays()
    write(tmp_path / "toy.npz", train_images=None, x_train=images)
    with pytest.raises(InputError, match=r"no item named 'train_images\.npy'"):
        files.load_npz("toy", tmp_path)
    np.savez(tmp_path / "toy.npz", x_train=images)
    with pytest.raises(InputError, match=r"or of x_train, .* named 'y_train\.npy'"):
        files.load_npz("toy", tmp_path)


def test_missing_damaged_and_incomplete_files(tmp_path):
    with pytest.raises(InputError, match=r"point data.dir at a folder that holds toy"):
        files.load_npz("toy", tmp_path)
    (tmp_path / "toy.npz").write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(InputError, match="not readable as an npz"):
        files.load_npz("toy", tmp_path)
    (tmp_path / "toy.npz").write_bytes(b"junk")
    with pytest.raises(InputError, match="not readable as an npz"):
        files.load_npz("toy", tmp_path)
    write(tmp_path / "toy.npz", test_labels=None)
    with pytest.raises(InputError, match="not readable as an npz"):
        files.load_npz("toy", tmp_path)
    write(tmp_path / "toy.npz", test_images=np.zeros((2, 5, 5, 1), np.uint8))
    with pytest.raises(InputError, match="different shapes"):
        files.load_npz("toy", tmp_path)


def test_any_damaged_byte_is_a_clear_refusal_or_harmless(tmp_path):
    images, labels = arrays(60)
    path = tmp_path / "toy.npz"
    np.savez_compressed(
        path,
        train_images=images,
        train_labels=labels,
        test_images=images,
        test_labels=labels,
    )
    whole = path.read_bytes()
    refused = 0
    for position in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        try:
            sets = files.load_npz("toy", tmp_path)
        except InputError:
            refused += 1
        else:  # zip metadata that does not matter
            np.testing.assert_array_equal(sets.train.images, images)
    assert refused > 50


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.full((4, 3, 3, 1), np.nan), np.arange(4), "must be uint8 in 0..255, not"),
        (np.zeros((4, 3, 3, 1), np.float32), np.arange(4), "not float32"),
        (np.zeros((4, 3, 3), np.uint8), np.arange(4), r"not \[4, 3, 3\]"),
        (np.zeros((0, 3, 3, 1), np.uint8), np.arange(0), r"not \[0, 3, 3, 1\]"),
        (np.zeros((4, 3, 3, 1), np.uint8), np.arange(3), "must be 4 integers"),
        (np.zeros((4, 3, 3, 1), np.uint8), np.full(4, np.nan), "must be 4 integers"),
        (np.zeros((4, 3, 3, 1), np.uint8), np.arange(4) - 1, "not be negative"),
    ],
)
def test_bad_arrays_are_refused(images, labels, message):
    with pytest.raises(InputError, match=message):
        files.check_images(images, labels)
