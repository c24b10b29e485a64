"""Does each name come from the right source, and never from another?"""

import pytest

from dpsparfl_jax.config import DataConfig
from dpsparfl_jax.data import glyphs, sources
from dpsparfl_jax.errors import InputError
from tests.data.test_files import write_idx
from tests.data.test_sources import arrays, write


def load(**settings):
    return sources.load(DataConfig(**settings))


def test_a_given_folder_is_the_only_source(tmp_path, bare):
    write(tmp_path / "toy.npz")
    loaded = load(name="toy", dir=str(tmp_path))
    assert loaded.source == f"{tmp_path}/toy.npz"
    assert loaded.sets.num_classes == 3
    for name in ("glyphs", "mnist", "nonsense"):
        with pytest.raises(InputError, match=f"neither {name}.npz .* but toy"):
            load(name=name, dir=str(tmp_path), tfds_dir=bare)


def test_debian_fashion_mnist(tmp_path, bare, monkeypatch):
    write_idx(tmp_path / "debian", packed=True)
    monkeypatch.setitem(sources.KNOWN, "fashion_mnist", ((3, 3, 1), 10))
    loaded = load(name="fashion_mnist", tfds_dir=bare)
    assert loaded.source == f"the idx files in {tmp_path}/debian"
    assert loaded.sets.num_classes == 10
    with pytest.raises(InputError, match="has no mnist"):
        load(name="mnist", tfds_dir=bare)


def test_glyphs_are_drawn_as_many_as_clients_own(bare, monkeypatch):
    monkeypatch.setattr(glyphs, "TRAIN", 50)
    monkeypatch.setattr(glyphs, "TEST", 20)
    loaded = load(num_clients=4, train_examples=30, test_examples=3, glyphs_seed=7)
    assert loaded.source == "glyphs drawn with seed 7"
    assert len(loaded.sets.train.labels) == 120
    assert len(loaded.sets.test.labels) == 20


def test_unknown_and_empty_names(bare):
    with pytest.raises(InputError, match=r"unknown image set 'nonsense': use glyphs"):
        load(name="nonsense", tfds_dir=bare)
    with pytest.raises(InputError, match=r"data\.name is empty"):
        load(name="", tfds_dir=bare)


def test_a_known_name_has_its_shape(tmp_path):
    write(tmp_path / "mnist.npz")
    with pytest.raises(InputError, match=r"\[3, 3, 1\] in 3 classes, but mnist has"):
        load(name="mnist", dir=str(tmp_path))


def test_shapes_are_known_or_read(tmp_path, bare):
    assert sources.describe(DataConfig()) == ((28, 28, 1), 10)
    cifar = DataConfig(name="cifar10", tfds_dir=bare)
    assert sources.describe(cifar) == ((32, 32, 3), 10)
    images, _ = arrays(shape=(4, 5, 3))
    write(tmp_path / "toy.npz", train_images=images, test_images=images[:2])
    toy = DataConfig(name="toy", dir=str(tmp_path))
    assert sources.describe(toy) == ((4, 5, 3), 3)
