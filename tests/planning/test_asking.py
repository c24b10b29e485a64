"""Is everything said that a policy of one's own can do wrong, and nothing else?"""

import textwrap
import traceback

import numpy as np
import pytest

import dpsparfl_jax as fl
from dpsparfl_jax.errors import OwnCodeError
from dpsparfl_jax.planning import asking
from dpsparfl_jax.registry import SOLVERS
from dpsparfl_jax.scheduling import sifting
from dpsparfl_jax.scheduling.base import make_policy
from dpsparfl_jax.scheduling.baselines import FullRate
from dpsparfl_jax.scheduling.joint import solve_joint
from dpsparfl_jax.scheduling.problem import empty_allocation
from experiments import cli
from tests import plugins
from tests.planning.plans import config, plan

pytestmark = pytest.mark.usefixtures("own_policies")


def register(decide, name="own"):
    """A policy that returns what `decide` makes of an observation."""

    @fl.register_policy(name)
    class Own:
        def __init__(self, settings):
            pass

        def init(self, num_clients, num_channels):
            return 0

        def plan(self, state, observation, random):
            return decide(observation)


def spoilt(**changes):
    """The allocation of three rows, with some of its fields changed by functions."""

    def decide(observation):
        good = FullRate(observation.problem).quickest(np.arange(3))
        wrong = {name: made(getattr(good, name)) for name, made in changes.items()}
        return good._replace(**wrong), 0

    return decide


def told(decide):
    register(decide)
    with pytest.raises(OwnCodeError) as error:
        plan(config(rounds=2, policy="own"))
    return str(error.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"client": lambda a: a + 20}, "but entries are rows of the problem, not"),
        ({"client": lambda a: a - 3}, "rows of the problem, not client numbers: 0 to"),
        ({"client": lambda a: a * 0}, "its client has 0 twice"),
        ({"channel": lambda a: a * 0 + 2}, "its channel has 2 twice"),
        ({"channel": lambda a: a + 5}, "but entries are channels of the cell: 0 to 4"),
        ({"client": lambda a: a * 1.0}, "its client must hold whole numbers, not"),
        ({"client": lambda a: a.tolist()}, "client must be a NumPy array with one"),
        ({"keep_rate": lambda a: a[:2]}, "one entry a used channel, not 3 in client"),
        ({"keep_rate": lambda a: a[:, None]}, "not one of shape (3, 1)"),
        ({"keep_rate": lambda a: a.astype(int)}, "its keep_rate must hold floats"),
        ({"keep_rate": lambda a: a * 2}, "is 2, which is not between 0.1 and 1"),
        ({"keep_rate": lambda a: a * 0.01}, "0.01, which is not between 0.1 and 1"),
        ({"power_w": lambda a: a * 100}, "which is not above 0 and at most 1 W"),
        ({"power_w": lambda a: -a}, "which is not above 0 and at most 1 W"),
        ({"power_w": lambda a: a / 2}, "but its base delay, power, channel and keep"),
        ({"delay_s": lambda a: a * 0.01}, "(base_delay_s + bits / rate)"),
        ({"delay_s": lambda a: a * np.nan}, "its delay_s has entries that are nan"),
        ({"value": lambda a: "cheap"}, "its value must be a number"),
    ],
)
def test_what_cannot_be_carried_out_is_refused(changes, sentence):
    message = told(spoilt(**changes))
    assert message.startswith("policy 'own' returned an allocation in round 1 that")
    assert sentence in message


def test_energy_and_the_latest_end_of_a_round_are_limits():
    def decide(observation):
        problem = observation.problem
        generous = problem._replace(energy_j=problem.energy_j * 100, latest_s=np.inf)
        return FullRate(generous).quickest(np.arange(3)), 0

    register(decide)
    for changes, sentence in (
        ({"energy_budget_j": 2.0}, "J left (energy_j): lower its power"),
        (
            {"round_limit_s": 20.0, "energy_budget_j": 1e6},
            "longer than a round may (20 s, latest_s)",
        ),
    ):
        with pytest.raises(OwnCodeError) as error:
            plan(config(rounds=2, policy="own", **changes))
        assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (None, "returned None in round 1: plan returns an Allocation and the next"),
        (empty_allocation(), "returned an Allocation without a state in round 1"),
        ((3, 4), "returned a value of type int instead of an Allocation in round 1"),
        ([1], "returned a value of type list in round 1"),
    ],
)
def test_what_is_no_allocation_is_refused(returned, words):
    assert words in told(lambda observation: returned)


def test_good_allocations_and_empty_ones_pass():
    def decide(observation):
        if observation.round_index == 1:
            return empty_allocation(), 0
        return solve_joint(observation.problem), 0

    register(decide)
    made = plan(config(rounds=3, policy="own"))
    assert made.sends.sum(axis=1).tolist() == [5, 0, 5]


@pytest.mark.parametrize("policy", ["dp_sparfl", "delay_min", "round_robin", "random"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"keep_rate": 0.3, "energy_budget_j": 2.5},
        {"clients": "worthwhile", "round_limit_s": 250.0},
        {"noise_aware": True, "wireless": {"gain_error_db": 2.0}},
    ],
)
def test_the_packages_own_policies_pass_the_checks(policy, changes, monkeypatch):
    settings = config(rounds=6, policy=policy, **changes)
    assert not isinstance(asking.ask(settings.schedule), asking.AskedPolicy)
    monkeypatch.setattr(asking, "ask", asking.AskedPolicy)
    assert plan(settings).sends.any()


def test_crowds_that_are_sifted_pass_the_checks(monkeypatch):
    settings = config(rounds=2, wireless={"num_channels": 20}, warm_start=False)
    monkeypatch.setattr(asking, "ask", asking.AskedPolicy)
    monkeypatch.setattr(sifting, "MANY", 1)
    assert plan(settings, np.full(400, 1000)).sends.all()


def test_a_solver_of_ones_own_is_checked(monkeypatch):
    monkeypatch.setattr(SOLVERS, "_entries", dict(SOLVERS._entries))
    monkeypatch.setattr(SOLVERS, "_origins", {})

    @fl.register_solver("loud")
    def loud(problem):
        best = solve_joint(problem)
        return best._replace(power_w=best.power_w * 100)

    with pytest.raises(OwnCodeError, match="policy 'dp_sparfl' with solver 'loud' ret"):
        plan(config(rounds=1, solver="loud"))


BUG = """
    import dpsparfl_jax as fl
    from dpsparfl_jax.scheduling.problem import empty_allocation


    @fl.register_policy("bug")
    class Bug:
        def __init__(self, settings):
            pass

        def init(self, num_clients, num_channels):
            return 0

        def plan(self, state, observation, random):
            if observation.round_index == 4:
                raise ValueError("oops")
            return empty_allocation(), state
"""


def test_errors_say_where_and_keep_their_cause(tmp_path):
    path = plugins.write(tmp_path, textwrap.dedent(BUG))
    cli.load_plugin(str(path))
    with pytest.raises(OwnCodeError) as error:
        plan(config(rounds=9, policy="bug"))
    line = path.read_text().splitlines().index('            raise ValueError("oops")')
    assert str(error.value) == (
        f"policy 'bug' failed in round 5: ValueError: oops (mine.py, line {line + 1}, "
        "in plan). fl.plan(settings) in Python shows the whole traceback."
    )
    assert isinstance(error.value.__cause__, ValueError)
    assert 'raise ValueError("oops")' in "".join(
        traceback.format_exception(error.value)
    )


def test_a_class_that_cannot_be_made_or_begun_is_told():
    @fl.register_policy("bare")
    class Bare:
        pass

    with pytest.raises(OwnCodeError, match=r"'bare' failed when it was made .*Bare\("):
        plan(config(rounds=1, policy="bare"))

    @fl.register_policy("half")
    class Half:
        def __init__(self, settings):
            pass

    with pytest.raises(
        OwnCodeError, match=r"'half' failed in init, before .*Attribute"
    ):
        plan(config(rounds=1, policy="half"))


def test_a_policy_sees_what_the_ledger_says():
    seen = []

    def decide(observation):
        seen.append(observation)
        rows = np.arange(min(2, len(observation.client)))
        return FullRate(observation.problem).quickest(rows), 0

    register(decide)
    made = plan(config(policy="own"))
    spent = np.zeros_like(made.participations)
    for t, each in enumerate(seen):
        before = spent
        live = np.flatnonzero(before < made.affordable)
        np.testing.assert_array_equal(each.client, live)
        np.testing.assert_array_equal(each.participations, before[live])
        left = (made.affordable - before)[live]
        np.testing.assert_array_equal(each.participations_left, left)
        np.testing.assert_array_equal(each.epsilon_asked, made.budget[live])
        curves = made.epsilon_curve[made.group, before]
        np.testing.assert_array_equal(each.epsilon_spent, curves[live])
        spent = before.copy()
        spent[made.client[t][made.sends[t]]] += 1
    assert seen[-1].participations_left.min() == 1
    assert (seen[-1].epsilon_spent < seen[-1].epsilon_asked).all()
    with pytest.raises(fl.InputError, match="without a ledger"):
        _ = seen[0]._replace(ledger=None).epsilon_asked


def test_the_packages_own_policies_are_asked_as_they_are():
    settings = config(policy="random").schedule
    assert type(asking.ask(settings)) is type(make_policy(settings))
