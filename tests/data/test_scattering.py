"""Are scattering coefficients those of the definition?"""

import numpy as np
import pytest

from dpsparfl_jax.data import scattering
from dpsparfl_jax.errors import InputError
from tests.reference import scattering as plain


def pictures(count, height, width):
    return np.random.default_rng(0).random((count, height, width), np.float32)


@pytest.mark.parametrize("shape", [(8, 12), (12, 8)])
def test_coefficients_are_sums_over_pixels(shape):
    images = pictures(1, *shape)
    got = scattering.scatter(images)
    assert got.dtype == np.float32
    wanted = plain.coefficients(images[0])
    np.testing.assert_allclose(got[0], wanted, atol=3e-7)


def test_a_constant_picture_has_no_waves():
    got = scattering.scatter(np.full((2, 16, 16), 0.5, np.float32))
    np.testing.assert_allclose(got[:, 0], 0.5, atol=1e-5)
    np.testing.assert_allclose(got[:, 1:], 0, atol=1e-6)


def test_a_wave_is_seen_by_the_wavelet_of_its_direction_and_scale():
    places = np.arange(32)
    for frequency, first in ((3 * np.pi / 4, 1), (3 * np.pi / 8, 9)):
        wave = np.broadcast_to(np.cos(frequency * places), (32, 32))
        for picture, orientation in ((wave.T, 3), (wave, 7)):
            got = scattering.scatter(picture[None].astype(np.float32))[0]
            strength = got[1:17, 2:-2, 2:-2].mean((1, 2))
            assert strength.argmax() == first - 1 + orientation


def test_pictures_do_not_depend_on_their_neighbours():
    images = pictures(5, 12, 16)
    together = scattering.scatter(images)
    alone = np.concatenate([scattering.scatter(image[None]) for image in images])
    np.testing.assert_allclose(together, alone, atol=1e-7)


def test_shapes():
    assert scattering.shape_of((28, 28, 1)) == (7, 7, 81)
    assert scattering.shape_of((32, 32, 3)) == (8, 8, 243)
    assert scattering.scatter(pictures(2, 28, 32)).shape == (2, 81, 7, 8)


@pytest.mark.parametrize("shape", [(4, 4, 1), (28, 30, 1), (27, 28, 3)])
def test_sizes_that_do_not_fit_are_refused(shape):
    with pytest.raises(InputError, match=f"at least 8, not {shape[0]} x {shape[1]}:"):
        scattering.shape_of(shape)
