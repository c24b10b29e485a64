"""Scattering features of images: what two levels of fixed wavelets see, nothing learnt.

Paths of a picture x, with Morlet wavelets psi of two scales and eight orientations and
a Gaussian phi (Bruna and Mallat 2013, "Invariant scattering convolution networks";
Oyallon and Mallat 2015, "Deep roto-translation scattering for object classification"):

    order 0    x * phi                          1 path
    order 1    |x * psi_1| * phi               16 paths
    order 2    ||x * psi_1| * psi_2| * phi     64 paths, psi_2 coarser than psi_1

each kept at every fourth pixel. A linear model on them is what Tramer and Boneh 2021
("Differentially private learning needs better features (or much more data)") train
privately.

Filters and order of paths are those of the library kymatio, which is not used because
its release 0.3.0 cannot be imported beside SciPy 1.17 (it asks for sph_harm, which is
gone). Where it can be, its coefficients and these differ by 3e-5 of their size, which
is what it takes pi for (3.1415), and otherwise by float32's rounding.
"""

import functools
from typing import NamedTuple

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from dpsparfl_jax.errors import InputError

Floats = NDArray[np.float32]
Spectra = NDArray[np.complex64]

STEP = 4  # pixels from one coefficient to the next: two scales, 2^2
ORIENTATIONS = 8
ORDERS = (1, 2 * ORIENTATIONS, ORIENTATIONS**2)  # paths of each order
PATHS = sum(ORDERS)
_LEAST = 2 * STEP  # pixels a side: the padding mirrors STEP of them
_WIDTH = 0.8  # of the envelope of the finest wavelets, in pixels
_FREQUENCY = 3 * np.pi / 4  # of the finest wavelets, in radians a pixel
_SLANT = 4 / ORIENTATIONS  # of an envelope: width along over width across the wave


def shape_of(image_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Shape of the features of images of this shape (H, W, C), or a refusal."""
    height, width, channels = image_shape
    if height % STEP or width % STEP or min(height, width) < _LEAST:
        raise InputError(
            f"scattering features need images whose sides are multiples of {STEP} and "
            f"at least {_LEAST}, not {height} x {width}: crop or pad them."
        )
    return height // STEP, width // STEP, PATHS * channels


def scatter(pictures: Floats) -> Floats:
    """Coefficients [n, paths, H/4, W/4] of pictures [n, H, W] of one channel."""
    height, width = pictures.shape[1:]
    shape_of((height, width, 1))
    margins = [(0, 0), (STEP, STEP), (STEP, STEP)]
    padded = np.pad(pictures, margins, mode="reflect").astype(np.float32, copy=False)
    bank = _make_bank(padded.shape[1], padded.shape[2])
    spectrum = scipy.fft.fft2(padded)
    # Asking for this memory in every step would take longer than the sums in it.
    size = ORIENTATIONS, padded.shape[1] // 2, padded.shape[2] // 2
    work = np.empty((2, len(padded), *size), np.complex64)
    fine, second = [], []
    for wavelet in bank.fine:
        waves = np.abs(scipy.fft.ifft2(spectrum * wavelet, overwrite_x=True))
        fine.append(_smooth(waves[:, None], bank.full))
        twice = _coarse_waves(scipy.fft.fft2(waves), bank, work)
        second.append(_smooth(twice, bank.half))
    zeroth = _smooth(padded[:, None], bank.full)
    coarse = _smooth(_coarse_waves(spectrum, bank, work), bank.half)
    return np.concatenate([zeroth, *fine, coarse, *second], axis=1)


class _Bank(NamedTuple):
    """Filters of padded pictures of one size."""

    fine: Floats  # [orientations, P, Q] spectra of the fine wavelets
    coarse: Floats  # [orientations, P, Q] those of the coarse ones
    full: tuple[Floats, Floats]  # smoothing of rows and columns of a full picture
    half: tuple[Floats, Floats]  # and of one at half the resolution


@functools.lru_cache(maxsize=4)
def _make_bank(height: int, width: int) -> _Bank:
    fine, coarse = (
        np.stack([_morlet(height, width, scale, i) for i in range(ORIENTATIONS)])
        for scale in (1, 2)
    )
    coarse /= 4  # of four quarters a mean is taken
    full, half = (
        (_smoothing(height, level), _smoothing(width, level)) for level in (1, 2)
    )
    return _Bank(fine, coarse, full, half)


def _morlet(height: int, width: int, scale: int, orientation: int) -> Floats:
    """Spectrum of a wavelet: a wave in an envelope, less what gives it a mean."""
    angle = (ORIENTATIONS // 2 - 1 - orientation) * np.pi / ORIENTATIONS
    sigma, frequency = _WIDTH * scale, _FREQUENCY / scale
    # On a grid of five periods a side, summed: the filter is periodic as the FFT is.
    rows, columns = np.meshgrid(
        np.arange(-2 * height, 3 * height),
        np.arange(-2 * width, 3 * width),
        indexing="ij",
    )
    along = rows * np.cos(angle) + columns * np.sin(angle)
    across = columns * np.cos(angle) - rows * np.sin(angle)
    envelope = np.exp(-(along**2 + (_SLANT * across) ** 2) / (2 * sigma**2))
    envelope *= _SLANT / (2 * np.pi * sigma**2)
    wave = envelope * np.exp(1j * frequency * along)
    wavelet = wave - wave.sum() / envelope.sum() * envelope
    periodic = wavelet.reshape(5, height, 5, width).sum((0, 2))
    # The envelope is even and the wave is Hermitian: the spectrum is real.
    return scipy.fft.fft2(periodic).real.astype(np.float32)


def _smoothing(size: int, level: int) -> Floats:
    """Matrix that smooths a line of `size` / `level` samples and keeps one a STEP.

    The Gaussian of two dimensions is the product of two such, and the margins that were
    padded are left out.
    """
    sigma = 2 * _WIDTH
    places = np.arange(-2 * size, 3 * size)
    gauss = np.exp(-(places**2) / (2 * sigma**2)) / (np.sqrt(2 * np.pi) * sigma)
    spectrum = scipy.fft.fft(gauss.reshape(5, size).sum(0)).real
    if level == 2:  # of the frequencies that are left at half the resolution
        spectrum = np.concatenate([spectrum[: size // 4], spectrum[-(size // 4) :]])
    kernel = scipy.fft.ifft(spectrum).real
    step = STEP // level
    kept = np.arange(1, size // STEP - 1) * step
    distances = kept[:, None] - np.arange(size // level)
    return kernel[distances % len(kernel)].astype(np.float32)


def _coarse_waves(spectra: Spectra, bank: _Bank, work: Spectra) -> Floats:
    """Moduli [n, orientations, P/2, Q/2] of pictures filtered by coarse wavelets.

    To keep every second pixel is to take the mean of the four quarters of a spectrum.
    """
    height, width = spectra.shape[1] // 2, spectra.shape[2] // 2
    total, part = work
    for number, (i, j) in enumerate(np.ndindex(2, 2)):
        rows = slice(i * height, (i + 1) * height)
        columns = slice(j * width, (j + 1) * width)
        quarter, wavelets = (
            spectra[:, None, rows, columns],
            bank.coarse[:, rows, columns],
        )
        np.multiply(quarter, wavelets, out=part if number else total)
        if number:
            total += part
    return np.abs(scipy.fft.ifft2(total, overwrite_x=True))


def _smooth(waves: Floats, matrices: tuple[Floats, Floats]) -> Floats:
    """Waves [n, k, P, Q], smoothed and kept at every fourth pixel."""
    rows, columns = matrices
    lines = np.swapaxes(waves @ columns.T, 2, 3)
    return np.swapaxes(lines @ rows.T, 2, 3)
