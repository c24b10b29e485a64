"""Where clients and channels are, and what each round's radio and CPUs look like.

Everything depends on the seed and the round alone, never on a policy: policies are
compared in the same world.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax import rng, units
from dpsparfl_jax.client_values import client_values
from dpsparfl_jax.config import WirelessConfig
from dpsparfl_jax.wireless import link

Array = NDArray[np.float64]


class World(NamedTuple):
    """What stays the same over a run."""

    clients_m: Array  # [U, 2] positions
    channels_m: Array  # [N, 2] where each channel is received
    centre_m: Array  # [2] where the downlink is sent from
    uplink_gain: Array  # [U, N] mean power gain
    downlink_gain: Array  # [U] mean
    uplink_noise_w: Array  # [U, N] noise and interference
    downlink_noise_w: Array  # [U]
    cycles_per_sample: Array  # [U]
    capacitance: Array  # [U]


class Conditions(NamedTuple):
    """What a round brings."""

    uplink_gain: Array  # [U, N] power gain, fading included
    downlink_gain: Array  # [U]
    cpu_hz: Array  # [U]


def make_world(radio: WirelessConfig, num_clients: int, seed: int) -> World:
    """Places clients and channels, and finds their mean gains.

    Paper: Setup, clients and channels uniform in the square.
    """
    places = rng.host_stream(seed, "placement")
    clients = places.uniform(0.0, radio.area_m, (num_clients, 2))
    centre = np.full(2, radio.area_m / 2)
    channels = np.tile(centre, (radio.num_channels, 1))
    if radio.geometry == "points":
        places = rng.host_stream(seed, "channel_placement")
        channels = places.uniform(0.0, radio.area_m, (radio.num_channels, 2))
    loss_db = np.empty((num_clients, radio.num_channels))
    for number, place in enumerate(channels):  # a table of all pairs at once is large
        loss_db[:, number] = link.path_loss_db(_distance(clients, place, radio))
    if radio.shadowing_db > 0:
        shadows = rng.host_stream(seed, "shadowing")
        loss_db = loss_db + shadows.normal(0.0, radio.shadowing_db, loss_db.shape)
    downlink_db = link.path_loss_db(_distance(clients, centre, radio))
    given_gain = client_values(radio, "downlink_gain", seed, num_clients)
    interference = client_values(
        radio, "interference_w", seed, num_clients, radio.num_channels
    )
    return World(
        clients,
        channels,
        centre,
        units.db_to_ratio(-loss_db),
        np.where(given_gain > 0, given_gain, units.db_to_ratio(-downlink_db)),
        radio.noise_w + interference,
        radio.noise_w + np.mean(interference, axis=1),
        client_values(radio, "cycles_per_sample", seed, num_clients),
        client_values(radio, "capacitance", seed, num_clients),
    )


def _distance(a: Array, b: Array, radio: WirelessConfig) -> Array:
    return np.maximum(np.linalg.norm(a - b, axis=-1), radio.min_distance_m)


def observe(
    world: World,
    radio: WirelessConfig,
    seed: int,
    round_index: int,
    *,
    pilot: bool = False,
) -> Conditions:
    """The round's gains and CPU speeds (paper: sections III-A and III-B).

    Pilot rounds have the same statistics and draws of their own.
    """
    prefix = "pilot_" if pilot else ""
    gain = world.uplink_gain
    if radio.fading:
        fading = rng.host_stream(seed, f"{prefix}fading", round_index)
        gain = gain * fading.exponential(1.0, gain.shape)
    down = world.downlink_gain
    if radio.downlink_fading:
        fading = rng.host_stream(seed, f"{prefix}downlink_fading", round_index)
        down = down * fading.exponential(1.0, down.shape)
    cpus = rng.host_stream(seed, f"{prefix}cpu", round_index)
    speed = cpus.uniform(radio.cpu_low_hz, radio.cpu_high_hz, len(gain))
    return Conditions(gain, down, speed)
