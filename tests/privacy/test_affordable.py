"""Do the paper's settings afford what independent calculations say they do?

1000 records, 60 steps a participation, delta 1e-3. The tables were computed apart from
this package, by quadrature on a coarser grid of orders and with dp-accounting's PLDs.
Where that grid misses the best order, ours affords more; `BETTER` lists those entries,
and the plain quadrature of tests/reference confirms each of them.
"""

import numpy as np
import pytest

from dpsparfl_jax.privacy import rdp as rdp_lib
from dpsparfl_jax.privacy.accountants import all_accountants
from dpsparfl_jax.privacy.mechanism import Mechanism, Release
from tests.marks import mostly_slow
from tests.reference import accounting

ACCOUNTANTS = all_accountants()

EPSILONS = (2, 3, 5, 10, 15, 20)
TABLE = (  # noise multiplier, batch size, participations under RDP, under PLD
    (0.6, 4, "3 22 86 332 655 1029", "19 46 126 416 785 1205"),
    (0.6, 8, "0 3 18 80 164 263", "3 10 29 105 202 313"),
    (0.6, 10, "0 2 11 51 106 170", "2 6 18 67 131 204"),
    (0.6, 16, "0 0 3 19 42 68", "0 2 7 26 53 83"),
    (0.6, 20, "0 0 2 12 27 44", "0 1 4 17 34 54"),
    (0.6, 32, "0 0 0 4 10 18", "0 0 1 6 14 22"),
    (0.6, 50, "0 0 0 2 4 7", "0 0 0 2 6 10"),
    (0.6, 64, "0 0 0 1 2 5", "0 0 0 1 3 6"),
    (0.5, 4, "0 1 14 87 194 323", "2 8 30 124 252 401"),
    (0.5, 8, "0 0 2 21 51 87", "0 1 7 32 68 110"),
    (0.5, 10, "0 0 1 14 33 57", "0 1 4 21 45 73"),
    (0.5, 16, "0 0 0 5 13 24", "0 0 1 8 19 31"),
    (0.5, 20, "0 0 0 3 9 16", "0 0 1 5 12 21"),
    (0.5, 32, "0 0 0 1 3 6", "0 0 0 2 5 9"),
    (0.5, 50, "0 0 0 0 1 3", "0 0 0 1 2 4"),
    (0.5, 64, "0 0 0 0 1 2", "0 0 0 0 1 2"),
    (0.4, 4, "0 0 0 10 31 59", "0 0 3 20 49 84"),
    (0.4, 8, "0 0 0 2 9 18", "0 0 0 6 14 26"),
    (0.4, 10, "0 0 0 1 6 12", "0 0 0 4 10 18"),
    (0.4, 16, "0 0 0 0 2 5", "0 0 0 1 4 8"),
    (0.4, 20, "0 0 0 0 1 3", "0 0 0 1 3 5"),
    (0.4, 32, "0 0 0 0 0 1", "0 0 0 0 1 2"),
    (0.4, 50, "0 0 0 0 0 0", "0 0 0 0 0 1"),
    (0.4, 64, "0 0 0 0 0 0", "0 0 0 0 0 0"),
    (0.4, 2, "0 0 2 40 111 204", "0 2 11 72"),
    (0.4, 1, "0 0 12 152 399 713", "2 8 47 260"),
    (0.5, 2, "0 8 67 354 754 1227", "12 38 128 482"),
    (0.6, 2, "29 120 389 1363 2619 4063", "93 209 529 1659"),
)


@pytest.mark.parametrize(("sigma", "batch", "rdp", "pld"), mostly_slow(TABLE, 4))
def test_table(sigma, batch, rdp, pld):
    mechanism = Mechanism(Release(batch / 1000, sigma, 60), 1e-3)
    for name, text in (("rdp", rdp), ("pld", pld)):
        counts = np.array(text.split(), int)
        budgets = np.array(EPSILONS[: len(counts)])
        within = ACCOUNTANTS[name].epsilon(mechanism, counts)
        beyond = ACCOUNTANTS[name].epsilon(mechanism, counts + 1)
        assert np.all(within <= budgets)
        assert np.all(beyond > budgets)


@pytest.mark.parametrize(
    ("sigma", "batch", "counts"),
    [
        (0.6, 8, (0, 0, 8, 53)),
        (0.5, 4, (0, 0, 4, 52)),
        (0.4, 2, (0, 0, 0, 18)),
        (1.0, 24, (2, 6, 18, 63)),
        (1.0, 16, (6, 16, 42, 145)),
    ],
)
def test_table_at_a_smaller_delta(sigma, batch, counts):
    mechanism = Mechanism(Release(batch / 1000, sigma, 60), 1e-5)
    counts = np.array(counts)
    budgets = np.array(EPSILONS[:4])
    assert np.all(ACCOUNTANTS["pld"].epsilon(mechanism, counts) <= budgets)
    assert np.all(ACCOUNTANTS["pld"].epsilon(mechanism, counts + 1) > budgets)


@pytest.mark.parametrize(
    ("examples", "count"), [(300, 4), (600, 18), (1000, 51), (1800, 169), (2100, 232)]
)
def test_small_clients_are_out_soon(examples, count):
    """At a fixed batch the affordable participations grow like |D|^2 (RDP, eps 10)."""
    mechanism = Mechanism(Release(10 / examples, 0.6, 60), 1e-3)
    epsilon = ACCOUNTANTS["rdp"].epsilon(mechanism, np.array([count, count + 1]))
    assert epsilon[0] <= 10 < epsilon[1]


BETTER = (  # q, noise multiplier, steps, epsilon, participations
    (0.008, 0.4, 60, 20, 18),  # the coarser grid: 17
    (0.002, 0.4, 60, 20, 204),  # 203
    (10 / 1800, 0.6, 60, 10, 169),  # 168
    (10 / 2100, 0.6, 60, 10, 232),  # 231
    (0.064, 0.6, 1, 15, 175),  # 170
    (0.064, 0.6, 1, 20, 301),  # 286
    (0.016, 0.6, 1, 10, 1182),  # 1179
)


@pytest.mark.parametrize(("q", "sigma", "steps", "epsilon", "count"), BETTER)
def test_finer_orders_afford_more(q, sigma, steps, epsilon, count):
    mechanism = Mechanism(Release(q, sigma, steps), 1e-3)
    ours = ACCOUNTANTS["rdp"].epsilon(mechanism, np.array([count, count + 1]))
    assert ours[0] <= epsilon < ours[1]
    near = rdp_lib.ORDERS[rdp_lib.ORDERS < 4]
    plain = accounting.epsilon(q, sigma, steps * count, 1e-3, near)
    assert plain <= epsilon
