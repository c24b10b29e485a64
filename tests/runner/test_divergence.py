"""Is a run that learns nothing told of at once, and ended?"""

import dataclasses
import types

import pytest

from dpsparfl_jax import records
from dpsparfl_jax.errors import DivergedError
from dpsparfl_jax.runner.divergence import DivergenceWatch
from tests.runner import runs


def watch(*limits, rounds=9):
    """A watch over runs with these limits, and what it warns of."""
    made = [
        types.SimpleNamespace(
            name=f"p{number}",
            schedule=types.SimpleNamespace(num_rounds=rounds),
            settings=types.SimpleNamespace(
                length=types.SimpleNamespace(diverged_rounds=limit)
            ),
        )
        for number, limit in enumerate(limits)
    ]
    said = []
    return DivergenceWatch(made, said.append), said


def row(number, diverged, clients=(1, 2)):
    return {"round": number, "diverged": diverged, "clients": list(clients)}


def test_rounds_count_in_a_row_and_only_if_all_updates_are_dropped():
    told, said = watch(2)
    for number, diverged in enumerate((2, 1, 2, 0, 2), 1):
        told.note(0, row(number, diverged))
    assert len(said) == 3  # the driver says a sentence once
    told.note(0, row(6, 0, clients=()))  # nobody sent
    told.note(0, row(7, 2))
    with pytest.raises(DivergedError, match="all updates of the last 2 rounds"):
        told.note(0, row(8, 2))


def test_a_run_that_learns_keeps_others_going_until_it_ends():
    told, _ = watch(1, 1, rounds=3)
    for number in (1, 2):
        told.note(0, row(number, 0))
        told.note(1, row(number, 2))
    told.note(0, row(3, 0))  # its last one
    told.note(1, row(3, 2))  # nothing is left to save
    told, _ = watch(1, 1, rounds=3)
    told.note(0, row(3, 0))
    with pytest.raises(DivergedError):
        told.note(1, row(1, 2))


def test_whoever_wants_it_may_go_on():
    told, said = watch(0)
    for number in range(1, 9):
        told.note(0, row(number, 2))
    assert len(said) == 1


def test_runs_end_with_a_sentence_and_what_they_recorded(tmp_path):
    wanted = runs.settings(
        training={"learning_rate": 1e18}, length={"rounds": 30, "diverged_rounds": 2}
    )
    outcome, log = runs.run(tmp_path, wanted, dataclasses.replace(wanted, seed=1))
    assert set(outcome.failed) == {"p0", "p1"}
    assert "lower training.learning_rate" in outcome.failed["p0"]
    assert "one by one" not in log.text
    assert log.text.count("p0: all") == 1
    assert 2 <= len(records.read_rounds(tmp_path / "p0")) < 30
