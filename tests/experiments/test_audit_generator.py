"""Does a good generator pass, and one that repeats itself fail?

A good one fails the check for one choice of keys in ten thousand; keys are fixed.
"""

import pytest

from dpsparfl_jax import rng
from experiments.auditing import generator
from tests.broken_mechanisms import broken

SMALL = {"seeds": 32, "clients": 4, "rounds": 4}


def names_of(tests):
    return {each.name for each in tests if each.is_broken}


@pytest.mark.parametrize(
    "name", ["threefry", pytest.param("threefry13", marks=pytest.mark.slow)]
)
def test_generators_pass(name):
    tests = generator.check(name, **SMALL)
    assert names_of(tests) == set()
    assert len({each.name for each in tests}) == len(tests) == 31


def test_noise_that_does_not_know_its_round_is_noticed():
    with broken("noise key without round"):
        noticed = names_of(generator.check(**SMALL))
    assert {"noise: next round", "keys that occur twice"} <= noticed


@pytest.mark.slow
def test_a_wrong_rate_is_noticed():
    with broken("sampling rate doubled"):
        assert "sampling: rate" in names_of(generator.check(**SMALL))


def test_the_edge_of_the_support_is_the_generators_own():
    """Between what accountants can neglect and what 32 bits can give."""
    assert generator.largest_noise() == pytest.approx(rng.LARGEST_NOISE, rel=1e-6)
