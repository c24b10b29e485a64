"""Rates, payloads, delays and energies of one round, as functions of plain arrays.

Shapes: U clients, N channels. All powers in W, times in s, energies in J.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsparfl_jax.config import TrainingConfig, WirelessConfig
from dpsparfl_jax.units import shannon_rate

Array = NDArray[np.float64]
SEED_BITS = 64  # of a mask's seed, where the mask itself is not sent


def path_loss_db(distance_m: ArrayLike) -> Array:
    """128.1 + 37.6 log10(distance / km), in dB (paper: Setup)."""
    return 128.1 + 37.6 * np.log10(np.asarray(distance_m, np.float64) / 1e3)


def payload_terms(
    num_parameters: int, mask_bits: int, radio: WirelessConfig
) -> tuple[float, float]:
    """An update that keeps a share s of its coordinates has `fixed + per_rate s` bits.

    `mask_bits` tell which coordinates were kept (`Sparsifier.mask_bits`).
    Paper: section II, 32 s |g| + |g|.  Departs: BUILD_NOTES "payload".
    """
    fixed = mask_bits if radio.payload == "mask" else SEED_BITS
    return float(fixed), float(radio.value_bits * num_parameters)


def downlink_delay(
    gain: Array | float,
    noise_w: Array | float,
    num_parameters: int,
    radio: WirelessConfig,
) -> Array:
    """Seconds until each client has the dense model: [U], [U] -> [U] (section III-A).

    Departs: BUILD_NOTES "downlink" (bandwidth of all channels by default).
    """
    snr = radio.ap_power_w * np.asarray(gain) / noise_w
    rate = shannon_rate(radio.downlink_hz, snr)
    with np.errstate(divide="ignore"):  # nothing gets through: it takes for ever
        return radio.value_bits * num_parameters / rate


def local_examples(
    sizes: ArrayLike, training: TrainingConfig, radio: WirelessConfig
) -> Array:
    """Examples that each client's local training computes: [U] -> [U].

    Paper: section III-B, tau |D|.  Departs: BUILD_NOTES "local work" (tau b).
    """
    sizes = np.asarray(sizes, np.float64)
    a_step = sizes if radio.local_work == "dataset" else training.batch_size
    return np.broadcast_to(training.local_steps * np.asarray(a_step), sizes.shape)


def training_delay(
    examples: Array | float, cycles_per_sample: Array | float, cpu_hz: Array | float
) -> Array:
    """Examples * Phi / f, in s: all [U] (section III-B)."""
    cycles = np.asarray(examples) * cycles_per_sample
    return cycles / np.asarray(cpu_hz)


def training_energy(
    examples: Array | float,
    cycles_per_sample: Array | float,
    cpu_hz: Array | float,
    capacitance: Array | float,
) -> Array:
    """Chi * examples * Phi * f^2 / 2, in J: all [U] (section III-B)."""
    cycles = np.asarray(examples) * cycles_per_sample
    return capacitance * cycles * np.asarray(cpu_hz) ** 2 / 2
