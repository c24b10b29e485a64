"""Does `dpsparfl show` say what was recorded of a run, on one screen?"""

import json

import numpy as np
import pytest

from dpsparfl_jax import records, storage
from dpsparfl_jax.planning import schedule
from experiments import presets
from tests.commands import assert_refused, call_program
from tests.report.test_report import make_schedule, write_run

SHOW = "experiments.show"


def shown(folder):
    """The lines by their headings; all of them fit on a screen."""
    done = call_program(SHOW, folder)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) <= 40
    assert all(len(line) <= 100 for line in lines if str(folder) not in line)
    parts, heading = {}, ""
    for line in lines:
        heading = line[:10].strip() or heading
        parts[heading] = f"{parts.get(heading, '')} {line[10:]}".strip()
    return parts


def change_manifest(folder, **changes):
    path = folder / records.MANIFEST
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | changes))


def test_a_finished_run(tmp_path):
    run = write_run(tmp_path / "mine", seed=3, schedule={"tradeoff": 7.5})
    change_manifest(
        run,
        warnings=["Beware of this. " * 60, "And of that."],
        versions={"dpsparfl_jax": "0.3.0", "jax": "0.9", "flax": "1"},
        device={"kind": "cpu", "count": 2, "cores": 4},
    )
    told, recorded = shown(run), records.load_run(run)
    assert told["run"] == "mine: finished after 12 rounds"
    assert told["settings"] == "the defaults, but for: schedule.tradeoff=7.5, seed=3"
    rounds, clients = recorded.rounds, recorded.clients
    assert f"epsilon {rounds['epsilon_max'].iloc[-1]:.3f} by who" in told["privacy"]
    assert "Private, with delta = 0.001, pld accountant." in told["privacy"]
    low, high = clients["epsilon_asked"].min(), clients["epsilon_asked"].max()
    assert f"8 clients with budgets from {low:.3f} to {high:.3f}" in told["privacy"]
    assert "0 retired" in told["privacy"]
    assert f"accuracy {rounds['accuracy'].iloc[-1]:.2%}" in told["result"]
    assert f"best accuracy {rounds['accuracy'].max():.2%}" in told["result"]
    assert f"energy (J) {rounds['cumulative_energy_j'].iloc[-1]:,.1f}" in told["result"]
    assert told["warnings"].startswith("Beware of this.")
    assert told["warnings"].endswith("lines more")
    assert told["made by"] == (
        "dpsparfl_jax 0.3.0, jax 0.9, 2 device(s) of kind cpu, 4 cores"
    )
    assert f"{run}: manifest.json, rounds.jsonl, clients.csv, DONE" in told["files"]
    assert told["files"].endswith("missing: schedule.npz, checkpoints")
    assert f"dpsparfl report {run}" in told["go on"]


def test_clients_that_have_retired_are_counted(tmp_path):
    run = write_run(tmp_path / "run")
    table = records.load_run(run).clients
    table.loc[:2, "afforded"] = table.loc[:2, "participations"]
    table.loc[3, ["afforded", "participations"]] = 0
    table.to_csv(run / records.CLIENTS, index=False)
    retired = int((table["participations"] >= table["afforded"]).sum()) - 1
    told = shown(run)["privacy"]
    assert f"{retired} retired (no participation left), 1 could never" in told


def test_an_unfinished_run(tmp_path):
    run = write_run(tmp_path / "half", num_rounds=5, done=False)
    assert "schedule.npz cannot be read" in shown(run)["privacy"]
    plan = make_schedule(0, 5)
    served = np.bincount(plan.client[plan.sends], minlength=8)
    schedule.save(plan, run / records.SCHEDULE)
    (run / records.CHECKPOINTS / "4").mkdir(parents=True)
    told = shown(run)
    assert told["run"] == "half: unfinished, at round 5 of 99"
    assert "retired" in told["privacy"]
    assert f"{np.sum(served >= plan.affordable)} retired" in told["privacy"]
    assert "begins again after round 4" in told["go on"]
    assert "missing" not in told["files"]
    lock = storage.FolderLock(run / records.LOCK)
    assert shown(run)["run"].endswith("being trained right now")
    lock.release()


def test_runs_without_rounds_and_without_privacy(tmp_path):
    new = write_run(tmp_path / "new", num_rounds=0, done=False)
    told = shown(new)
    assert told["result"] == "nothing so far"
    assert "at the first round (no checkpoint)" in told["go on"]
    told = shown(write_run(tmp_path / "open", privacy={"noise": False}))
    assert told["privacy"].startswith("Not private: no noise is added")
    assert "epsilon" in told["privacy"]


@pytest.mark.parametrize("name", ["quickstart", "paper_cifar"])
def test_settings_are_told_from_the_nearest_preset(tmp_path, name):
    run = write_run(tmp_path / "run")
    content = json.loads((run / records.MANIFEST).read_text())["config"]
    settings = presets.get_preset(name).settings
    for section in content:
        if section != "seed":
            content[section] |= vars(getattr(settings, section))
    content["training"]["clip_norm"] = 9.5
    del content["server"]["rescale"]  # as an earlier version
    change_manifest(run, config=content)
    assert shown(run)["settings"] == (
        f"preset {name}, but for: training.clip_norm=9.5, seed=0"
    )


def test_long_values_and_strange_sections_do_no_harm(tmp_path):
    run = write_run(tmp_path / "run", privacy={"epsilons": ",".join(["2.5"] * 200)})
    assert "epsilons=2.5,2.5" in shown(run)["settings"]
    content = json.loads((run / records.MANIFEST).read_text())["config"]
    change_manifest(run, config={**content, "server": 3, "later": {"name": 1}})
    assert "server=3" in shown(run)["settings"]


def test_refusals(tmp_path):
    assert_refused(call_program(SHOW), "name the folder of one run, not 0")
    assert_refused(call_program(SHOW, tmp_path), "there is no recorded run in")
    first = write_run(tmp_path / "below" / "one")
    second = write_run(tmp_path / "two")
    assert_refused(call_program(SHOW, first, second), "one run, not 2")
    assert_refused(call_program(SHOW, tmp_path), "2 of them lie below it")
    (first / records.CLIENTS).unlink()
    assert_refused(call_program(SHOW, first), "delete DONE and resume")
    (second / records.MANIFEST).write_text("{")
    assert_refused(call_program(SHOW, second), "is no manifest of a run")
