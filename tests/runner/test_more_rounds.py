"""Is a run that is given more rounds the one that had them from the start?"""

import json

import pytest

from benchmarks import run_facts
from dpsparfl_jax import config_values, records
from dpsparfl_jax.errors import InputError, StorageError, UnfinishedRunError
from dpsparfl_jax.runner import own_folder
from tests.runner.runs import Log, run, settings


@pytest.mark.parametrize("stop_after", [10**9, 3])
def test_a_run_goes_on_to_the_bits_of_a_longer_one(whole, tmp_path, stop_after):
    """Finished, or stopped in its middle."""
    run(tmp_path, settings(0, length={"rounds": 4}), log=Log(stop_after))
    outcome, log = run(tmp_path, settings(0), resume=True)
    assert outcome.finished == ["p0"]
    assert "p0: 6 rounds are planned now, 4 before." in log.text
    assert "p0: going on after round" in log.text
    assert run_facts.facts(tmp_path / "p0") == run_facts.facts(whole / "p0")
    found = records.load_run(tmp_path / "p0")
    assert found.done
    assert found.settings == settings(0)
    assert found.schedule.num_rounds == found.manifest["planned_rounds"] == 6
    outcome, _ = run(tmp_path, settings(0))
    assert outcome.skipped == ["p0"]


def test_noise_of_its_own_and_a_late_evaluation(tmp_path):
    """The round that was the last one keeps its evaluation; all else is equal."""

    def wanted(rounds):
        own = {"privacy": {"noise_key": "own"}}
        return settings(0, length={"rounds": rounds, "eval_every": 4}, **own)

    run(tmp_path / "short", wanted(3))
    run(tmp_path / "short", wanted(6), resume=True)
    run(tmp_path / "long", wanted(6))
    short, long = tmp_path / "short" / "p0", tmp_path / "long" / "p0"
    told = records.read_rounds(short)
    assert told[2]["accuracy"] is not None
    told[2] = told[2] | {"accuracy": None, "loss": None}
    (short / records.ROUNDS).write_text("".join(json.dumps(row) + "\n" for row in told))
    assert run_facts.facts(short) == run_facts.facts(long)


def test_killed_while_it_is_given_more_rounds(whole, tmp_path, monkeypatch):
    run(tmp_path, settings(0, length={"rounds": 4}))
    with monkeypatch.context() as patch:

        def fail(*_):
            raise StorageError("killed")

        patch.setattr(records.RunFolder, "keep_schedule", fail)
        with pytest.raises(StorageError):
            run(tmp_path, settings(0), resume=True)
    assert not records.load_run(tmp_path / "p0").done
    assert records.load_run(tmp_path / "p0").schedule.num_rounds == 4
    outcome, _ = run(tmp_path, settings(0), resume=True)
    assert outcome.finished == ["p0"]
    assert run_facts.facts(tmp_path / "p0") == run_facts.facts(whole / "p0")


def recorded(folder, **changes):
    """A folder that says it holds a run of six rounds."""
    then = settings(0, **changes)
    content = {"config": config_values.as_dict(then)}
    (folder / records.MANIFEST).write_text(json.dumps(content))
    return lambda rounds: settings(0, length={"rounds": rounds}, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"training": {"rate_schedule": "cosine"}},
        {"server": {"optimizer": "sgd", "rate_schedule": "linear"}},
        {"server": {"averaging": "tail"}},
        {"server": {"divide_by": "planned"}},
    ],
)
def test_what_looks_ahead_to_the_last_round_is_refused(tmp_path, changes):
    wanted = recorded(tmp_path, **changes)
    ((section, values),) = changes.items()
    name = list(values)[-1]
    with pytest.raises(InputError, match=f"{section}.{name}=.* looks ahead"):
        own_folder.look(tmp_path, wanted(7), resume=True)
    seeds = {
        config_values.noise_seed(
            settings(0, length={"rounds": n}, privacy={"noise_key": "own"}, **changes)
        )
        for n in (6, 7)
    }
    assert len(seeds) == 2  # their first rounds differ: noise could be subtracted


def test_fewer_rounds_and_other_runs_are_refused(tmp_path):
    wanted = recorded(tmp_path)
    with pytest.raises(InputError, match=r"\(length.rounds was 6, is 5\)"):
        own_folder.look(tmp_path, wanted(5), resume=True)
    with pytest.raises(UnfinishedRunError, match="fewer rounds: resume it"):
        own_folder.look(tmp_path, wanted(7), resume=False)
    with pytest.raises(InputError, match="holds another run"):
        own_folder.look(tmp_path, settings(1, length={"rounds": 7}), resume=True)
    assert own_folder.look(tmp_path, wanted(0), resume=True).is_shorter
    wanted = recorded(tmp_path, length={"rounds": 0})
    with pytest.raises(InputError, match=r"\(length.rounds was 0, is 7\)"):
        own_folder.look(tmp_path, settings(0, length={"rounds": 7}), resume=True)
