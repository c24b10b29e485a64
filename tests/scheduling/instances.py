"""Random rounds of the paper's cell, easy and hard."""

import numpy as np

from dpsparfl_jax.config import TrainingConfig, WirelessConfig
from dpsparfl_jax.scheduling.problem import RoundProblem
from dpsparfl_jax.wireless import link, world

PARAMETERS = 1_663_370  # the MNIST CNN
TRADEOFF = 50.0


def random_problem(
    seed,
    clients=20,
    channels=5,
    energy_j=24.0,
    price=None,
    fairness=1.0,
    unequal=False,
    aware=False,
):
    """A round in the default world with random queues (delay price per second)."""
    rng = np.random.default_rng([seed, clients, channels])
    radio = WirelessConfig(num_channels=channels)
    made = world.make_world(radio, clients, seed)
    seen = world.observe(made, radio, seed, 0)
    training = TrainingConfig(batch_size=8)
    sizes = (
        rng.choice([300, 600, 1800, 2100], clients)
        if unequal
        else np.full(clients, 1000)
    )
    examples = link.local_examples(sizes, training, radio)
    base = link.downlink_delay(
        seen.downlink_gain, made.downlink_noise_w, PARAMETERS, radio
    )
    cycles = made.cycles_per_sample
    base = base + link.training_delay(examples, cycles, seen.cpu_hz)
    spent = link.training_energy(examples, cycles, seen.cpu_hz, made.capacitance)
    fixed, per_rate = link.payload_terms(PARAMETERS, PARAMETERS, radio)
    count = min(clients, channels)
    cap = rng.uniform(0.3, 1.0, clients) if aware else np.ones(clients)
    return RoundProblem(
        weight=rng.normal(0, fairness, clients),
        reward=TRADEOFF * sizes / sizes.mean() / count,
        curvature=1 / cap if aware else np.zeros(clients),
        delay_price=rng.uniform(0.05, 0.5) if price is None else price,
        base_delay_s=base,
        snr_per_w=seen.uplink_gain / made.uplink_noise_w,
        energy_j=energy_j - spent,
        max_power_w=radio.max_power_w,
        bandwidth_hz=radio.bandwidth_hz,
        bits_fixed=fixed,
        bits_per_rate=per_rate,
        keep_min=0.1,
        keep_max=cap,
    )
