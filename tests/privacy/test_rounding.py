"""Is nobody charged too little where many mechanisms are accounted for as a few?"""

import dataclasses

import numpy as np
import pytest

from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.privacy import first_ledger, rounding
from dpsparfl_jax.privacy.accountants import make_accountant
from dpsparfl_jax.privacy.curves import CurveStore
from dpsparfl_jax.privacy.ledger import open_ledger
from dpsparfl_jax.privacy.mechanism import client_groups


@pytest.mark.parametrize("most", [1, 2, 5, 64])
def test_values_are_rounded_up_to_a_few_of_them(most):
    for seed in range(20):
        rng = np.random.default_rng([seed, most])
        values = rng.pareto(1.2, 300).round(2) + 0.01
        up = rounding.round_up(values, most)
        assert np.all(up >= values)
        assert set(up) <= set(values)
        assert len(np.unique(up)) <= most
        # No way to round up to so many has a smaller factor: of most + 1 values that
        # are further apart than it, two would have to share one.
        factor, rest, apart = np.max(up / values) * (1 - 1e-9), np.unique(values), 0
        while rest.size:
            apart, rest = apart + 1, rest[rest < rest[-1] / factor]
        assert apart > most


def test_few_values_are_left_alone():
    values = np.array([0.1, 0.3, 0.1, 0.2])
    assert rounding.round_up(values, 3) is values
    np.testing.assert_array_equal(rounding.round_up(values, 2), [0.1, 0.3, 0.1, 0.3])


def groups_of(sizes, noise=1.0, most=10**9):
    groups = client_groups(
        sizes,
        batch_size=8,
        noise_multiplier=noise,
        steps=10,
        delta=1e-3,
        capacity=24,
        coordinates=1000,
    )
    return rounding.fewer(groups, most)


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
@pytest.mark.parametrize("noises", [1, 6])
def test_everybody_is_charged_at_least_what_it_spends(accountant, noises):
    rng = np.random.default_rng(0)
    sizes = rng.integers(200, 3000, 12)
    noise = np.resize(np.linspace(0.9, 1.6, noises), 12)
    asked = rng.uniform(2, 8, 12)
    store = CurveStore(make_accountant(accountant))
    exact = open_ledger(asked, groups_of(sizes, noise), store, limit=30)
    few = groups_of(sizes, noise, most=4)
    assert len(few.mechanisms) <= 4
    rough = open_ledger(asked, few, store, limit=30)
    assert np.all(rough.affordable <= exact.affordable)
    assert np.any(rough.affordable < exact.affordable)
    longest = min(rough.curves.shape[1], exact.curves.shape[1])
    charged = rough.curves[rough.group, :longest]
    assert np.all(charged >= exact.curves[exact.group, :longest])


def test_what_adds_to_delta_is_rounded_up_too():
    sizes = np.arange(100, 400)
    exact, few = groups_of(sizes), groups_of(sizes, most=7)
    for client in range(len(sizes)):
        own = exact.mechanisms[exact.group[client]]
        shared = few.mechanisms[few.group[client]]
        assert shared.overflow_probability >= own.overflow_probability
        assert shared.failure_probability >= own.failure_probability
        assert shared.participation.sampling_rate >= own.participation.sampling_rate
    assert len(few.mechanisms) == 7
    assert few.rounded.startswith("300 kinds of clients are accounted for as 7 (")
    assert "rounded up, by at most 2" in few.rounded


def test_few_sizes_are_exact():
    sizes = np.resize([300, 600, 1800, 2100], 50)
    exact, few = groups_of(sizes), groups_of(sizes, most=4)
    assert few.mechanisms == exact.mechanisms
    np.testing.assert_array_equal(few.group, exact.group)
    assert few.rounded == exact.rounded == ""


def test_groups_are_those_of_clients_one_by_one():
    rng = np.random.default_rng(1)
    sizes, noise = rng.integers(20, 40, 500), rng.choice([0.5, 1.0], 500)
    groups = groups_of(sizes, noise)
    ones = [
        groups_of(sizes[i : i + 1], noise[i : i + 1]).mechanisms[0] for i in range(500)
    ]
    assert [groups.mechanisms[g] for g in groups.group] == ones
    assert groups.mechanisms == tuple(dict.fromkeys(ones))  # in order of appearance
    for number, members in enumerate(groups.members()):
        np.testing.assert_array_equal(members, np.flatnonzero(groups.group == number))


@pytest.mark.parametrize("name", ["rdp", "pld"])
def test_numbers_of_participations_are_rounded_up(name):
    exact = make_accountant(name)
    rough = rounding.InSteps(exact)
    mechanism = groups_of([2000]).mechanisms[0]
    counts = np.array([0, 1, 17, 63, 64, 65, 66, 127, 128, 129, 700, 1999])
    up = np.array([0, 1, 17, 63, 64, 66, 66, 128, 128, 132, 704, 2016])
    charged = rough.epsilon(mechanism, counts)
    np.testing.assert_array_equal(
        charged,
        exact.epsilon(mechanism, np.unique(up))[np.searchsorted(np.unique(up), up)],
    )
    assert np.all(charged >= exact.epsilon(mechanism, counts))
    assert np.all(up - counts <= counts / 32)
    assert rough.name == name
    assert rough.version != exact.version


def test_a_run_says_that_it_rounds():
    settings = RunConfig()
    privacy = dataclasses.replace(
        settings.privacy, accountant="rdp", most_mechanisms=3, noise_multiplier=1.0
    )
    settings = dataclasses.replace(settings, privacy=privacy)
    sizes = np.arange(900, 920)
    _, message = first_ledger.start_ledger(settings, sizes, 60, 1000)
    assert message.endswith(
        " 20 kinds of clients are accounted for as 3 (privacy.most_mechanisms): "
        "sampling rates are rounded up, by at most 0.7%, and participations beyond 64 "
        "up, by at most 3.1%."
    )
    _, message = first_ledger.start_ledger(settings, np.resize(sizes[:3], 20), 60, 1000)
    assert "kinds of clients" not in message
