"""Is the privacy-loss epsilon right, and tighter than Renyi's?"""

import dp_accounting
import numpy as np
import pytest
from scipy import optimize, stats

from dpsparfl_jax.privacy.mechanism import Mechanism, Release
from dpsparfl_jax.privacy.pld import PldAccountant
from dpsparfl_jax.privacy.rdp import RdpAccountant
from tests.privacy.grid import GRID, mechanism

ONCE = np.array([1])
OURS = PldAccountant()


def library(*releases, interval=OURS.interval):
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=interval)
    for q, sigma, count in releases:
        gaussian = dp_accounting.GaussianDpEvent(sigma)
        step = dp_accounting.PoissonSampledDpEvent(q, gaussian)
        accountant.compose(step, count)
    return accountant


@pytest.mark.parametrize(
    ("q", "sigma", "steps"), sorted({setting[:3] for setting in GRID})
)
def test_equals_dp_accounting_and_is_below_renyi(q, sigma, steps):
    accountant = library((q, sigma, steps))
    for delta in sorted({setting[3] for setting in GRID}):
        setting = mechanism(q, sigma, steps, delta)
        ours = OURS.epsilon(setting, ONCE)[0]
        assert ours == pytest.approx(accountant.get_epsilon(delta), rel=1e-6)
        assert ours <= RdpAccountant().epsilon(setting, ONCE)[0]


def test_many_participations_at_once_equal_one_at_a_time():
    setting = Mechanism(Release(0.01, 0.6, 60), 1e-3)
    counts = np.array([0, 1, 2, 17, 18, 19, 40, 67])
    together = OURS.epsilon(setting, counts)
    alone = [OURS.epsilon(setting, np.array([k]))[0] for k in counts]
    np.testing.assert_allclose(together, alone, rtol=1e-9)
    assert together[0] == 0
    assert np.all(np.diff(together) > 0)
    for k in (17, 67):
        theirs = library((0.01, 0.6, 60 * k)).get_epsilon(1e-3)
        assert together[list(counts).index(k)] == pytest.approx(theirs, rel=1e-6)


def test_without_subsampling_it_is_the_gaussian_mechanism():
    """delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu), mu = sqrt(n)/sigma.

    (Balle and Wang 2018.) The grid of losses makes ours larger, by at most 0.1%.
    """
    steps, sigma, delta = 9, 3.0, 1e-4
    mu = np.sqrt(steps) / sigma

    def excess(epsilon):
        exact = stats.norm.cdf(mu / 2 - epsilon / mu)
        exact -= np.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
        return exact - delta

    exact = optimize.brentq(excess, 0, 50, xtol=1e-12)
    ours = OURS.epsilon(mechanism(1.0, sigma, steps, delta), ONCE)[0]
    assert exact * (1 - 1e-7) <= ours <= exact * 1.001


@pytest.mark.parametrize("accountant", [OURS, RdpAccountant(np.arange(2.0, 60.0))])
def test_setup_is_composed_with_the_participations(accountant):
    setup, step = Release(0.1, 20.0, 40), Release(0.01, 0.8, 60)
    setting = Mechanism(step, 1e-3, 0.0, setup)
    epsilon = accountant.epsilon(setting, np.array([0, 3]))
    if accountant is OURS:
        theirs = library
    else:

        def theirs(*releases):
            renyi = dp_accounting.rdp.RdpAccountant(orders=accountant.orders)
            for q, sigma, count in releases:
                gaussian = dp_accounting.GaussianDpEvent(sigma)
                renyi.compose(dp_accounting.PoissonSampledDpEvent(q, gaussian), count)
            return renyi

    alone = theirs((0.1, 20.0, 40)).get_epsilon(1e-3)
    both = theirs((0.1, 20.0, 40), (0.01, 0.8, 180)).get_epsilon(1e-3)
    np.testing.assert_allclose(epsilon, [alone, both], rtol=1e-6)
    without = accountant.epsilon(Mechanism(step, 1e-3), np.array([3]))[0]
    assert without < epsilon[1]


@pytest.mark.parametrize("accountant", [OURS, RdpAccountant()])
def test_cut_off_batches_are_paid_from_delta(accountant):
    step = Release(0.01, 0.8, 60)
    charged = Mechanism(step, 1e-3, 1e-6)
    smaller_delta = Mechanism(step, 1e-3 - 5 * 60 * 1e-6)
    five = np.array([5])
    assert accountant.epsilon(charged, five) == accountant.epsilon(smaller_delta, five)
    # 17 participations cost 1.02e-3: nothing of delta is left, epsilon is infinite.
    assert np.isfinite(accountant.epsilon(charged, np.array([16]))[0])
    assert accountant.epsilon(charged, np.array([17]))[0] == np.inf


def test_very_little_noise_does_not_exhaust_memory():
    for sigma in (0.1, 0.02, 0.001):
        silent = Mechanism(Release(0.01, sigma, 60), 1e-3)
        assert OURS.epsilon(silent, ONCE)[0] > 50


def test_very_much_noise_costs_almost_nothing():
    loud = Mechanism(Release(0.01, 1e4, 60), 1e-3)
    assert 0 <= OURS.epsilon(loud, ONCE)[0] < 1e-3
