"""Is the Renyi epsilon right, against the equations and against other accountants?"""

import dp_accounting
import numpy as np
import pytest
from absl import logging

from dpsparfl_jax.privacy import rdp
from dpsparfl_jax.privacy.mechanism import Mechanism, Release
from tests.marks import mostly_slow
from tests.privacy.grid import GRID, mechanism
from tests.reference import accounting

ONCE = np.array([1])
FRACTIONAL = 1.0 + np.geomspace(0.05, 30, 24)
WHOLE = np.arange(2.0, 41.0)


def library_divergence(q, sigma, steps, orders):
    accountant = dp_accounting.rdp.RdpAccountant(orders=orders)
    step = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma))
    return accountant.compose(step, steps)


@pytest.mark.parametrize(
    ("q", "sigma"), mostly_slow(sorted({setting[:2] for setting in GRID}), 5)
)
def test_equals_an_independent_quadrature(q, sigma):
    accountant = rdp.RdpAccountant(FRACTIONAL)
    for _, _, steps, delta in [s for s in GRID if s[:2] == (q, sigma)]:
        ours = accountant.epsilon(mechanism(q, sigma, steps, delta), ONCE)[0]
        plain = accounting.epsilon(q, sigma, steps, delta, FRACTIONAL)
        assert ours == pytest.approx(plain, rel=1e-6)


@pytest.mark.parametrize("setting", GRID)
def test_equals_dp_accounting_at_whole_orders(setting):
    q, sigma, steps, delta = setting
    ours = rdp.RdpAccountant(WHOLE).epsilon(mechanism(*setting), ONCE)[0]
    library = library_divergence(q, sigma, steps, WHOLE).get_epsilon(delta)
    assert ours == pytest.approx(library, rel=1e-6)


@pytest.mark.parametrize(("q", "sigma"), [(0.008, 0.6), (0.064, 0.4), (0.001, 2.0)])
def test_dp_accounting_is_never_below_at_fractional_orders(q, sigma):
    """Its series adds the absolute values of alternating terms: an upper bound."""
    orders = np.array([1.7, 2.3, 3.5, 4.5])
    ours = rdp.divergence(Release(q, sigma, 1), tuple(orders))
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        library = library_divergence(q, sigma, 1, orders).rdp
    finally:
        logging.set_verbosity(verbosity)
    assert np.all(library >= ours * (1 - 1e-9))
    exact = [max(accounting.renyi_divergences(q, sigma, a)) for a in orders]
    np.testing.assert_allclose(ours, exact, rtol=1e-6)


@pytest.mark.parametrize("q", [1e-7, 1e-5, 1e-3])
def test_small_sampling_rates_lose_no_digits(q):
    """For q -> 0 the divergence is alpha/2 q^2 (exp(1/sigma^2) - 1) (second order)."""
    sigma, orders = 2.0, (1.5, 2.0, 3.0)
    ours = rdp.divergence(Release(q, sigma, 1), orders)
    leading = np.array(orders) / 2 * q**2 * np.expm1(1 / sigma**2)
    np.testing.assert_allclose(ours, leading, rtol=4 * q + 1e-9)


def test_without_subsampling_it_is_the_gaussian_mechanism():
    orders = np.array([1.1, 2.0, 7.5])
    np.testing.assert_allclose(
        rdp.divergence(Release(1.0, 0.7, 5), tuple(orders)), 5 * orders / (2 * 0.49)
    )
    nearly = rdp.divergence(Release(1 - 1e-12, 0.7, 5), tuple(orders))
    np.testing.assert_allclose(nearly, 5 * orders / (2 * 0.49), rtol=1e-9)


def test_the_printed_double_mixture_squares_the_sampling_rate():
    """Mixing twice is mixing once with q^2: far too small a divergence."""
    q, sigma, alpha = 0.064, 0.6, 2.0
    printed = accounting.renyi_divergences(q**2, sigma, alpha)[0]
    z = np.linspace(-8, 12, 400_001)
    density = np.exp(-(z**2) / (2 * sigma**2)) / (sigma * np.sqrt(2 * np.pi))
    once = 1 - q + q * np.exp((2 * z - 1) / (2 * sigma**2))
    twice = 1 - q + q * once
    moment = np.sum(density * twice**alpha) * (z[1] - z[0])
    assert np.log(moment) / (alpha - 1) == pytest.approx(printed, rel=1e-6)
    correct = rdp.divergence(Release(q, sigma, 1), (alpha,))[0]
    assert correct > 10 * printed


@pytest.mark.slow
def test_the_order_grid_is_fine_enough():
    finer = rdp.RdpAccountant(1.0 + 0.05 * 1.002 ** np.arange(4959))
    for setting in GRID[::6]:
        coarse = rdp.RdpAccountant().epsilon(mechanism(*setting), ONCE)[0]
        fine = finer.epsilon(mechanism(*setting), ONCE)[0]
        loss = 6e-4 if fine > 0.1 else 3e-3
        assert coarse <= fine * (1 + loss)


def test_nothing_released_costs_nothing():
    tiny = Mechanism(Release(0.01, 1.0, 60), 1e-9)
    assert rdp.RdpAccountant().epsilon(tiny, np.array([0]))[0] == 0


@pytest.mark.parametrize("setup", [None, Release(0.1, 20.0, 40)])
def test_orders_that_are_left_out_do_not_spoil_the_others(setup):
    """With so little noise high orders are infinite, and 0 times infinity is nan."""
    little = Mechanism(Release(0.01, 0.2, 60), 1e-3, 0.0, setup)
    epsilon = rdp.RdpAccountant().epsilon(little, np.array([0, 1, 2]))
    assert np.all(np.isfinite(epsilon))
    assert np.all(np.diff(epsilon) > 0)
    low = rdp.ORDERS[rdp.ORDERS < 3]
    plain = accounting.epsilon(0.01, 0.2, 120, 1e-3, low[::4])
    if setup is None:
        assert epsilon[2] == pytest.approx(plain, rel=1e-3)


def test_very_little_noise_is_infinitely_costly_not_an_error():
    silent = Mechanism(Release(0.01, 1e-3, 60), 1e-3)
    assert rdp.RdpAccountant().epsilon(silent, ONCE)[0] == np.inf
    little = Mechanism(Release(0.01, 0.05, 60), 1e-3)
    assert 1e3 < rdp.RdpAccountant().epsilon(little, ONCE)[0] < np.inf
