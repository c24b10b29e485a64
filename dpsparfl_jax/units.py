"""Decibels, watts and bits: the only place that knows a factor of ten.

Everything here takes and returns NumPy arrays or floats in float64.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

BITS_PER_FLOAT = 32
_LN2 = float(np.log(2.0))


def db_to_ratio(value_db: ArrayLike) -> NDArray[np.float64]:
    """Power ratio of a level in dB."""
    return np.power(10.0, np.asarray(value_db, np.float64) / 10.0)


def ratio_to_db(ratio: ArrayLike) -> NDArray[np.float64]:
    """Level in dB of a power ratio."""
    return 10.0 * np.log10(np.asarray(ratio, np.float64))


def dbm_to_w(power_dbm: ArrayLike) -> NDArray[np.float64]:
    """Watts of a power in dBm (0 dBm is one milliwatt)."""
    return 1e-3 * db_to_ratio(power_dbm)


def w_to_dbm(power_w: ArrayLike) -> NDArray[np.float64]:
    """Power in dBm of watts."""
    return ratio_to_db(np.asarray(power_w, np.float64) / 1e-3)


def shannon_rate(bandwidth_hz: float, snr: ArrayLike) -> NDArray[np.float64]:
    """B log2(1 + snr) in bit/s, exact for vanishing ratios too (paper: III-A)."""
    return bandwidth_hz * np.log1p(np.asarray(snr, np.float64)) / _LN2
