"""Scattering coefficients as sums over pixels, in float64: no FFT, no shortcut."""

import numpy as np

ANGLES = [(3 - i) * np.pi / 8 for i in range(8)]


def coefficients(picture):
    """[81, H/4, W/4] of a picture [H, W] whose margins are mirrored."""
    x = np.pad(np.asarray(picture, np.float64), 4, mode="reflect")
    rows, columns = (gauss(size, 1.6) for size in x.shape)
    smooth = np.outer(rows, columns)
    smooth_half = np.outer(halved(rows), halved(columns))

    def waves(x, scale):
        return [abs(convolve(x, morlet(x.shape, scale, angle))) for angle in ANGLES]

    def kept(x):
        return convolve(x, smooth).real[4:-4:4, 4:-4:4]

    def kept_of_coarse(x):  # a pixel in two is left before smoothing
        return convolve(x[::2, ::2], smooth_half).real[2:-2:2, 2:-2:2]

    fine = waves(x, 1)
    second = [each for wave in fine for each in waves(wave, 2)]
    return np.stack(
        [
            *(kept(each) for each in (x, *fine)),
            *(kept_of_coarse(each) for each in (*waves(x, 2), *second)),
        ]
    )


def convolve(x, kernel):
    """Circular: the sum of the picture, shifted by every pixel of the kernel."""
    total = np.zeros(x.shape, complex)
    for row, column in np.ndindex(x.shape):
        total += kernel[row, column] * np.roll(x, (row, column), (0, 1))
    return total


def gauss(size, sigma):
    """A Gaussian of mass 1 on a circle of `size` pixels."""
    places = np.arange(size)
    return sum(
        np.exp(-((places + turn * size) ** 2) / (2 * sigma**2)) for turn in range(-2, 3)
    ) / np.sqrt(2 * np.pi * sigma**2)


def halved(line):
    """A line with half as many samples: the lower half of its frequencies."""
    size, places = len(line), np.arange(len(line))
    frequencies = np.arange(-(size // 4), size // 4)
    parts = [
        (line * np.exp(-2j * np.pi * f * places / size)).sum() for f in frequencies
    ]
    waves = np.exp(4j * np.pi * np.outer(places[: size // 2], frequencies) / size)
    return (waves @ np.array(parts)).real / (size // 2)


def morlet(shape, scale, angle):
    """exp(-(u^2 + v^2/4) / 2 s^2) (exp(i f u) - k), u along the wave, of mean zero."""
    sigma, frequency = 0.8 * scale, 3 * np.pi / 4 / scale
    still, wave = 0, 0
    for down in range(-2, 3):  # copies a picture apart
        for right in range(-2, 3):
            row = np.arange(shape[0])[:, None] + down * shape[0]
            column = np.arange(shape[1]) + right * shape[1]
            u = row * np.cos(angle) + column * np.sin(angle)
            v = column * np.cos(angle) - row * np.sin(angle)
            envelope = np.exp(-(u**2 + v**2 / 4) / (2 * sigma**2))
            still = still + envelope
            wave = wave + envelope * np.exp(1j * frequency * u)
    return (wave - wave.sum() / still.sum() * still) / (4 * np.pi * sigma**2)
