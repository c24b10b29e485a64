"""Are features those of one image alone, computed once and kept whole?"""

import logging

import numpy as np
import pytest

from dpsparfl_jax import config_values
from dpsparfl_jax.config import DataConfig, RunConfig
from dpsparfl_jax.data import features, scattering, sources
from dpsparfl_jax.data.files import LabelledSets
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.types import ImageSet
from tests.data.test_sources import write


@pytest.fixture(autouse=True)
def forgetful(monkeypatch):
    """Nothing is in memory from another test."""
    monkeypatch.setattr(features, "_last", {})


@pytest.fixture
def count_transforms(monkeypatch):
    """A list that grows with every chunk of images that is transformed."""
    calls, real = [], features.scattering_bytes
    monkeypatch.setattr(
        features, "scattering_bytes", lambda images: calls.append(1) or real(images)
    )
    return calls


def images_of(count, shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), np.uint8)


def make_sets(shape=(8, 12, 1), train=7, test=3, seed=0):
    images = images_of(train + test, shape, seed)
    labels = np.arange(train + test, dtype=np.int32) % 3
    return LabelledSets(
        ImageSet(images[:train], labels[:train]),
        ImageSet(images[train:], labels[train:]),
        5,
    )


def test_every_order_and_colour_of_an_image_is_normalised_by_itself():
    images = images_of(2, (12, 8, 3))
    got = features.scattering_bytes(images)
    assert (got.shape, got.dtype) == ((2, 3, 2, 243), np.uint8)
    for number, image in enumerate(images):
        for colour in range(3):
            values = scattering.scatter(image[None, ..., colour] / np.float32(255))[0]
            for paths in (slice(0, 1), slice(1, 17), slice(17, 81)):
                group = values[paths].astype(np.float64)
                spread = np.sqrt(group.var() + 1e-8)
                wanted = np.clip((group - group.mean()) / spread, -4, 4)
                start = 81 * colour
                part = got[number, ..., start + paths.start : start + paths.stop]
                read = np.moveaxis(part, 2, 0) / 255 * 8 - 4
                half_a_step = 4 / 255
                np.testing.assert_allclose(read, wanted, atol=half_a_step + 1e-4)


def test_black_and_extreme_images_have_finite_features():
    images = np.zeros((2, 8, 8, 1), np.uint8)
    images[1, 3, 4] = 255
    got = features.scattering_bytes(images)
    assert set(np.unique(got[0])) <= {127, 128}
    assert got[1].max() == 255


def test_no_image_touches_another():
    sets = make_sets()
    changed = sets.train.images.copy()
    changed[2] = 255 - changed[2]
    other = sets._replace(train=ImageSet(changed, sets.train.labels))
    a, b = (features.scattering_sets(each).train.images for each in (sets, other))
    rest = np.arange(7) != 2
    np.testing.assert_array_equal(a[rest], b[rest])
    assert (a[2] != b[2]).any()


def test_chunks_are_put_together_in_order(monkeypatch):
    monkeypatch.setattr(features, "_CHUNK", 2 * 8 * 12)
    sets = make_sets()
    got = features.scattering_sets(sets)
    for part, whole in ((got.train, sets.train), (got.test, sets.test)):
        wanted = features.scattering_bytes(whole.images)
        assert (part.images == wanted).mean() > 0.999  # the last digit may round
        np.testing.assert_allclose(part.images, wanted.astype(int), atol=1)
        np.testing.assert_array_equal(part.labels, whole.labels)
    assert got.num_classes == 5


def test_features_are_computed_once(count_transforms):
    first = features.scattering_sets(make_sets())
    calls = len(count_transforms)
    assert features.scattering_sets(make_sets()) is first
    assert len(count_transforms) == calls
    features.scattering_sets(make_sets(seed=1))
    assert len(count_transforms) > calls
    assert len(features._last) == 1  # the set before is let go


def test_features_are_kept_on_disk(tmp_path, count_transforms):
    first = features.scattering_sets(make_sets(), tmp_path / "new")
    (path,) = (tmp_path / "new").iterdir()
    assert path.suffix == ".npz"
    features._last.clear()
    calls = len(count_transforms)
    again = features.scattering_sets(make_sets(), tmp_path / "new")
    assert len(count_transforms) == calls
    assert again.num_classes == first.num_classes
    np.testing.assert_array_equal(again.train.images, first.train.images)
    np.testing.assert_array_equal(again.test.labels, first.test.labels)


@pytest.mark.parametrize("position", [0, 100, 3000])
def test_a_damaged_file_is_computed_again(tmp_path, caplog, position):
    first = features.scattering_sets(make_sets(), tmp_path)
    (path,) = tmp_path.iterdir()
    whole = bytearray(path.read_bytes())
    whole[position] ^= 0xFF
    path.write_bytes(whole)
    features._last.clear()
    with caplog.at_level(logging.WARNING):
        again = features.scattering_sets(make_sets(), tmp_path)
    np.testing.assert_array_equal(again.train.images, first.train.images)
    assert "Computing it again" in caplog.text


def test_a_folder_that_cannot_be_used_costs_a_line_in_the_log(tmp_path, caplog):
    (tmp_path / "file").touch()
    with caplog.at_level(logging.WARNING):
        got = features.scattering_sets(make_sets(), tmp_path / "file")
    assert got.train.images.shape == (7, 2, 3, 81)
    assert "features are not kept on disk" in caplog.text


def test_sources_give_features_in_place_of_images(tmp_path):
    images = images_of(4, (8, 12, 3))
    write(tmp_path / "toy.npz", train_images=images, test_images=images[:2])
    settings = DataConfig(name="toy", dir=str(tmp_path), features="scattering")
    assert sources.describe(settings) == ((2, 3, 243), 3)
    loaded = sources.load(settings, str(tmp_path / "cache"))
    assert loaded.source == f"scattering features of {tmp_path}/toy.npz"
    assert loaded.sets.train.images.shape == (4, 2, 3, 243)
    np.testing.assert_array_equal(
        loaded.sets.train.images, features.scattering_bytes(images)
    )
    assert len(list((tmp_path / "cache" / "features").iterdir())) == 1


def test_shapes_of_features_are_known_without_reading(bare):
    for name, shape in (("mnist", (7, 7, 81)), ("cifar10", (8, 8, 243))):
        settings = DataConfig(name=name, tfds_dir=bare, features="scattering")
        assert sources.describe(settings) == (shape, 10)


def test_images_of_a_size_that_does_not_fit_are_refused(tmp_path):
    write(tmp_path / "toy.npz")
    settings = DataConfig(name="toy", dir=str(tmp_path), features="scattering")
    for ask in (sources.describe, sources.load):
        with pytest.raises(InputError, match="scattering features need images whose"):
            ask(settings)


def test_features_are_a_setting_that_moves_results():
    pixels, waves = (DataConfig(features=each) for each in ("pixels", "scattering"))
    assert pixels.image_set != waves.image_set
    a, b = (config_values.digest(RunConfig(data=each)) for each in (pixels, waves))
    assert a != b
    with pytest.raises(InputError, match="one of pixels, scattering"):
        DataConfig(features="wavelets")
