"""Do timelines, maps and tables of clients show what was recorded?"""

import dataclasses
import json

import numpy as np
import pytest

from dpsparfl_jax import records
from dpsparfl_jax.report import cell_map, client_table, round_section, timeline
from dpsparfl_jax.report import writing as report
from dpsparfl_jax.runner.run import Run
from dpsparfl_jax.wireless import link
from dpsparfl_jax.wireless.world import make_world, observe
from tests.report.test_report import make_schedule, make_settings, write_run

CELL = {"num_channels": 3, "cycles_per_sample": 1e6, "downlink_fading": True}
SETTINGS = {
    "data": {"num_clients": 6, "train_examples": 120, "test_examples": 30},
    "model": {"name": "logistic"},
    "privacy": {"accountant": "rdp", "noise_multiplier": 4.0},
    "schedule": {"delay_target_s": 5.0, "on_late": "drop"},
    "length": {"rounds": 5},
    "wireless": CELL | {"gain_error_db": 3.0},
}


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A run whose plan comes from the planner, with uploads that come too late."""
    run = Run("run", make_settings(seed=3, **SETTINGS)).outlined().planned()
    folder = write_run(
        tmp_path_factory.mktemp("planned") / "run",
        seed=3,
        plan=run.schedule,
        manifest={"num_parameters": run.outline.model.parameters},
        **SETTINGS,
    )
    return records.load_run(folder)


def slots_of(told, at):
    return [dict(zip(timeline.FIELDS, row, strict=True)) for row in told["slots"][at]]


def test_parts_add_up_to_recorded_delays_and_follow_from_the_link(planned):
    plan = timeline.plan_of(planned)
    told = timeline.rounds_of(planned, plan, 1000)
    settings, radio = planned.settings, planned.settings.wireless
    world = make_world(radio, 6, settings.seed)
    assert told["parts"]
    assert told["rounds"] == [1, 2, 3, 4, 5]
    lost = 0
    for at, row in enumerate(planned.rounds.to_dict("records")):
        slots = slots_of(told, at)
        assert [slot["client"] for slot in slots] == row["clients"]
        assert [slot["channel"] for slot in slots] == row["channels"]
        sums = [slot["downlink"] + slot["training"] + slot["upload"] for slot in slots]
        assert sums == pytest.approx(row["delays_s"], rel=1e-4)
        assert told["ends"][at] == pytest.approx(row["round_delay_s"], rel=1e-4)
        assert max(sums) == pytest.approx(row["round_delay_s"], rel=1e-4)
        assert told["planned"][at] == pytest.approx(row["planned_delay_s"], rel=1e-4)
        now = observe(world, radio, settings.seed, at)
        parameters = planned.manifest["num_parameters"]
        down = link.downlink_delay(
            now.downlink_gain, world.downlink_noise_w, parameters, radio
        )
        work = link.local_examples(np.zeros(6), settings.training, radio)
        train = link.training_delay(work, world.cycles_per_sample, now.cpu_hz)
        for slot in slots:
            assert slot["downlink"] == pytest.approx(down[slot["client"]], rel=1e-3)
            assert slot["training"] == pytest.approx(train[slot["client"]], rel=1e-4)
        lost += sum(slot["lost"] for slot in slots)
        assert sum(slot["late"] for slot in slots) == row["late"]
    assert lost == planned.rounds["lost"].sum() > 0


def test_the_map_has_the_places_of_the_planner_or_says_why_not(planned):
    plan = timeline.plan_of(planned)
    world = make_world(planned.settings.wireless, 6, 3)
    cell = cell_map.cell_of(planned, plan)
    np.testing.assert_allclose(cell["clients"], world.clients_m, rtol=1e-3)
    np.testing.assert_allclose(cell["receivers"], world.channels_m, rtol=1e-3)
    other = json.loads(json.dumps(planned.manifest))
    other["config"]["seed"] = 4  # as another version may have drawn them
    moved = dataclasses.replace(planned, manifest=other)
    assert "do not explain the delays" in cell_map.cell_of(moved, plan)
    unknown = dataclasses.replace(planned, manifest={"config": {}})
    assert "There is no map" in cell_map.cell_of(unknown, plan)
    assert "no schedule" in cell_map.cell_of(planned, None)


def test_runs_without_a_schedule_of_their_own_show_whole_delays(tmp_path, planned):
    folder = write_run(tmp_path / "run")
    run = records.load_run(folder)
    assert timeline.plan_of(run) is None
    told = timeline.rounds_of(run, None, 1000)
    assert not told["parts"]
    whole = [[slot["upload"] for slot in slots_of(told, at)] for at in range(12)]
    for found, wanted in zip(whole, run.rounds["delays_s"], strict=True):
        assert found == pytest.approx(wanted, rel=1e-4)
    foreign = (planned.path / records.SCHEDULE).read_bytes()
    for content in (b"", b"no archive", foreign):  # damaged, or of another run
        (folder / records.SCHEDULE).write_bytes(content)
        assert timeline.plan_of(run) is None
        assert "no schedule" in round_section.spec_of([run])["runs"][0]["no_cell"]
    older = dataclasses.replace(run, rounds=run.rounds.drop(columns="delays_s"))
    assert round_section.spec_of([older]) is None


def test_long_runs_are_thinned_and_keep_both_ends(tmp_path):
    run = records.load_run(write_run(tmp_path / "run", num_rounds=40))
    told = timeline.rounds_of(run, None, 30)
    assert (told["rounds"][0], told["rounds"][-1]) == (1, 40)
    assert sum(map(len, told["slots"])) <= 30
    assert "not every round can be chosen" in round_section.section(
        round_section.spec_of([run]) | {"runs": [told]}
    )


def test_tables_of_clients_have_budgets_and_say_what_they_leave_out(planned):
    table = client_table.table_of([planned])
    (told,) = table["runs"]
    clients = planned.clients
    at = table["budget"]
    spent = [row[at] for row in told["rows"]]
    np.testing.assert_allclose(
        spent, clients[["epsilon_spent", "epsilon_asked"]], rtol=1e-4
    )
    assert [row[0] for row in told["rows"]] == [*range(6)]
    assert told["left_out"] == ""
    assert "first 2 clients" in client_table._of_run(planned, 2)["left_out"]
    open_run = dataclasses.replace(planned, manifest={
        "config": {"privacy": {"noise": False}}})  # fmt: skip
    (told,) = client_table.table_of([open_run])["runs"]
    assert told["without"] == "not private"
    assert told["rows"][0][at] == [None, None]


def test_a_page_of_many_long_runs_stays_below_six_megabytes(tmp_path):
    plan = make_schedule(0, 300)
    run = records.load_run(write_run(tmp_path / "run", plan=plan))
    many = [
        dataclasses.replace(
            run,
            name=f"run{number}",
            manifest=run.manifest
            | {"config": run.manifest["config"] | {"schedule": {"tradeoff": number}}},
        )
        for number in range(24)
    ]
    entries = report.seeds.show_runs(many)
    assert len(report.whole_page(many, entries, "many")) < 6_000_000
