"""Are batches dealt, followed, tried again and stopped as they should be?

The engine here is a plain list of jobs in this process; `test_clusters.py` has real
ones.
"""

import dataclasses
import json
import types

import pytest

import dpsparfl_jax as fl
from dpsparfl_jax import __version__
from dpsparfl_jax.errors import InputError
from experiments import grid, presets
from experiments.engines import live_page, status, watch, work
from experiments.engines.batches import Batch, Result, deal
from experiments.engines.ray_engine import RayEngine
from experiments.engines.slurm_engine import SlurmEngine
from tests.commands import assert_refused
from tests.experiments.small_runs import run

BASE = presets.get_preset("quickstart").settings


def points(text):
    return grid.expand(BASE, grid.parse(text)).settings


def test_batches_hold_runs_of_one_program_and_have_equal_sizes():
    settings = points("training.local_steps=2,3;schedule.tradeoff=1,2,3;seed=0,1,2,3")
    dealt = deal(settings, workers=2, each=2)
    assert sorted(name for names in dealt for name in names) == sorted(settings)
    assert [len(names) for names in dealt] == [6, 6, 6, 6]
    for names in dealt:
        assert len({settings[name].training.local_steps for name in names}) == 1


@pytest.mark.parametrize(
    ("text", "batches"),
    [
        ("schedule.policy=random,dp_sparfl;privacy.noise_multiplier=1,2", 1),
        ("data.dirichlet_alpha=0.1,0.5", 1),  # other owners, the same sizes
        ("training.batch_size=8,16", 2),  # padded differently
        ("wireless.num_channels=2,3", 2),
        ("data.train_examples=50,60", 2),
        ("perf.devices=0,1", 2),
    ],
)
def test_what_moves_shapes_is_dealt_apart(text, batches):
    assert len(deal(points(text), workers=1)) == batches


def test_a_batch_has_no_more_runs_than_allowed():
    settings = points("seed=0,1,2,3,4,5,6,7,8,9")
    assert [len(names) for names in deal(settings, 1, most=4)] == [4, 3, 3]
    assert [len(names) for names in deal(settings, 20)] == [1] * 10


class Stopper:
    def __init__(self, asked=False):
        self.answer = asked

    def asked(self):
        return self.answer


class ListEngine:
    """Jobs that end as told: a function of the batch and of how often it was tried."""

    batches_each, at_once, cores = 1, 0, 1

    def __init__(self, end, workers=2, at_once=0):
        self.end, self.workers, self.at_once = end, workers, at_once
        self.tried, self.open, self.most_open, self.cancelled = {}, 0, 0, []

    def submit(self, batches):
        self.open += len(batches)
        self.most_open = max(self.most_open, self.open)
        return [self._job(batch) for batch in batches]

    def _job(self, batch):
        def poll():
            self.open -= 1
            self.tried[batch.number] = self.tried.get(batch.number, 0) + 1
            return self.end(batch, self.tried[batch.number])

        def cancel():
            self.cancelled.append(batch.number)

        return types.SimpleNamespace(poll=poll, cancel=cancel)

    def close(self):
        pass


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    monkeypatch.setattr(watch, "_POLL_S", 0.001)


def follow(engine, out, *, stopper=None, text="seed=0,1,2,3", **plan):
    settings = points(text)
    folders = {name: out / name for name in settings}
    made = watch.Plan(out, **plan)
    return watch.train(engine, made, settings, folders, stopper or Stopper())


def finished(batch, attempt=1):
    return Result(list(batch.settings), [], [], {})


def test_results_of_all_batches_are_gathered(tmp_path):
    def end(batch, attempt):
        names = list(batch.settings)
        if batch.number:
            return Result(names[:1], [], [], {names[1]: "it has no images."})
        return finished(batch)

    outcome = follow(ListEngine(end), tmp_path)
    assert len(outcome.finished) == 3
    assert [str(reason) for reason in outcome.failed.values()] == ["it has no images."]
    page = (tmp_path / live_page.PAGE).read_text()
    assert "3.0 of 4 runs" in page
    assert "refresh" not in page  # it is over


def test_batches_travel_as_plain_values(tmp_path):
    seen = []
    follow(ListEngine(lambda batch, _: seen.append(batch) or finished(batch)), tmp_path)
    for batch in seen:
        assert Batch(*json.loads(json.dumps(batch))).settings == batch.settings
        assert batch.out == str(tmp_path)
        assert batch.version == __version__


def test_a_lost_worker_is_replaced_up_to_a_limit(tmp_path, capsys):
    def end(batch, attempt):
        if batch.number == 0 or attempt < 3:
            raise watch.Lost("killed")
        return finished(batch)

    engine = ListEngine(end)
    outcome = follow(engine, tmp_path, retries=3)
    assert engine.tried == {0: 4, 1: 3}
    assert len(outcome.finished) == 2
    assert {str(why) for why in outcome.failed.values()} == {
        "its worker was lost 4 time(s) (killed)."
    }
    assert capsys.readouterr().err.count("another one goes on") == 3 + 2
    assert list((tmp_path / ".launches").iterdir())  # logs of what failed stay


def test_an_engine_is_given_no_more_than_it_takes(tmp_path):
    engine = ListEngine(finished, workers=4, at_once=2)
    outcome = follow(engine, tmp_path)
    assert len(outcome.finished) == 4
    assert engine.most_open == 2


def test_asked_to_stop_it_takes_back_what_has_not_begun(tmp_path):
    stopper = Stopper()

    def end(batch, attempt):
        if batch.number == 0:
            if attempt == 1:  # it has begun when the user asks
                status.Reporter(engine.folder, 0)
                stopper.answer = True
                return None
            reporter = status.Reporter(engine.folder, 0)
            return (
                Result([], [], list(batch.settings), {})
                if (reporter.asked_to_stop())
                else None
            )
        return None

    engine = ListEngine(end)
    submit = engine.submit

    def remember(batches):
        import pathlib

        engine.folder = pathlib.Path(batches[0].launch)
        return submit(batches)

    engine.submit = remember
    outcome = follow(engine, tmp_path, stopper=stopper)
    assert engine.cancelled == [1]
    assert len(outcome.stopped) == 4
    assert not outcome.finished


def test_finished_runs_are_not_sent_and_strange_folders_are_refused(tmp_path):
    (tmp_path / "seed=1").mkdir()
    (tmp_path / "seed=1" / "notes.txt").touch()
    engine = ListEngine(finished)
    outcome = follow(engine, tmp_path)
    assert "holds other files" in str(outcome.failed["seed=1"])
    assert sorted(outcome.finished) == ["seed=0", "seed=2", "seed=3"]


def test_workers_tell_how_far_they_are_and_what_must_not_be_overlooked(tmp_path):
    assert status.read(tmp_path, 3) == status.Status()
    status.status_file(tmp_path, 3).write_text('{"state": "tra')
    assert status.read(tmp_path, 3).state == "waiting"
    reporter = status.Reporter(tmp_path, 3)
    reporter._written = -10.0  # long ago
    schedule = types.SimpleNamespace(num_rounds=4)
    one = types.SimpleNamespace(name="a", schedule=schedule)
    reporter.row(one, {"round": 1, "accuracy": 0.5})
    told = status.read(tmp_path, 3)
    assert (told.state, told.runs, told.rounds) == ("training", 0.25, 1)
    assert (told.accuracy, told.attempt) == (0.5, 1)
    reporter.warn("Look at this.")
    reporter.end("finished", 1)
    again = status.Reporter(tmp_path, 3)  # another worker, after this one was lost
    again.end("finished", 1)
    told = status.read(tmp_path, 3)
    assert (told.attempt, told.warnings) == (2, ("Look at this.",))


def test_the_page_escapes_reloads_and_says_how_long(tmp_path):
    one = status.Status("training", 1.5, 30, 0.25, "<b>, process 1", 2)
    live_page.write(tmp_path, [3, 2], [one, status.Status()], 300.0, over=False)
    page = (tmp_path / live_page.PAGE).read_text()
    for text in ("1.5 of 5 runs", 'http-equiv="refresh"', "&lt;b&gt;", "25.0%", "2x"):
        assert text in page
    assert "for 5 min so far. About 12 min are left" in page


def make_batch(tmp_path, **changes):
    settings = {"seed=0": dataclasses.asdict(fl.RunConfig())}
    values = {"version": __version__, "at": str(tmp_path)}
    return Batch(0, settings, str(tmp_path), str(tmp_path), **{**values, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": "0.0"}, "install the same version everywhere"),
        ({"at": "/not/there"}, "a folder that all machines share"),
        ({"plugins": ("not_there.py",)}, "--plugin=not_there.py cannot be loaded"),
    ],
)
def test_a_worker_that_cannot_begin_says_why(tmp_path, monkeypatch, changes, message):
    monkeypatch.chdir(tmp_path)
    result = work.train_batch(make_batch(tmp_path, **changes))
    assert message in result.failed["seed=0"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--engine=spark"], "value should be one of <local|ray|slurm>"),
        (["--workers=2"], "--workers means nothing to --engine=local"),
        (["--engine=ray", "--slurm.here"], "--slurm.here means nothing to"),
        (["--engine=slurm", "--ray.cores=2"], "--ray.cores means nothing to"),
        (["--engine=ray", "--ray.resources=TPU"], "'TPU' is not of the form"),
        (["--engine=ray", "--ray.resources=TPU=x"], "amounts are numbers"),
        (["--engine=ray", "--ray.resources=TPU=-1"], "numbers above 0"),
        (["--engine=ray", "--ray.resources=GPU=1"], "use --ray.cores and --ray.gpus"),
        (["--engine=slurm", "--slurm.options=gpu"], "'gpu' is not of the form"),
        (["--engine=slurm", "--slurm.options='a"], "No closing quotation"),
        (
            ["--engine=ray", "--distributed.auto"],
            "are two ways to use many machines: choose one",
        ),
    ],
)
def test_flags_that_do_not_fit_are_refused(tmp_path, flags, message):
    grid = "--grid=seed=0,1"
    done = run(tmp_path / "o", grid, *flags, program="experiments.sweep")
    assert_refused(done, message)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "a b:70000"])
def test_a_cluster_that_is_not_there_is_missed_at_once(address):
    pytest.importorskip("ray")
    with pytest.raises(InputError, match="nobody answers at"):
        RayEngine(address=address)


def test_slurm_is_missed_in_a_sentence(monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match="finds no sbatch: launch it where Slurm is"):
        SlurmEngine(workers=1)
