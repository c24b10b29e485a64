"""Does `experiments.audit` tell a user what it found, and refuse what has no answer?"""

import json
import sys

import pytest

from experiments.auditing import bounds, catalogue, generator, one_run, sensitivity
from experiments.auditing.results import Results, page, write
from experiments.auditing.white_box import Audit
from tests.commands import assert_refused, call_program

CLAIMS = {"pld": 3.0, "rdp": 3.5}


def made_results(proved=2.0, worst=1.0, p_value=0.5):
    """What an audit might find."""
    results = Results(1e-3, 1e-5, 0.05)
    setting = catalogue.WHITE_BOX["one Gaussian release"]
    found = bounds.LowerBounds(proved, 2.5)
    results.white_box.append(Audit("plain", setting, 100, 1e-3, CLAIMS, found))
    (first, *_) = sensitivity.default_settings(("audit_dense",), ("ghost",))
    results.sensitivity.append(sensitivity.Finding(first, "huge", 10, worst))
    test = generator.Statistic("mean", 0.1, "0", p_value, p_value < 1e-6)
    results.generator["threefry"] = [test]
    guess = one_run.Guess("all clients", 40, 2, CLAIMS, 0.4, 0.5, 0.6)
    results.one_run.append(guess)
    return results


def test_the_page_the_picture_and_the_numbers_of_a_good_mechanism(tmp_path):
    path = write(made_results(), tmp_path)
    text = path.read_text()
    assert "No fault was found." in text
    assert (
        "| plain | 1 | 1 | 1 x 1 | 1 | 3.50 | 3.00 | 2.00 (67%) | 2.50 (83%) |" in text
    )
    assert "| all clients | 40 | 2 | 3.50 | 3.00 | 0.40 | 0.50 | 0.600 |" in text
    assert (tmp_path / "audit.png").read_bytes()[:4] == b"\x89PNG"
    numbers = json.loads((tmp_path / "audit.json").read_text())
    assert numbers["faults"] == []
    assert numbers["white_box"][0]["bounds"]["clopper_pearson"] == 2.0
    assert numbers["white_box"][0]["setting"]["method"] == "ghost"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"proved": 3.2}, "plain: epsilon is at least 3.200, but 3.000 is claimed."),
        ({"worst": 1.001}, "a record (huge) moves a sum by 1.001 times the bound."),
        ({"worst": float("inf")}, "moves a sum by thousands of times the bound."),
        ({"p_value": 1e-9}, "threefry: mean is 0.1 instead of 0 (p = 1.0e-09)."),
    ],
)
def test_every_fault_has_its_sentence(tmp_path, change, sentence):
    results = made_results(**change)
    (found,) = results.faults()
    assert sentence in found
    assert found in page(results)
    numbers = (write(results, tmp_path).parent / "audit.json").read_text()
    assert json.loads(numbers)["faults"] == [found]
    assert "Infinity" not in numbers


def test_rounding_is_no_fault():
    assert made_results(worst=1 + sensitivity.TOLERANCE / 2).faults() == []


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--only=nothing", "--only=nothing is no part of the audit: use white_box,"),
        ("--delta=0", "--delta must lie strictly between 0 and 1, but is 0."),
        ("--significance=0.6", "--significance must lie strictly between 0 and 1/2"),
        ("--trials=3", "--trials must be at least 100, but is 3."),
        ("--seed=99999999999", "--seed must lie below 2^31"),
    ],
)
def test_impossible_flags_are_refused(tmp_path, flag, message):
    done = call_program("experiments.audit", "--quick", f"--out={tmp_path}", flag)
    assert_refused(done, message)


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax_privacy", None)
    done = call_program("experiments.audit", "--quick", f"--out={tmp_path}")
    assert_refused(done, "pip install 'dpsparfl_jax[audit]'")


def test_there_are_at_least_eight_settings_that_differ():
    settings = catalogue.FULL.white_box.values()
    assert len(set(settings)) == len(settings) >= 8
    for name in ("noise_multiplier", "rounds", "steps", "keep_rate", "method"):
        assert len({getattr(each, name) for each in settings}) > 1, name
    assert set(catalogue.QUICK.white_box) <= set(catalogue.FULL.white_box)


@pytest.mark.slow
def test_the_quick_form_runs(tmp_path):
    """Parts that need bounds; the tests of the others run those."""
    parts = ("--quick", "--only=white_box,one_run", "--trials=2000")
    done = call_program("experiments.audit", *parts, f"--out={tmp_path}")
    assert done.returncode == 0, done.stderr
    numbers = json.loads((tmp_path / "audit.json").read_text())
    assert numbers["faults"] == []
    for each in numbers["white_box"]:
        assert 0 < each["bounds"]["clopper_pearson"] < each["claims"]["pld"]
    guess = numbers["one_run"][-1]
    assert guess["who"] == "all clients"
    assert guess["one_run"] <= guess["claims"]["pld"]
