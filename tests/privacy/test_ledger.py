"""Does nobody ever overspend, and does everybody retire in time?"""

import dataclasses

import numpy as np
import pytest

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy.accountants import all_accountants
from dpsparfl_jax.privacy.curves import CurveStore
from dpsparfl_jax.privacy.ledger import Ledger, non_private_ledger, open_ledger
from dpsparfl_jax.privacy.mechanism import Mechanism, Release, client_groups

ACCOUNTANTS = all_accountants()

STORES = {name: CurveStore(accountant) for name, accountant in ACCOUNTANTS.items()}
SIZES = (300, 600, 1000)


def groups_of(sizes, batch=10, sigma=0.6, steps=60, setup=None, capacity=40):
    return client_groups(
        sizes,
        batch_size=batch,
        noise_multiplier=sigma,
        steps=steps,
        delta=1e-3,
        capacity=capacity,
        setup=setup,
    )


def random_world(rng):
    """A ledger with random sizes, budgets, noise, accountant and limit."""
    sizes = rng.choice(SIZES, rng.integers(1, 12))
    groups = groups_of(
        sizes,
        sigma=rng.choice([0.6, 0.8], sizes.size),
        setup=rng.choice([None, Release(0.1, 20.0, 40)]),
    )
    budgets = rng.uniform(0.5, 6.0, sizes.size)
    store = STORES[str(rng.choice(list(STORES)))]
    return groups, store, open_ledger(budgets, groups, store, limit=200)


@pytest.mark.parametrize("count", [12, pytest.param(500, marks=pytest.mark.slow)])
def test_nobody_overspends_in_random_worlds(count):
    """Random schedules; epsilon is recomputed by the accountant, not looked up."""
    rng = np.random.default_rng(1)
    checked: dict = {}
    retired = 0
    for _ in range(count):
        groups, store, ledger = random_world(rng)
        for _ in range(rng.integers(1, 60)):
            live = np.flatnonzero(ledger.live)
            if not live.size:
                break
            chosen = rng.choice(live, rng.integers(1, live.size + 1), replace=False)
            ledger = ledger.charge(chosen)
            assert np.all(ledger.epsilon_spent <= ledger.budget)
        retired += np.sum(~ledger.live)
        for client, count in enumerate(ledger.participations):
            mechanism = groups.mechanisms[groups.group[client]]
            if count == 0:
                continue
            key = (store.accountant.name, mechanism, int(count))
            if key not in checked:
                counts = np.array([count, count + 1])
                checked[key] = store.accountant.epsilon(mechanism, counts)
            spent, after_next = checked[key]
            budget = ledger.budget[client]
            assert spent <= budget * (1 + 1e-12)
            # Retired exactly when the next participation would overspend.
            assert ledger.live[client] == (after_next <= budget)
    assert retired > count


def test_retired_before_the_round_that_would_overspend():
    groups = groups_of([1000])
    ledger = open_ledger(np.array([5.0]), groups, STORES["rdp"], limit=100)
    assert ledger.affordable[0] == 11  # the table of test_affordable
    for _ in range(11):
        assert ledger.live[0]
        assert ledger.epsilon_next[0] <= 5
        ledger = ledger.charge([0])
    assert not ledger.live[0]
    spent, after_next = STORES["rdp"].accountant.epsilon(
        groups.mechanisms[0], np.array([11, 12])
    )
    assert ledger.epsilon_spent[0] == pytest.approx(spent, rel=1e-12)
    assert ledger.epsilon_next[0] == pytest.approx(after_next, rel=1e-12)
    assert spent <= 5 < after_next
    with pytest.raises(InputError, match="client 0 has retired"):
        ledger.charge([0])


def test_a_ledger_is_a_value():
    ledger = open_ledger(
        np.array([5.0, 9.0]), groups_of([1000] * 2), STORES["rdp"], limit=9
    )
    after = ledger.charge([1])
    assert list(ledger.participations) == [0, 0]
    assert list(after.participations) == [0, 1]
    assert ledger.charge([]) is ledger
    with pytest.raises(dataclasses.FrozenInstanceError):
        ledger.budget = after.budget


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ([0, 0], "not twice"),
        ([2], "from 0 to 1"),
        ([-1], "from 0 to 1"),
        ([True, False], "from 0 to 1"),
        ([0.5], "from 0 to 1"),
    ],
)
def test_bad_charges_are_refused(clients, message):
    ledger = open_ledger(
        np.array([5.0, 9.0]), groups_of([1000] * 2), STORES["rdp"], limit=9
    )
    with pytest.raises(InputError, match=message):
        ledger.charge(clients)


def test_clients_with_equal_mechanisms_share_a_curve():
    groups = groups_of([1000, 300, 1000, 1000])
    assert len(groups.mechanisms) == 2
    assert list(groups.group) == [0, 1, 0, 0]
    ledger = open_ledger(np.full(4, 5.0), groups, STORES["rdp"], limit=100)
    assert ledger.curves.shape[0] == 2
    assert list(ledger.affordable) == [11, 0, 11, 11]


def test_the_largest_budget_of_a_group_decides_how_long_its_curve_is():
    groups = groups_of([1000] * 2, batch=4)
    ledger = open_ledger(np.array([2.0, 10.0]), groups, STORES["rdp"], limit=2000)
    assert list(ledger.affordable) == [3, 332]


def test_cut_off_batches_shorten_a_clients_time():
    """At a padded size of 25, one step in 10^5 cuts its batch of 10 off."""
    exact = groups_of([1000], capacity=None)
    padded = groups_of([1000], capacity=25)
    assert 3e-6 < padded.mechanisms[0].overflow_probability < 3e-5
    budget = np.array([10.0])
    afforded = [
        open_ledger(budget, groups, STORES["rdp"], limit=100).affordable[0]
        for groups in (exact, padded)
    ]
    assert afforded[0] == 51
    assert 1 <= afforded[1] < 20  # 60 steps x 1e-5 x 2 is already above delta


def test_who_can_never_take_part_is_asked_for_nothing():
    setup = Release(0.1, 20.0, 40)
    groups = groups_of([1000, 300], setup=setup)
    ledger = open_ledger(np.array([5.0, 2.0]), groups, STORES["rdp"], limit=100)
    assert list(ledger.live) == [True, False]
    cost = ACCOUNTANTS["rdp"].epsilon(
        Mechanism(Release(0.5, 1.0, 1), 1e-3, 0.0, setup), np.array([0])
    )[0]
    assert cost > 0
    np.testing.assert_allclose(ledger.epsilon_spent, [cost, 0.0])


def test_the_limit_retires_too():
    ledger = open_ledger(np.array([5.0]), groups_of([1000]), STORES["rdp"], limit=3)
    for _ in range(3):
        ledger = ledger.charge([0])
    assert not ledger.live[0]


def test_without_noise_epsilon_is_infinite():
    ledger: Ledger = non_private_ledger(3, limit=2)
    assert np.all(ledger.live)
    ledger = ledger.charge([1]).charge([1])
    assert list(ledger.live) == [True, False, True]
    assert list(ledger.epsilon_spent) == [0, np.inf, 0]


def test_budgets_must_fit_the_clients():
    with pytest.raises(InputError, match="2 epsilons are given for 1 clients"):
        open_ledger(np.array([1.0, 2.0]), groups_of([1000]), STORES["rdp"], limit=3)


@pytest.mark.parametrize("name", ["rdp", pytest.param("pld", marks=pytest.mark.slow)])
def test_epsilon_grows_with_participations_sampling_and_less_noise(name):
    accountant = ACCOUNTANTS[name]

    def epsilon(q=0.01, sigma=0.6, delta=1e-3, count=3):
        mechanism = Mechanism(Release(q, sigma, 60), delta)
        return accountant.epsilon(mechanism, np.array([count]))[0]

    for name, values in {
        "count": [1, 2, 5, 20, 100],
        "q": [1e-4, 1e-3, 0.01, 0.1, 0.5, 1.0],
        "sigma": [8.0, 4.0, 2.0, 1.0, 0.7, 0.5, 0.4],
        "delta": [1e-2, 1e-3, 1e-5, 1e-7],
    }.items():
        curve = [epsilon(**{name: value}) for value in values]
        assert np.all(np.diff(curve) > 0), name
