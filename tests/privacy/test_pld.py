"""Is the privacy-loss epsilon right, and tighter than Renyi's?"""

import dp_accounting
import numpy as np
import pytest
from scipy import optimize, stats

from dpsparfl_jax.privacy.mechanism import Mechanism, Release
from dpsparfl_jax.privacy.pld import PldAccountant
from dpsparfl_jax.privacy.rdp import RdpAccountant
from tests.marks import mostly_slow
from tests.privacy.grid import GRID, mechanism

ONCE = np.array([1])
OURS = PldAccountant()


def library(*releases, interval=1e-3):
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=interval)
    for q, sigma, count in releases:
        gaussian = dp_accounting.GaussianDpEvent(sigma)
        step = dp_accounting.PoissonSampledDpEvent(q, gaussian)
        accountant.compose(step, count)
    return accountant


@pytest.mark.parametrize(
    ("q", "sigma", "steps"), mostly_slow(sorted({setting[:3] for setting in GRID}), 5)
)
def test_equals_dp_accounting_and_is_below_renyi(q, sigma, steps):
    interval = OURS.interval_for(mechanism(q, sigma, steps, 0.5))
    accountant = library((q, sigma, steps), interval=interval)
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


@pytest.mark.parametrize(
    ("sigma", "steps", "delta"),
    [
        (1.0, 100, 1e-10),
        (10.0, 10_000, 1e-12),
        (30.0, 10_000, 1e-12),
        (100.0, 1_000_000, 1e-10),
    ],
)
def test_rounding_never_makes_epsilon_too_small(sigma, steps, delta):
    """Against the closed form, where thousands of convolutions meet a tiny delta."""
    mu = np.sqrt(steps) / sigma

    def log_delta(epsilon):
        first = stats.norm.logcdf(mu / 2 - epsilon / mu)
        second = epsilon + stats.norm.logcdf(-mu / 2 - epsilon / mu)
        return first + np.log1p(-np.exp(second - first)) - np.log(delta)

    exact = optimize.brentq(log_delta, 1e-3, 500, xtol=1e-10)
    ours = OURS.epsilon(mechanism(1.0, sigma, steps, delta), ONCE)[0]
    assert ours >= exact * (1 - 1e-9)
    if steps * 2.0**-52 < delta / 10:
        assert ours <= exact * 1.001


def test_a_delta_that_rounding_hides_is_out_of_reach():
    hidden = mechanism(0.01, 1.0, 60_000, 1e-13)
    assert OURS.epsilon(hidden, ONCE)[0] == np.inf


@pytest.mark.parametrize(
    ("q", "sigma", "steps"),
    [(0.001, 2.0, 120_000), (0.001, 5.0, 120_000), (0.01, 20.0, 120_000)],
)
def test_tiny_losses_get_a_finer_grid(q, sigma, steps):
    setting = mechanism(q, sigma, steps, 1e-3)
    assert OURS.interval_for(setting) < OURS.interval
    ours = OURS.epsilon(setting, ONCE)[0]
    assert ours <= RdpAccountant().epsilon(setting, ONCE)[0]


def test_releases_of_different_scale_share_a_grid_that_holds_both():
    """The loud one asks for a fine grid, the silent one for a coarse one."""
    loud, silent = Release(0.1, 50.0, 40), Release(0.01, 0.05, 1)
    both = OURS.interval_for(Mechanism(silent, 1e-3, 0.0, loud))
    assert OURS.interval_for(Mechanism(loud, 1e-3)) < OURS.interval
    assert both == OURS.interval_for(Mechanism(silent, 1e-3)) > OURS.interval
    alone = OURS.epsilon(Mechanism(silent, 1e-3), ONCE)[0]
    together = OURS.epsilon(Mechanism(silent, 1e-3, 0.0, loud), ONCE)[0]
    assert alone <= together <= alone + 1


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


@pytest.mark.parametrize(
    "sigma", [pytest.param(0.1, marks=pytest.mark.slow), 0.02, 0.001, 1e-5]
)
def test_very_little_noise_does_not_exhaust_memory(sigma):
    silent = Mechanism(Release(0.01, sigma, 60), 1e-3)
    assert OURS.epsilon(silent, ONCE)[0] > 50


def test_very_much_noise_costs_almost_nothing():
    loud = Mechanism(Release(0.01, 1e4, 60), 1e-3)
    assert 0 <= OURS.epsilon(loud, ONCE)[0] < 1e-3
