"""Queues: signs, units, warm start."""

import dataclasses

import numpy as np
import pytest

from dpsparfl_jax.config import ScheduleConfig
from dpsparfl_jax.scheduling import queues

BASE = ScheduleConfig(warm_start=False)


def run(settings, selections, delays, rates):
    state = queues.first_queues(len(rates))
    for selected, delay in zip(selections, delays, strict=True):
        state = queues.update(
            settings, state, selected=selected, delay_s=delay, rates=rates
        )
    return state


def random_run(seed=0, rounds=40, users=6):
    rng = np.random.default_rng(seed)
    selections = rng.random((rounds, users)) < 0.4
    return selections, rng.uniform(60, 200, rounds), rng.uniform(0.1, 0.6, users)


def test_signed_queues_are_never_clipped():
    selections, delays, rates = random_run()
    signed = run(BASE, selections, delays, rates)
    np.testing.assert_allclose(
        signed.fairness, (selections - rates).sum(axis=0), atol=1e-12
    )
    weights = queues.selection_weights(BASE, signed)
    np.testing.assert_allclose(weights, signed.fairness)


def test_printed_and_c7_queues_are_clipped_on_opposite_sides():
    selections, delays, rates = random_run()
    for kind, sign in (("paper", 1), ("c7", -1)):
        settings = dataclasses.replace(BASE, fairness=kind)
        expected = np.zeros(6)
        for selected in selections:
            expected = np.maximum(expected + sign * (selected - rates), 0)
        state = run(settings, selections, delays, rates)
        np.testing.assert_allclose(state.fairness, expected)
        np.testing.assert_allclose(
            queues.selection_weights(settings, state), sign * state.fairness
        )


@pytest.mark.parametrize("unit", ["target", "seconds"])
def test_the_delay_queue_and_its_price_do_not_depend_on_the_unit_twice(unit):
    selections, delays, rates = random_run()
    settings = dataclasses.replace(BASE, delay_unit=unit)
    state = run(settings, selections, delays, rates)
    scale = 120.0 if unit == "target" else 1.0
    expected = 0.0
    for delay in delays:
        expected = max(expected + (delay - 120.0) / scale, 0.0)
    assert state.delay == pytest.approx(expected)
    assert queues.delay_price(settings, state) == pytest.approx(expected / scale)
