"""Do lower bounds stay below the claims of a good mechanism, and rise above those of a
bad one?

Bounds hold with a confidence of 1 - `SIGNIFICANCE`, keys are fixed: a test of a good
mechanism fails by chance for at most one choice of keys in a thousand.
"""

import dataclasses

import numpy as np
import pytest

from dpsparfl_jax.privacy.mechanism import Mechanism, Release
from experiments.auditing import bounds, white_box
from experiments.auditing.program import Setting
from tests.broken_mechanisms import (
    DELTA,
    FULL,
    SAMPLED,
    SIGNIFICANCE,
    broken,
    crowd,
    full_batches,
    poisson_batches,
)

pytest.importorskip("jax_privacy")
FEW = 10_000  # trials, where they are enough


@pytest.fixture(scope="module")
def sampled_scores():
    return white_box.score(SAMPLED, FEW)


def judged(scores, setting, delta=DELTA):
    claims = bounds.claimed(setting.mechanism(delta), setting.rounds)
    proved = bounds.lower_bounds(*scores, delta=delta, significance=SIGNIFICANCE)
    return claims, proved


def test_one_gaussian_release_is_audited_tightly():
    claims, proved = judged(white_box.score(FULL, 50_000), FULL)
    assert 0.7 * claims["pld"] < proved.clopper_pearson <= claims["pld"]
    assert 0.9 * claims["pld"] < proved.gaussian_fit <= claims["pld"]


def test_poisson_batches_and_masks_are_audited_tightly(sampled_scores):
    claims, proved = judged(sampled_scores, SAMPLED)
    assert 0.3 * claims["pld"] < proved.clopper_pearson <= claims["pld"]
    assert claims["pld"] < claims["rdp"]


def test_scores_are_log_likelihood_ratios(sampled_scores):
    """Under the null their exponential has the mean one; a wrong rate has not."""
    _, out = sampled_scores
    ratio = np.exp(out)
    error = ratio.std() / np.sqrt(ratio.size)
    assert abs(ratio.mean() - 1) < 4.5 * error  # by chance: 7e-6
    assert np.mean(out) < -10 * out.std() / np.sqrt(out.size)


@pytest.mark.parametrize(
    "fault", [pytest.param("noise halved", marks=pytest.mark.slow), "noise 20% less"]
)
def test_too_little_noise_is_noticed(fault):
    with broken(fault):
        assert full_batches().is_broken


def test_a_doubled_sampling_rate_is_noticed():
    with broken("sampling rate doubled"):
        assert poisson_batches(FEW).is_broken


def test_the_double_mixture_is_noticed(sampled_scores):
    with broken("double mixture in the accountant"):
        claims, proved = judged(sampled_scores, SAMPLED)
    assert proved.clopper_pearson > claims["rdp"]
    claims, proved = judged(sampled_scores, SAMPLED)
    assert proved.clopper_pearson < claims["rdp"]


def test_fixed_batches_are_noticed_and_poisson_ones_pass():
    assert not crowd(FEW).is_broken
    with broken("fixed batches accounted as Poisson"):
        assert crowd(FEW).is_broken


def test_of_several_steps_the_ratio_is_that_of_their_sum():
    """Against the densities themselves, by their definition."""
    setting = Setting(records=8, batch_size=2, noise_multiplier=0.7, steps=3)
    held = np.linspace(-3, 5, 9)
    rate, variance = 0.25, 3 * 0.7**2

    def density(mean):
        return np.exp(-((held - mean) ** 2) / (2 * variance))

    chances = [0.75**3, 3 * 0.25 * 0.75**2, 3 * 0.25**2 * 0.75, rate**3]
    mixture = sum(chance * density(k) for k, chance in enumerate(chances))
    expected = np.log(mixture / density(0))
    np.testing.assert_allclose(white_box.log_ratio(held, setting), expected)
    one = dataclasses.replace(setting, steps=1)
    known = np.log(0.75 + 0.25 * np.exp((2 * held - 1) / (2 * 0.7**2)))
    np.testing.assert_allclose(white_box.log_ratio(held, one), known)


def test_claims_are_those_of_the_accountants():
    claims = bounds.claimed(Mechanism(Release(0.01, 0.6, 60), 1e-3), 10)
    assert claims["rdp"] == pytest.approx(4.78, abs=0.01)
    assert claims["pld"] < claims["rdp"]
