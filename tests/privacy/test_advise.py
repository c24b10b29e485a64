"""Is advice on settings the best of its grid, by what the ledger affords?"""

import itertools
import math

import numpy as np
import pytest

import dpsparfl_jax as fl
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy import advise, first_ledger
from dpsparfl_jax.privacy.advise import Clients, Limits, Setting
from dpsparfl_jax.privacy.curves import CurveStore
from dpsparfl_jax.privacy.pld import PldAccountant
from dpsparfl_jax.privacy.rdp import RdpAccountant

EPSILONS = (2.0, 4.5, 7.0, 10.0)
CLIENTS = Clients(np.array(EPSILONS), examples=300, count=8, channels=2, delta=1e-3)
GRID = advise.settings_grid(
    300,
    noise_multipliers=(0.7, 1.0, 1.5),
    batch_sizes=(24, 64),
    local_steps=(10, 20),
)


@pytest.fixture(scope="module")
def store():
    return CurveStore(PldAccountant())


@pytest.fixture(scope="module")
def every_row(store):
    return [advise.spend(setting, CLIENTS, store) for setting in GRID]


def dominates(one, other):
    """Whether it is at least as good and cheap, and better at one of both."""
    good = one.signal >= other.signal and one.examples <= other.examples
    return good and (one.signal, one.examples) != (other.signal, other.examples)


@pytest.mark.parametrize(
    "setting", [Setting(0.8, 24, 10), Setting(0.6, 8, 60), Setting(2.0, 128, 5)]
)
def test_participations_are_those_of_the_ledger(setting, store):
    clients = Clients(np.array(EPSILONS), 1000, 4, 2, delta=1e-3, limit=120)
    settings = fl.RunConfig(
        training=fl.TrainingConfig(
            batch_size=setting.batch_size, local_steps=setting.local_steps
        ),
        privacy=fl.PrivacyConfig(
            noise_multiplier=setting.noise_multiplier,
            epsilons=",".join(map(str, EPSILONS)),
            max_participations=120,
        ),
        perf=fl.PerfConfig(cache_dir=""),
    )
    ledger, _ = first_ledger.start_ledger(
        settings, np.full(4, 1000), capacity=None, parameters=0
    )
    row = advise.spend(setting, clients, store)
    np.testing.assert_array_equal(row.participations, ledger.affordable)


def test_what_is_spent_is_counted_as_written(store):
    setting = Setting(1.0, 16, 20)
    row = advise.spend(setting, CLIENTS, store)
    counts = row.participations.tolist()
    assert counts == sorted(counts)
    signals = [16 / 1.0 * math.sqrt(20 * count) for count in counts]
    assert row.signal == pytest.approx(sum(signals) / 4)
    # Two clients have each of the four budgets.
    assert row.examples == pytest.approx(2 * sum(counts) * 20 * 16)
    assert row.rounds == math.ceil(2 * sum(counts) / 2)


def test_nobody_takes_part_twice_in_a_round(store):
    alone = Clients(np.array([5.0]), 300, count=1, channels=4, delta=1e-3)
    row = advise.spend(Setting(1.0, 16, 20), alone, store)
    assert row.rounds == row.participations[0] > 1


@pytest.mark.slow
@pytest.mark.parametrize("examples", [5e3, 2e4, 1e5, math.inf])
@pytest.mark.parametrize("rounds", [60, math.inf])
def test_the_best_row_is_that_of_all_curves(examples, rounds, store, every_row):
    limits = Limits(examples, rounds)
    found = advise.best_within(advise.frontier(CLIENTS, store, limits, GRID), limits)
    allowed = [
        row for row in every_row if row.examples <= examples and row.rounds <= rounds
    ]
    best = max(allowed, key=lambda row: (row.signal, -row.examples))
    assert found.setting == best.setting
    assert found.signal == best.signal


@pytest.mark.parametrize("limits", [Limits(3e4), Limits(rounds=60), Limits()])
def test_the_frontier_rises_and_nothing_dominates_it(limits, store, every_row):
    rows = advise.frontier(CLIENTS, store, limits, GRID)
    assert len(rows) > 2
    for cheap, dear in itertools.pairwise(rows):
        assert cheap.examples < dear.examples
        assert cheap.signal < dear.signal
    allowed = [row for row in every_row if row.rounds <= limits.rounds]
    for row in rows:
        assert row.rounds <= limits.rounds
        assert row.examples <= 2 * limits.examples
        assert not any(dominates(other, row) for other in allowed)


@pytest.mark.parametrize("overflow", [0.0, 2e-6])
@pytest.mark.parametrize("pair", [(0.45, 8), (0.7, 24), (1.0, 64), (3.0, 256)])
def test_a_sketch_holds_the_truth(pair, overflow):
    budgets = np.array([0.5, 2.0, 5.0, 10.0])
    clients = Clients(budgets, 1000, 4, 1, 1e-3, overflow_probability=overflow)
    setting = Setting(*pair, 5)
    low, high = advise._sketched_steps(clients, Limits(), [setting])
    mechanism = clients.mechanism(setting._replace(local_steps=1))
    accountant = PldAccountant()
    least, beyond = np.floor(low), np.floor(high) + 1
    assert np.all(accountant.epsilon(mechanism, least.astype(int)) <= budgets)
    assert np.all(accountant.epsilon(mechanism, beyond.astype(int)) > budgets)
    if not overflow:
        large = low > 100
        assert np.all(high[large] <= 1.02 * low[large])


@pytest.mark.slow
def test_few_curves_are_computed(monkeypatch):
    asked = []

    def counted(setting, *others):
        asked.append(setting)
        return spend(setting, *others)

    spend = advise.spend
    monkeypatch.setattr(advise, "spend", counted)
    grid = advise.settings_grid(300, batch_sizes=(32, 64), local_steps=(10, 20))
    rows = advise.frontier(CLIENTS, CurveStore(RdpAccountant()), Limits(2e4), grid)
    assert {row.setting for row in rows} <= set(asked)
    assert len(set(asked)) == len(asked) < len(grid) / 2


def test_a_bar_is_told_what_is_gone_through(store):
    seen = {}

    def track(items, what):
        seen[what] = len(items)
        return items

    grid = [Setting(1.0, 24, 20), Setting(1.0, 24, 10), Setting(1.0, 64, 10)]
    advise.frontier(CLIENTS, store, Limits(), grid, track)
    assert seen["sketches"] == 2  # those that differ in local steps share one
    assert list(seen) == ["sketches", "curves"]


def test_a_limit_that_nobody_keeps_gives_no_row(store):
    rows = advise.frontier(CLIENTS, store, Limits(examples=1.0), GRID)
    assert rows == []
    assert advise.best_within(rows, Limits()) is None


def test_the_grid_has_the_largest_batch_that_is_allowed():
    batches = {setting.batch_size for setting in advise.settings_grid(1000, 24)}
    assert batches == {4, 8, 16, 24}
    assert {each.batch_size for each in advise.settings_grid(10)} == {4, 8, 10}
    with pytest.raises(InputError, match="batches of 4 records and more"):
        advise.settings_grid(3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"examples": 0}, "at least one record"),
        ({"count": 0}, "at least one record"),
        ({"channels": 0}, "at least one record"),
        ({"limit": 0}, "at least one record"),
        ({"budgets": np.array([0.0])}, "positive and finite"),
    ],
)
def test_refuses_clients_that_are_none(change, message):
    good = {"budgets": np.ones(1), "examples": 9, "count": 1, "channels": 1}
    with pytest.raises(InputError, match=message):
        Clients(**{**good, "delta": 1e-3, **change})


@pytest.mark.parametrize("limits", [{"examples": 0}, {"rounds": -1}])
def test_refuses_limits_that_nothing_keeps(limits):
    with pytest.raises(InputError, match="must be positive"):
        Limits(**limits)
