"""Is a curve computed once, kept on disk, and never trusted when damaged?"""

import dataclasses
import json
import logging
import pathlib

import numpy as np
import pytest

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy import curves
from dpsparfl_jax.privacy.accountants import all_accountants
from dpsparfl_jax.privacy.mechanism import Mechanism, Release
from dpsparfl_jax.privacy.rdp import RdpAccountant

ACCOUNTANTS = all_accountants()

MECHANISM = Mechanism(Release(0.01, 0.8, 60), 1e-3)


class Counting(RdpAccountant):
    """An accountant that remembers how often it was asked."""

    def __init__(self):
        super().__init__()
        self.asked = 0

    def epsilon(self, mechanism, participations):
        self.asked += len(participations)
        return super().epsilon(mechanism, participations)


def ask(folder, accountant=None, mechanism=MECHANISM, max_epsilon=5.0, limit=1000):
    accountant = accountant or Counting()
    store = curves.CurveStore(accountant, folder)
    return store.curve(mechanism, max_epsilon=max_epsilon, limit=limit), accountant


def only_file(folder) -> pathlib.Path:
    (path,) = pathlib.Path(folder).iterdir()
    return path


def test_a_curve_is_the_accountants():
    curve, _ = ask("")
    np.testing.assert_array_equal(
        curve, RdpAccountant().epsilon(MECHANISM, np.arange(len(curve)))
    )
    assert curve[0] == 0
    assert curve[-1] > 5


def test_it_is_computed_once_in_memory_and_on_disk(tmp_path):
    accountant = Counting()
    store = curves.CurveStore(accountant, tmp_path)
    first = store.curve(MECHANISM, max_epsilon=5, limit=1000)
    asked = accountant.asked
    again = store.curve(MECHANISM, max_epsilon=4, limit=1000)
    assert accountant.asked == asked
    np.testing.assert_array_equal(first, again)
    from_disk, fresh = ask(tmp_path)
    assert fresh.asked == 0
    np.testing.assert_array_equal(first, from_disk)


def test_more_is_added_to_what_is_there(tmp_path):
    short, _ = ask(tmp_path, max_epsilon=3)
    longer, accountant = ask(tmp_path, max_epsilon=9)
    assert accountant.asked == len(longer) - len(short)
    np.testing.assert_array_equal(longer, ask("", max_epsilon=9)[0])
    assert ask(tmp_path, max_epsilon=9)[1].asked == 0


def test_the_limit_ends_a_curve_that_no_budget_ends(tmp_path):
    curve, _ = ask(tmp_path, max_epsilon=1e9, limit=70)
    assert len(curve) == 71
    assert curves.affordable(curve, 1e9, 70) == 70
    assert curves.affordable(curve, 1e9, 20) == 20


@pytest.mark.parametrize(
    "change",
    [
        {"delta": 2e-3},
        {"overflow_probability": 1e-9},
        {"setup": Release(0.1, 20.0, 40)},
        {"participation": Release(0.011, 0.8, 60)},
        {"participation": Release(0.01, 0.81, 60)},
        {"participation": Release(0.01, 0.8, 61)},
    ],
)
def test_every_input_is_part_of_the_key(tmp_path, change):
    ask(tmp_path)
    _, accountant = ask(tmp_path, mechanism=dataclasses.replace(MECHANISM, **change))
    assert accountant.asked > 0
    assert len(list(tmp_path.iterdir())) == 2


def test_another_accountant_has_another_key(tmp_path):
    ask(tmp_path)
    other = Counting()
    other.orders = other.orders[:-1]
    assert ask(tmp_path, other)[1].asked > 0


def cut_short(path):
    path.write_text(path.read_text()[:-40])


def change_a_number(path):
    content = json.loads(path.read_text())
    content["epsilon"][3] *= 0.5
    path.write_text(json.dumps(content))


def change_the_key(path):
    content = json.loads(path.read_text())
    content["key"]["mechanism"]["delta"] = 0.5
    path.write_text(json.dumps(content))


def empty_list(path):
    path.write_text("[]")


def not_text(path):
    path.write_bytes(bytes([0xFF, 0xFE, 0x00]))


@pytest.mark.parametrize(
    "damage", [cut_short, change_a_number, change_the_key, empty_list, not_text]
)
def test_a_damaged_file_is_computed_again_and_said_once(tmp_path, caplog, damage):
    good, _ = ask(tmp_path)
    damage(only_file(tmp_path))
    with caplog.at_level(logging.WARNING):
        accountant = Counting()
        store = curves.CurveStore(accountant, tmp_path)
        curve = store.curve(MECHANISM, max_epsilon=5, limit=1000)
        store.curve(MECHANISM, max_epsilon=5, limit=1000)
    np.testing.assert_array_equal(curve, good)
    assert accountant.asked == len(good)
    (record,) = caplog.records
    assert "computing it again" in record.getMessage()
    caplog.clear()
    assert ask(tmp_path)[1].asked == 0  # it was mended
    assert not caplog.records


def test_a_folder_that_cannot_be_used_is_said_once(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    store = curves.CurveStore(RdpAccountant(), tmp_path / "file" / "folder")
    with caplog.at_level(logging.WARNING):
        store.curve(MECHANISM, max_epsilon=3, limit=1000)
        store.curve(MECHANISM, max_epsilon=9, limit=1000)
    messages = [record.getMessage() for record in caplog.records]
    assert len([m for m in messages if "not kept on disk" in m]) == 1


def test_a_folder_with_an_impossible_name_is_said_once(caplog):
    store = curves.CurveStore(RdpAccountant(), "folder\0name")
    with caplog.at_level(logging.WARNING):
        curve = store.curve(MECHANISM, max_epsilon=3, limit=1000)
    assert curve[-1] > 3
    assert "not kept on disk" in caplog.records[-1].getMessage()


def test_rounding_never_makes_a_curve_fall():
    class Jittery(RdpAccountant):
        def epsilon(self, mechanism, participations):
            return np.where(participations % 7 == 6, 0.8, 1.0) * participations

    curve = curves.CurveStore(Jittery()).curve(MECHANISM, max_epsilon=50, limit=60)
    assert np.all(np.diff(curve) >= 0)
    assert np.all(curve >= 0.8 * np.arange(len(curve)))
    assert curve[27] == 26


def test_no_half_written_file_is_left(tmp_path):
    ask(tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


@pytest.mark.parametrize("accountant", ACCOUNTANTS.values(), ids=list(ACCOUNTANTS))
def test_a_quiet_calculation(caplog, recwarn, accountant):
    """Where dp-accounting's Renyi series gives up below order 1.5, with warnings."""
    mechanism = Mechanism(Release(0.064, 0.4, 60), 1e-3)
    ask("", accountant, mechanism=mechanism, max_epsilon=60)
    assert not caplog.records
    assert not list(recwarn)


def test_bad_questions_are_refused():
    with pytest.raises(InputError, match="a curve needs"):
        ask("", limit=0)
    with pytest.raises(InputError, match="a curve needs"):
        ask("", max_epsilon=float("nan"))
