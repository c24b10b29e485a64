"""Does a schedule that keeps participations know what became of every client?"""

import dataclasses

import numpy as np
import pytest

from dpsparfl_jax import memory
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning import planner as planning
from dpsparfl_jax.planning import schedule as schedule_lib
from dpsparfl_jax.privacy import first_ledger
from tests.planning.plans import MODEL, SIZES, config, plan

TABLES = ("fairness_queue", "live", "epsilon_spent")


def followed(settings):
    """A schedule, and queues and ledger as the planner had them in every round."""
    ledger, _ = first_ledger.start_ledger(settings, SIZES, 60, 1000)
    planner = planning.Planner(settings, SIZES, MODEL, ledger)
    tables = {name: [] for name in TABLES}
    queue, live = planner.queues.fairness, planner.ledger.live
    for _ in planning.stream(planner):
        tables["fairness_queue"].append(queue)
        tables["live"].append(live)
        tables["epsilon_spent"].append(planner.ledger.epsilon_spent)
        queue, live = planner.queues.fairness, planner.ledger.live
    made = planning.plan(planning.Planner(settings, SIZES, MODEL, ledger))
    return made, {name: np.array(table) for name, table in tables.items()}


@pytest.mark.parametrize("fairness", ["signed", "paper", "c7"])
def test_queues_and_ledgers_follow_from_participations(fairness):
    made, tables = followed(config(rounds=12, fairness=fairness, epsilon_hi=4.0))
    assert not tables["live"].all()
    for name in TABLES:
        np.testing.assert_array_equal(getattr(made, name), tables[name], err_msg=name)
        assert getattr(made, name).dtype == tables[name].dtype
    spent = made.epsilon_after(made.participations)
    np.testing.assert_array_equal(spent, made.epsilon_spent[-1])


@pytest.mark.parametrize("fairness", ["signed", "paper", "c7"])
def test_schedules_of_earlier_versions_are_read(tmp_path, fairness):
    made, tables = followed(config(rounds=6, fairness=fairness))
    names = [field.name for field in dataclasses.fields(made)]
    new = {"fairness", "epsilon_curve", "group"}
    old = {name: getattr(made, name) for name in names if name not in new} | tables
    np.savez(tmp_path / "old.npz", **old)
    found = schedule_lib.load(tmp_path / "old.npz")
    for name in (*TABLES, *(set(names) - new - {"reason"})):
        one, other = getattr(found, name), getattr(made, name)
        np.testing.assert_array_equal(one, other, err_msg=name)
    schedule_lib.save(found, tmp_path / "new.npz")
    again = schedule_lib.load(tmp_path / "new.npz")
    np.testing.assert_array_equal(again.epsilon_spent, made.epsilon_spent)
    old["fairness_queue"] = old["fairness_queue"] + 1.0
    np.savez(tmp_path / "old.npz", **old)
    with pytest.raises(InputError, match="do not follow from who sends"):
        schedule_lib.load(tmp_path / "old.npz")
    old["fairness_queue"] = old["fairness_queue"][:, 1:]
    np.savez(tmp_path / "old.npz", **old)
    with pytest.raises(InputError, match="fairness_queue has the shape"):
        schedule_lib.load(tmp_path / "old.npz")


def test_a_schedule_is_not_larger_for_clients_that_do_not_send(tmp_path):
    settings = config(rounds=2, policy="random")
    few, many = plan(settings), plan(settings, np.full(2000, 1000))
    sizes = [
        sum(np.asarray(column).nbytes for column in dataclasses.asdict(one).values())
        for one in (few, many)
    ]
    assert sizes[1] - sizes[0] < 1980 * 40


def test_tables_too_large_for_memory_are_refused(monkeypatch):
    made = plan(config(rounds=2))
    monkeypatch.setattr(memory, "total_bytes", lambda: 100.0)
    with pytest.raises(InputError, match=r"2 rounds of 20 .* client_states\(\)"):
        _ = made.epsilon_spent
    assert len(list(made.client_states())) == 2


def test_the_first_rounds_of_a_schedule():
    made = plan(config(rounds=6))
    cut = schedule_lib.first_rounds(made, 4)
    assert cut.num_rounds == 4
    assert cut.last_delay_queue == made.delay_queue[4]
    np.testing.assert_array_equal(cut.epsilon_spent, made.epsilon_spent[:4])
    whole = schedule_lib.first_rounds(made, 6)
    assert whole.last_delay_queue == made.last_delay_queue
