"""Does Opacus agree? Runs where the `peers` extra is installed."""

import numpy as np
import pytest

from dpsparfl_jax.privacy.rdp import RdpAccountant
from tests.privacy.grid import GRID, mechanism

opacus = pytest.importorskip("opacus.accountants")

ORDERS = np.array(opacus.RDPAccountant.DEFAULT_ALPHAS)


@pytest.mark.filterwarnings("ignore:Optimal order is")
@pytest.mark.parametrize("setting", GRID)
def test_epsilon_equals_opacus_at_the_same_orders(setting):
    q, sigma, steps, delta = setting
    accountant = opacus.RDPAccountant()
    accountant.history = [(sigma, q, steps)]
    theirs, _ = accountant.get_privacy_spent(delta=delta, alphas=list(ORDERS))
    ours = RdpAccountant(ORDERS).epsilon(mechanism(*setting), np.array([1]))[0]
    assert ours == pytest.approx(theirs, rel=1e-6)
