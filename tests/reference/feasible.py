"""Does a schedule keep to the constraints C1-C6? Recomputed from the equations."""

import math

import numpy as np

from dpsparfl_jax import rng
from dpsparfl_jax.wireless.world import make_world, observe


def check_allocation(problem, found):
    """C1-C6 of one round's allocation."""
    assert len(set(found.client)) == len(found.client)
    assert list(found.channel) == sorted(set(found.channel))
    snr = problem.snr_per_w[found.client, found.channel]
    bits = problem.bits_fixed + problem.bits_per_rate * found.keep_rate
    airtime = bits / (problem.bandwidth_hz * np.log2(1 + found.power_w * snr))
    assert np.all(found.power_w <= problem.max_power_w * (1 + 1e-9))
    energy = problem.energy_j[found.client]
    assert np.all(found.power_w * airtime <= energy * (1 + 1e-6))
    delay = problem.base_delay_s[found.client] + airtime
    np.testing.assert_allclose(delay, found.delay_s, rtol=1e-7)


def check_schedule(schedule, settings, sizes, num_parameters, rtol=1e-9):
    """Raises AssertionError at the first violated constraint.

    What was planned must keep to the constraints at the gains that the plan knew, and
    what happened must follow from the true ones.
    """
    radio, limits = settings.wireless, settings.schedule
    made = make_world(radio, len(sizes), settings.seed)
    interference = _values(radio.interference_w, len(sizes))
    cycles = _values(radio.cycles_per_sample, len(sizes))
    capacitance = _values(radio.capacitance, len(sizes))
    margin = 10 ** (-limits.margin_db / 10)
    ap_w = 1e-3 * 10 ** (radio.ap_power_dbm / 10)
    most_w = 1e-3 * 10 ** (radio.max_power_dbm / 10)
    down_hz = radio.bandwidth_hz * (
        radio.num_channels if radio.downlink == "shared" else 1
    )
    energy = limits.energy_budget_j or limits.energy_power_w * limits.delay_target_s
    spent = np.zeros(len(sizes), int)
    for t in range(schedule.num_rounds):
        seen = observe(made, radio, settings.seed, t)
        row = schedule.client[t]
        used = [int(client) for client in row if client >= 0]
        assert len(set(used)) == len(used), "C2: a client on two channels"
        errors, outages = _surprises(settings, t, seen.uplink_gain.shape)
        deadline = schedule.planned_delay_s[t]
        slowest = planned_slowest = 0.0
        for channel, client in enumerate(row):
            if client < 0:
                continue
            assert spent[client] < schedule.affordable[client], "a retired client"
            keep, power = schedule.keep_rate[t, channel], schedule.power_w[t, channel]
            least = limits.keep_rate or limits.keep_min
            assert least * (1 - rtol) <= keep <= 1 + rtol, "C4: keep rate"
            assert 0 < power <= most_w * (1 + rtol), "C5: power"
            examples = settings.training.local_steps * (
                sizes[client]
                if radio.local_work == "dataset"
                else settings.training.batch_size
            )
            cpu, per_sample = seen.cpu_hz[client], cycles[client]
            noise_w = 1e-3 * 10 ** (radio.noise_dbm / 10) + interference[client]
            train_s = examples * per_sample / cpu
            train_j = capacitance[client] * examples * per_sample * cpu**2 / 2
            mask = num_parameters if radio.payload == "mask" else 64
            bits = radio.value_bits * keep * num_parameters + mask
            snr = power * seen.uplink_gain[client, channel] / noise_w

            def airtime(ratio, bits=bits, snr=snr):
                return bits / (radio.bandwidth_hz * math.log2(1 + ratio * snr))

            down_snr = ap_w * seen.downlink_gain[client] / noise_w
            down_s = (
                radio.value_bits * num_parameters / (down_hz * math.log2(1 + down_snr))
            )
            planned_s = airtime(margin)
            assert train_j + power * planned_s <= energy * (1 + 1e-6), "C6: energy"
            base = down_s + train_s
            planned_slowest = max(planned_slowest, base + planned_s)
            limit = limits.round_limit_s or math.inf
            assert base + planned_s <= limit * (1 + 1e-9), "round limit"
            upload_s, late, arrived = _what_happens(
                limits.on_late,
                airtime(errors[client, channel]),
                planned_s,
                bool(outages[client, channel]),
                base,
                deadline,
            )
            assert late == schedule.late[t, channel]
            assert arrived == schedule.arrived[t, channel]
            slowest = max(slowest, base + upload_s)
            delay = schedule.delay_s[t, channel]
            assert math.isclose(base + upload_s, delay, rel_tol=1e-6)
            assert math.isclose(bits, schedule.bits[t, channel], rel_tol=1e-9)
            upload = schedule.upload_s[t, channel]
            assert math.isclose(upload_s, upload, rel_tol=1e-6, abs_tol=1e-6)
            if limits.keep_rate:
                assert math.isclose(keep, limits.keep_rate)
            upload_j = schedule.upload_j[t, channel]
            assert math.isclose(power * upload_s, upload_j, rel_tol=1e-6)
            assert math.isclose(train_j, schedule.training_j[t, channel], rel_tol=1e-9)
        assert math.isclose(planned_slowest, deadline, rel_tol=1e-6)
        for client in used:
            spent[client] += 1
        assert math.isclose(slowest, schedule.round_delay_s[t], rel_tol=1e-6)
        _check_queues(schedule, limits, t, used)
    np.testing.assert_array_equal(spent, schedule.participations)
    assert np.all(spent <= schedule.affordable)
    if schedule.num_rounds:
        assert np.all(schedule.epsilon_spent[-1] <= schedule.budget)


def _values(setting, clients):
    """A number of every client, from one number or a tuple of them."""
    return setting if isinstance(setting, tuple) else [setting] * clients


def _surprises(settings, t, shape):
    """What the plan did not know: ratio of true to known gains, and outages."""
    errors = rng.host_stream(settings.seed, "gain_error", t).standard_normal(shape)
    drawn = rng.host_stream(settings.seed, "outage", t).random(shape)
    radio = settings.wireless
    return 10 ** (radio.gain_error_db * errors / 10), drawn < radio.outage


def _what_happens(on_late, true_s, planned_s, outage, base, deadline):
    """(time on the air, late, arrived) of one upload, told step by step."""
    finished = base + (planned_s if outage else 0.0) + true_s
    if finished <= deadline * (1 + 1e-9):
        return finished - base, False, True
    if on_late == "drop":
        return deadline - base, True, False
    if on_late == "retry":
        return deadline - base + true_s, True, True
    return finished - base, True, True


def _check_queues(schedule, limits, t, used):
    """The queues before round t + 1 follow from those before round t."""
    unit = limits.delay_target_s if limits.delay_unit == "target" else 1.0
    late = (schedule.round_delay_s[t] - limits.delay_target_s) / unit
    expected = max(schedule.delay_queue[t] + late, 0.0)
    last = t + 1 == schedule.num_rounds
    following = schedule.last_delay_queue if last else schedule.delay_queue[t + 1]
    assert math.isclose(following, expected, rel_tol=1e-9, abs_tol=1e-9)
    if last:
        return
    chosen = np.zeros(len(schedule.rate))
    chosen[used] = 1
    surplus = chosen - schedule.rate
    before, after = schedule.fairness_queue[t], schedule.fairness_queue[t + 1]
    expected = {
        "signed": before + surplus,
        "paper": np.maximum(before + surplus, 0),
        "c7": np.maximum(before - surplus, 0),
    }[limits.fairness]
    np.testing.assert_allclose(after, expected, atol=1e-12)
