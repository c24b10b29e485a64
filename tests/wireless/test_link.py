"""Are rates, payloads, delays and energies those of the equations?"""

import math

import numpy as np
import pytest

from dpsparfl_jax.config import TrainingConfig, WirelessConfig
from dpsparfl_jax.units import shannon_rate
from dpsparfl_jax.wireless import link, world

RADIO = WirelessConfig()
MNIST_CNN = 1_663_370
CIFAR_CNN = 930_826


def gain(distance_m):
    return 10 ** (-(128.1 + 37.6 * math.log10(distance_m / 1000)) / 10)


def payload_bits(keep, parameters, radio):
    """Bits of an update whose mask has one bit a coordinate."""
    fixed, per_rate = link.payload_terms(parameters, parameters, radio)
    return fixed + per_rate * np.asarray(keep)


@pytest.mark.parametrize(
    ("distance_m", "loss_db", "kbit_s", "full", "half", "tenth", "cifar"),
    [
        (10, 52.9, 419, 131, 68, 17, 73),
        (50, 79.2, 288, 190, 98, 24, 107),
        (70.7, 84.8, 260, 211, 109, 27, 118),
        (100, 90.5, 232, 237, 122, 30, 133),
        (141.4, 96.2, 204, 270, 139, 34, 151),
    ],
)
def test_rates_and_delays_of_the_papers_radio(
    distance_m, loss_db, kbit_s, full, half, tenth, cifar
):
    """A table computed apart from this package: 1 W, 15 kHz, -107 dBm, no fading."""
    assert link.path_loss_db(distance_m) == pytest.approx(loss_db, abs=0.06)
    snr = RADIO.max_power_w * gain(distance_m) / RADIO.noise_w
    rate = shannon_rate(RADIO.bandwidth_hz, snr)
    assert rate / 1e3 == pytest.approx(kbit_s, abs=0.6)
    for keep, seconds in ((1.0, full), (0.5, half), (0.1, tenth)):
        bits = payload_bits(keep, MNIST_CNN, RADIO)
        assert bits / rate == pytest.approx(seconds, abs=1)
    assert payload_bits(1.0, CIFAR_CNN, RADIO) / rate == pytest.approx(cifar, abs=1)


@pytest.mark.parametrize(
    ("distance_m", "single", "shared"),
    [(10, 139, 28), (50, 210, 42), (100, 270, 54), (141.4, 316, 63)],
)
def test_downlink_delay(distance_m, single, shared):
    for downlink, seconds in (("single", single), ("shared", shared)):
        radio = WirelessConfig(downlink=downlink)
        delay = link.downlink_delay([gain(distance_m)], radio.noise_w, MNIST_CNN, radio)
        assert delay[0] == pytest.approx(seconds, abs=1)


def test_payload_is_values_and_mask_or_seed():
    assert link.payload_terms(1000, 30, RADIO) == (30, 32_000)
    assert payload_bits(0.25, 1000, RADIO) == 8 * 1000 + 1000
    seed = WirelessConfig(payload="seed")
    np.testing.assert_allclose(payload_bits([0.0, 1.0], 1000, seed), [64, 32064])


def test_local_training_costs():
    training = TrainingConfig(local_steps=60, batch_size=8)
    examples = link.local_examples([1000, 300], training, RADIO)
    assert list(examples) == [480, 480]
    literal = WirelessConfig(local_work="dataset")
    assert list(link.local_examples([1000, 300], training, literal)) == [60e3, 18e3]
    np.testing.assert_allclose(
        link.training_delay(examples, 1e7, [1.2e9, 2.4e9]), [4.0, 2.0]
    )
    # chi f^3 / 2 is the CPU's power: 0.0864 W and 0.691 W.
    np.testing.assert_allclose(
        link.training_energy(examples, 1e7, [1.2e9, 2.4e9], 1e-28),
        [4.0 * 0.0864, 2.0 * 0.6912],
    )


def test_interference_adds_to_the_noise():
    noisy = world.make_world(WirelessConfig(interference_w=1e-13), 3, 0)
    wanted = np.full((3, 5), 1.995e-14 + 1e-13)
    np.testing.assert_allclose(noisy.uplink_noise_w, wanted, rtol=1e-3)
    np.testing.assert_allclose(noisy.downlink_noise_w, wanted[:, 0], rtol=1e-3)
    assert RADIO.noise_w == pytest.approx(1.995e-14, rel=1e-3)
    assert RADIO.max_power_w == pytest.approx(1.0)
    assert RADIO.ap_power_w == pytest.approx(0.1995, rel=1e-3)
