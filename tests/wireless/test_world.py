"""Is the world the one described, and the same for every policy?"""

import numpy as np
import pytest
from scipy import stats

from dpsparfl_jax.config import WirelessConfig
from dpsparfl_jax.wireless import link, world

RADIO = WirelessConfig()


def test_the_same_seed_gives_the_same_world_whatever_came_before():
    first = world.make_world(RADIO, 20, seed=3)
    rounds = [world.observe(first, RADIO, 3, t) for t in range(5)]
    again = world.make_world(RADIO, 20, seed=3)
    late = world.observe(again, RADIO, 3, 4)  # asked for first
    np.testing.assert_array_equal(late.uplink_gain, rounds[4].uplink_gain)
    np.testing.assert_array_equal(late.cpu_hz, rounds[4].cpu_hz)
    other = world.make_world(RADIO, 20, seed=4)
    assert not np.array_equal(first.clients_m, other.clients_m)
    assert not np.array_equal(rounds[0].uplink_gain, rounds[1].uplink_gain)
    assert not np.array_equal(rounds[0].cpu_hz, rounds[1].cpu_hz)


def test_more_channels_leave_clients_where_they_are():
    few = world.make_world(RADIO, 20, seed=3)
    many = world.make_world(WirelessConfig(num_channels=9), 20, seed=3)
    np.testing.assert_array_equal(few.clients_m, many.clients_m)
    np.testing.assert_array_equal(few.channels_m, many.channels_m[:5])


def test_gains_follow_the_distances():
    made = world.make_world(RADIO, 30, seed=0)
    assert made.uplink_gain.shape == (30, 5)
    distance = np.sqrt(
        ((made.clients_m[:, None, :] - made.channels_m[None]) ** 2).sum(axis=2)
    )
    expected = 10 ** (-link.path_loss_db(np.maximum(distance, 1.0)) / 10)
    np.testing.assert_allclose(made.uplink_gain, expected)
    centre = world.make_world(WirelessConfig(geometry="centre"), 30, seed=0)
    assert np.all(centre.uplink_gain == centre.uplink_gain[:, :1])
    np.testing.assert_allclose(centre.uplink_gain[:, 0], centre.downlink_gain)


def test_nobody_is_nearer_than_the_least_distance():
    close = WirelessConfig(area_m=0.5)
    made = world.make_world(close, 10, seed=0)
    np.testing.assert_allclose(made.uplink_gain, 10 ** (-link.path_loss_db(1.0) / 10))


def test_fading_is_rayleigh():
    """Power gains over their mean are Exp(1): KS at 1e-3, and 10% off is rejected."""
    made = world.make_world(RADIO, 40, seed=1)
    ratios = np.concatenate(
        [
            (world.observe(made, RADIO, 1, t).uplink_gain / made.uplink_gain).ravel()
            for t in range(60)
        ]
    )
    assert stats.kstest(ratios, stats.expon.cdf).pvalue > 1e-3
    for wrong in (0.9, 1.1):
        assert stats.kstest(ratios, stats.expon(scale=wrong).cdf).pvalue < 1e-3


def test_fading_and_shadowing_can_be_set():
    still = WirelessConfig(fading=False)
    made = world.make_world(still, 40, seed=1)
    seen = world.observe(made, still, 1, 7)
    np.testing.assert_array_equal(seen.uplink_gain, made.uplink_gain)
    shady = world.make_world(WirelessConfig(shadowing_db=8.0), 400, seed=1)
    plain = world.make_world(RADIO, 400, seed=1)
    change = 10 * np.log10(shady.uplink_gain / plain.uplink_gain)
    # 2000 normal draws: the standard deviation's own one is 1.6%.
    assert abs(np.std(change) / 8 - 1) < 0.1
    assert abs(np.mean(change)) < 1.1


def test_cpu_speeds_are_in_their_range():
    made = world.make_world(RADIO, 2000, seed=2)
    speed = world.observe(made, RADIO, 2, 0).cpu_hz
    assert speed.min() >= 1.2e9
    assert speed.max() <= 2.4e9
    uniform = stats.uniform(1.2e9, 1.2e9)
    assert stats.kstest(speed, uniform.cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    ("geometry", "fading", "low", "high"),
    [
        ("centre", False, 18.2, 26.7),
        ("points", False, 15.8, 26.4),
        ("points", True, 13.6, 26.0),
    ],
)
def test_spectral_efficiencies_are_those_calculated_apart(geometry, fading, low, high):
    """5% and 95% quantiles of bit/s/Hz at 1 W, over many placements."""
    radio = WirelessConfig(geometry=geometry, fading=fading)
    values = []
    for seed in range(400):
        made = world.make_world(radio, 50, seed)
        seen = world.observe(made, radio, seed, 0)
        values.append(np.log2(1 + seen.uplink_gain / radio.noise_w).ravel())
    quantiles = np.quantile(np.concatenate(values), [0.05, 0.95])
    np.testing.assert_allclose(quantiles, [low, high], atol=0.3)
