"""What happens to a plan in a channel that it did not know?"""

import dataclasses

import numpy as np
import pytest

from dpsparfl_jax.config import ScheduleConfig, WirelessConfig
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning import realise
from tests.planning.plans import PARAMETERS, SIZES, config, plan, same_schedules
from tests.reference.feasible import check_schedule

KINDS = ("wait", "drop", "retry")
POLICIES = ("dp_sparfl", "delay_min", "round_robin", "random")
MOSTLY_SLOW = [
    POLICIES[0],
    *(pytest.param(policy, marks=pytest.mark.slow) for policy in POLICIES[1:]),
]


def upload(on_late, **changes):
    """One upload of 1000 bits at 100 bit/s (snr 1), planned to end at the deadline."""
    values = {
        "snr": 1.0,
        "outage": False,
        "bits": 1000.0,
        "power_w": 0.5,
        "base_delay_s": 5.0,
        "planned_upload_s": 10.0,
    }
    columns = {name: np.array([value]) for name, value in (values | changes).items()}
    return realise.realise(on_late, bandwidth_hz=100.0, deadline_s=15.0, **columns)


@pytest.mark.parametrize("on_late", KINDS)
def test_a_known_channel_does_as_planned(on_late):
    done = upload(on_late)
    assert (done.delay_s, done.upload_s, done.upload_j) == (15.0, 10.0, 5.0)
    assert done.arrived.all()
    assert not done.late.any()


@pytest.mark.parametrize("on_late", KINDS)
def test_a_better_channel_ends_earlier(on_late):
    done = upload(on_late, snr=3.0)  # 200 bit/s
    assert (done.delay_s, done.upload_j) == (10.0, 2.5)
    assert not done.late.any()


SLOW = 2**0.5 - 1  # snr of 50 bit/s


@pytest.mark.parametrize(
    ("on_late", "outage", "upload_s", "arrived"),
    [
        ("wait", False, 20.0, True),
        ("drop", False, 10.0, False),
        ("retry", False, 30.0, True),
        ("wait", True, 30.0, True),  # the outage, and then everything
        ("drop", True, 10.0, False),
        ("retry", True, 30.0, True),
    ],
)
def test_what_becomes_of_a_late_upload(on_late, outage, upload_s, arrived):
    done = upload(on_late, snr=SLOW, outage=outage)
    assert done.late.all()
    assert done.arrived[0] == arrived
    assert done.upload_s[0] == pytest.approx(upload_s)
    assert done.delay_s[0] == pytest.approx(5.0 + upload_s)
    assert done.upload_j[0] == pytest.approx(0.5 * upload_s)


def test_who_has_time_to_spare_may_be_slow():
    done = upload("drop", snr=SLOW, planned_upload_s=2.0, bits=400.0)
    assert done.delay_s[0] == pytest.approx(13.0)
    assert done.arrived.all()


@pytest.mark.parametrize("policy", MOSTLY_SLOW)
@pytest.mark.parametrize("on_late", KINDS)
def test_realised_rounds_follow_from_the_true_channel(policy, on_late):
    radio = {"gain_error_db": 3.0, "outage": 0.05, "downlink_fading": True}
    settings = config(
        rounds=25, wireless=radio, policy=policy, on_late=on_late, margin_db=1.0
    )
    made = plan(settings)
    check_schedule(made, settings, SIZES, PARAMETERS)
    assert made.late.any()
    assert np.any(made.sends & ~made.arrived) == (on_late == "drop")
    assert np.all(made.arrived <= made.sends)


@pytest.mark.parametrize("policy", MOSTLY_SLOW)
def test_what_to_do_when_late_does_not_matter_if_nobody_is(policy):
    first, *others = [
        plan(config(rounds=12, policy=policy, on_late=kind)) for kind in KINDS
    ]
    for other in others:
        same_schedules(first, other)
    np.testing.assert_array_equal(first.planned_delay_s, first.round_delay_s)
    np.testing.assert_array_equal(first.arrived, first.sends)


def test_policies_meet_the_same_surprises():
    radio = WirelessConfig(gain_error_db=2.0, outage=0.1)
    one, two = (realise.true_channel(radio, 3, 7, (20, 5)) for _ in range(2))
    np.testing.assert_array_equal(one.gain_error, two.gain_error)
    other = realise.true_channel(radio, 3, 8, (20, 5))
    assert np.all(other.gain_error != one.gain_error)


def test_without_a_margin_nearly_every_round_is_late_and_a_margin_helps():
    radio = {"gain_error_db": 1.0}
    bare = plan(config(rounds=60, wireless=radio))
    assert np.mean(bare.late.any(axis=1)) > 0.9
    careful = plan(config(rounds=60, wireless=radio, late_probability=0.02))
    assert np.mean(careful.late[careful.sends]) < 0.06
    assert np.mean(careful.planned_delay_s) > 0


@pytest.mark.parametrize("wanted", [0.01, 0.1, 0.3])
@pytest.mark.parametrize("outage", [0.0, 0.005])
def test_late_uploads_have_the_wanted_probability(wanted, outage):
    """Of 40,000 draws; three standard deviations: false alarms at most 0.3%."""
    radio = WirelessConfig(gain_error_db=2.5, outage=outage)
    margin = realise.margin_db(radio, ScheduleConfig(late_probability=wanted))
    late = []
    for t in range(40):
        true = realise.true_channel(radio, 0, t, (100, 10))
        late.append((true.gain_error < 10 ** (-margin / 10)) | true.outage)
    share = np.mean(late)
    assert abs(share - wanted) < 3 * np.sqrt(wanted * (1 - wanted) / 40_000)
    wrong = realise.margin_db(radio, ScheduleConfig(late_probability=wanted * 1.5))
    assert wrong < margin


def test_no_margin_prevents_outages():
    radio = WirelessConfig(outage=0.2)
    with pytest.raises(InputError, match="cannot be had with outages"):
        realise.margin_db(radio, ScheduleConfig(late_probability=0.1))
    with pytest.raises(InputError, match="chooses the margin"):
        ScheduleConfig(late_probability=0.1, margin_db=1.0)


@pytest.mark.parametrize("count", [40, pytest.param(500, marks=pytest.mark.slow)])
def test_nobody_overspends_whatever_happens(count, tmp_path):
    """Worlds with errors, outages, drops and retries; recomputed independently."""
    for world in range(count):
        random = np.random.default_rng([world, 77])
        clients = int(random.integers(3, 9))
        radio = {
            "num_channels": int(random.integers(1, 4)),
            "gain_error_db": float(random.choice([0.0, 1.0, 4.0])),
            "outage": float(random.choice([0.0, 0.1, 0.5])),
        }
        settings = config(
            seed=world,
            rounds=int(random.integers(2, 6)),
            wireless=radio,
            policy=str(random.choice(POLICIES)),
            on_late=str(random.choice(KINDS)),
            margin_db=float(random.choice([0.0, 2.0])),
            solver="descent",
            warm_start=bool(random.random() < 0.2),
        )
        kept = dataclasses.replace(settings.perf, cache_dir=str(tmp_path))
        settings = dataclasses.replace(settings, perf=kept)
        sizes = np.full(clients, 1000)
        made = plan(settings, sizes)
        check_schedule(made, settings, sizes, PARAMETERS)
        spent = made.epsilon_spent[-1]
        assert np.all(spent <= made.budget)
        # Who was dropped has paid as well: spending goes by taking part alone.
        taken = made.participations > 0
        assert np.all((spent > 0) == taken)
