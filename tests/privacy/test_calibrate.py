"""Does calibration give what was wished for, and is advice right?"""

import re

import numpy as np
import pytest

from dpsparfl_jax import config
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy import calibrate, first_ledger
from dpsparfl_jax.privacy.accountants import all_accountants
from dpsparfl_jax.privacy.mechanism import Mechanism, Release
from dpsparfl_jax.registry import ACCOUNTANTS as REGISTRY

ACCOUNTANTS = all_accountants()

BOTH = pytest.mark.parametrize(
    "accountant", ACCOUNTANTS.values(), ids=list(ACCOUNTANTS)
)


def epsilon(accountant, q, sigma, count):
    mechanism = Mechanism(Release(q, sigma, 60), 1e-3)
    return accountant.epsilon(mechanism, np.array([count]))[0]


@BOTH
@pytest.mark.parametrize("first_guess", [0.3, 5.0])
def test_noise_for_wanted_participations(accountant, first_guess):
    mechanism = Mechanism(Release(0.01, first_guess, 60), 1e-3)
    sigma = calibrate.noise_multiplier_for(
        accountant, mechanism, epsilon=5.0, participations=50
    )
    assert epsilon(accountant, 0.01, sigma, 50) <= 5
    assert epsilon(accountant, 0.01, sigma * 0.998, 50) > 5


@BOTH
def test_largest_batch(accountant):
    mechanism = Mechanism(Release(0.5, 0.6, 60), 1e-3)

    def largest(wish):
        return calibrate.batch_size_for(
            accountant, mechanism, examples=1000, epsilon=wish, participations=20
        )

    batch = largest(5.0)
    assert batch >= 1
    assert epsilon(accountant, batch / 1000, 0.6, 20) <= 5
    assert epsilon(accountant, (batch + 1) / 1000, 0.6, 20) > 5
    assert largest(1e-3) == 0
    small = Mechanism(Release(0.5, 2.0, 1), 1e-3)
    everything = {"examples": 12, "epsilon": 1e6, "participations": 1}
    assert calibrate.batch_size_for(accountant, small, **everything) == 12


def test_wishes_that_cannot_be_are_refused():
    rdp = ACCOUNTANTS["rdp"]
    mechanism = Mechanism(Release(0.01, 1.0, 60), 1e-3, 0.0, Release(0.5, 0.5, 60))
    with pytest.raises(InputError, match="no noise multiplier up to 100000 affords 3"):
        calibrate.noise_multiplier_for(rdp, mechanism, epsilon=1.0, participations=3)
    with pytest.raises(InputError, match="calibration needs a positive epsilon"):
        calibrate.noise_multiplier_for(rdp, mechanism, epsilon=0.0, participations=3)


def run_config(**privacy):
    return config.RunConfig(
        training=config.TrainingConfig(batch_size=privacy.pop("batch", 10.0)),
        privacy=config.PrivacyConfig(**privacy),
        perf=config.PerfConfig(cache_dir=""),
    )


SIZES = np.full(4, 1000)


def test_the_start_says_what_a_setting_affords():
    ledger, message = first_ledger.start_ledger(
        run_config(epsilons="2,5,10,10"), SIZES, 40, 1000
    )
    assert list(ledger.budget) == [2, 5, 10, 10]
    assert list(ledger.affordable) == [2, 18, 67, 67]
    rows = [line.split() for line in message.splitlines()[1:7]]
    assert rows[0] == ["epsilon", "PLD"]
    assert rows[1] == ["2", "2"]
    assert rows[-1] == ["10", "67"]
    assert "4 of 4 clients can take part, 154 times in all" in message
    faithful = run_config(epsilons="2,5,10,10", accountant="rdp")
    ledger, message = first_ledger.start_ledger(faithful, SIZES, 40, 1000)
    assert list(ledger.affordable) == [0, 11, 51, 51]
    rows = [line.split() for line in message.splitlines()[1:7]]
    assert rows[0] == ["epsilon", "RDP"]
    assert rows[1] == ["2", "0"]
    assert rows[-1] == ["10", "51"]
    assert "3 of 4 clients can take part" in message


def test_the_table_shows_the_range_over_unequal_clients():
    sizes = np.array([300, 1000, 2100])
    settings = run_config(epsilon_lo=10.0, accountant="rdp", max_participations=200)
    _, message = first_ledger.start_ledger(settings, sizes, 40, 1000)
    (row,) = [line.split() for line in message.splitlines() if line[:8].strip() == "10"]
    assert row[1] == "4->=200"


def test_budgets_are_drawn_from_the_range():
    ledger, _ = first_ledger.start_ledger(run_config(epsilon_lo=4.0), SIZES, 40, 1000)
    assert np.all((ledger.budget >= 4) & (ledger.budget <= 10))
    assert len(set(ledger.budget)) == 4


@pytest.mark.parametrize(
    "accountant", ["rdp", pytest.param("pld", marks=pytest.mark.slow)]
)
def test_a_setting_that_affords_nobody_is_refused_with_advice_that_works(accountant):
    hopeless = {"accountant": accountant, "epsilons": "5,5,4,5", "batch": 64.0}
    with pytest.raises(InputError, match="no client can take part") as refusal:
        first_ledger.start_ledger(
            run_config(noise_multiplier=0.4, **hopeless), SIZES, 110, 1000
        )
    found = re.search(
        r"noise multiplier to at least ([\d.]+), or the batch size to at most (\d+)",
        str(refusal.value),
    )
    louder = run_config(**{**hopeless, "noise_multiplier": float(found[1])})
    assert first_ledger.start_ledger(louder, SIZES, 110, 1000).ledger.live.any()
    smaller = {**hopeless, "noise_multiplier": 0.4, "batch": float(found[2])}
    assert first_ledger.start_ledger(
        run_config(**smaller), SIZES, 110, 1000
    ).ledger.live.any()


def test_the_end_of_the_noise_is_charged_for_every_parameter():
    little = run_config(noise_multiplier=0.4, accountant="rdp", epsilon_lo=10.0)
    costs = [
        first_ledger.start_ledger(little, SIZES, 40, parameters).ledger.epsilon_next[0]
        for parameters in (0, 1, 10**9)
    ]
    assert costs[0] < costs[1] < costs[2]


def test_the_private_clip_norm_is_charged():
    plain = first_ledger.start_ledger(run_config(), SIZES, 40, 1000).ledger
    charged = first_ledger.start_ledger(
        run_config(clip_calibration="private"), SIZES, 40, 1000
    )
    assert np.all(plain.epsilon_spent == 0)
    assert np.all(charged.ledger.epsilon_spent > 0)
    assert np.all(charged.ledger.epsilon_next > plain.epsilon_next)


def test_without_noise_the_start_says_so():
    ledger, message = first_ledger.start_ledger(
        run_config(noise=False), SIZES, 40, 1000
    )
    assert "not private" in message
    assert ledger.live.all()


def test_fewer_epsilons_than_clients_are_refused():
    with pytest.raises(InputError, match="2 epsilons are given for 4 clients"):
        first_ledger.start_ledger(run_config(epsilons="2,5"), SIZES, 40, 1000)


def test_an_accountant_of_ones_own(monkeypatch):
    monkeypatch.setattr(REGISTRY, "_entries", dict(REGISTRY._entries))

    @REGISTRY.register("linear")
    class Linear:
        name, version = "linear", "1"

        def epsilon(self, mechanism, participations):
            return 0.5 * participations.astype(float)

    settings = run_config(epsilons="2,5,10,10", accountant="linear")
    ledger, message = first_ledger.start_ledger(settings, SIZES, 40, 1000)
    assert list(ledger.affordable) == [4, 10, 20, 20]
    assert "LINEAR" in message
    with pytest.raises(InputError, match="unknown accountant 'moments'"):
        first_ledger.start_ledger(run_config(accountant="moments"), SIZES, 40, 1000)
