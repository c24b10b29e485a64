"""A machine without image sets."""

import pytest

from dpsparfl_jax.data import sources, tfds_sets


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A machine with no image set at all and no TensorFlow."""
    monkeypatch.setattr(sources, "DEBIAN_FASHION_MNIST", tmp_path / "debian")
    find = tfds_sets.importlib.util.find_spec
    monkeypatch.setattr(
        tfds_sets.importlib.util,
        "find_spec",
        lambda name: None if name == "tensorflow" else find(name),
    )
    return str(tmp_path / "tfds")
