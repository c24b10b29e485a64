"""Do services get every round once, and does training go on without them?

Small fakes stand in for their clients, which have the calls that we use.
"""

import importlib.machinery
import json
import sys
import types

import pytest

from dpsparfl_jax import records
from experiments import launch, services, tracking
from tests.commands import assert_refused, call_program
from tests.runner.runs import Log, settings


class Wandb(types.ModuleType):
    """`wandb`: runs by id, with their settings and the rounds that were logged."""

    def __init__(self):
        super().__init__("wandb")
        self.__spec__ = importlib.machinery.ModuleSpec("wandb", None, origin="fake")
        self.runs, self.given, self.ends = {}, [], []
        self.is_down = self.is_logged_in = False
        self.errors = types.SimpleNamespace(UsageError=LookupError)

    def Settings(self, **given):
        return given

    def login(self):
        if self.is_down:
            raise ConnectionError("no route to host")
        if not self.is_logged_in:
            raise self.errors.UsageError("No API key configured.\nMore words.")

    def init(self, **given):
        if self.is_down:
            raise ConnectionError("no route to host\nand a long story")
        self.given.append(given)
        known = given["id"] or f"id{len(self.runs)}"
        assert (known in self.runs) == (given["resume"] == "allow")
        return WandbRun(self, known, self.runs.setdefault(known, {}))


class WandbRun:
    def __init__(self, client, known, kept):
        self.id, self._client, self._kept = known, client, kept
        self._kept.setdefault("rounds", [])
        self.config = self

    def update(self, values, *, allow_val_change):
        assert allow_val_change
        self._kept["settings"] = values

    def define_metric(self, name, step_metric=None):
        pass

    def log(self, values):
        if self._client.is_down:
            raise ConnectionError("no route to host")
        self._kept["rounds"].append(values)

    def finish(self, exit_code):
        self._client.ends.append((self.id, exit_code))


class Mlflow(types.ModuleType):
    """`mlflow.tracking.MlflowClient`, as a module and as its own client."""

    def __init__(self):
        super().__init__("mlflow")
        self.__spec__ = importlib.machinery.ModuleSpec("mlflow", None, origin="fake")
        self.experiments, self.runs, self.tags = {}, {}, {}
        self.Param = self.Metric = lambda *values: values

    def MlflowClient(self):
        return self

    def get_experiment_by_name(self, name):
        found = self.experiments.get(name)
        return found and types.SimpleNamespace(experiment_id=found)

    def create_experiment(self, name):
        return self.experiments.setdefault(name, f"{len(self.experiments) + 1}")

    def create_run(self, experiment, *, run_name, tags):
        assert experiment in self.experiments.values()
        known = f"{run_name} {len(self.runs)}"
        self.runs[known] = {"params": [], "metrics": [], "status": "RUNNING"}
        self.tags[known] = tags
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=known))

    def log_batch(self, known, params=(), metrics=()):
        assert len(params) <= 100
        assert len(metrics) <= 1000
        self.runs[known]["params"] += params
        self.runs[known]["metrics"] += metrics

    def update_run(self, known, status):
        self.runs[known]["status"] = status

    def set_terminated(self, known, status):
        self.runs[known]["status"] = status


@pytest.fixture
def wandb(monkeypatch):
    fake = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


@pytest.fixture
def mlflow(monkeypatch):
    fake = Mlflow()
    for name in ("mlflow", "mlflow.tracking", "mlflow.entities"):
        monkeypatch.setitem(sys.modules, name, fake)
    services._mlflow_client.cache_clear()
    yield fake
    services._mlflow_client.cache_clear()


def train(out, *names, rounds=4, log=None):
    """Two runs of a sweep, with these services."""
    wanted = {f"seed={n}": settings(n, length={"rounds": rounds}) for n in (0, 1)}
    folders = {name: out / name for name in wanted}
    hooks = (log or Log()).hooks
    return launch.train(wanted, folders, hooks, resume=True, sweep=out, log=names)


def told(out, run="seed=0"):
    return records.read_rounds(out / run)


def test_every_round_is_sent_once_also_after_resuming(tmp_path, wandb, mlflow):
    out = tmp_path / "grid"
    stopped = train(out, "wandb", "mlflow", log=Log(3))
    assert stopped.stopped == ["seed=0", "seed=1"]
    assert {code for _, code in wandb.ends} == {1}
    assert {run["status"] for run in mlflow.runs.values()} == {"KILLED"}
    first = json.loads((out / "seed=0" / "tracked_wandb.json").read_text())
    assert first["rounds"] == len(told(out)) > 0
    assert train(out, "wandb", "mlflow").finished == ["seed=0", "seed=1"]
    assert train(out, "wandb", "mlflow").skipped == ["seed=0", "seed=1"]
    train(out, "wandb", "mlflow", rounds=5)  # more of them
    assert len(wandb.runs) == len(mlflow.runs) == 2
    assert wandb.given[0]["group"] == "grid"
    for number, kept in enumerate(wandb.runs.values()):
        rows = told(out, f"seed={number}")
        assert [row["round"] for row in kept["rounds"]] == [1, 2, 3, 4, 5]
        for sent, row in zip(kept["rounds"], rows, strict=True):
            assert sent == {k: v for k, v in row.items() if type(v) in (int, float)}
        assert kept["settings"]["length.rounds"] == 5
        assert kept["settings"]["data.dir"].startswith("…/")  # no path of a machine
    for number, kept in enumerate(mlflow.runs.values()):
        rows = told(out, f"seed={number}")
        curve = [
            (step, value) for name, value, _, step in kept["metrics"] if name == "loss"
        ]
        assert curve == [(row["round"], row["loss"]) for row in rows]
        assert dict(kept["params"])["seed"] == str(number)
        assert kept["status"] == "FINISHED"
    assert set(map(str, mlflow.tags.values())) == {"{'sweep': 'grid'}"}


def test_an_outage_is_one_warning_and_nothing_is_lost(tmp_path, wandb):
    wandb.is_down, log = True, Log()
    outcome = train(tmp_path, "wandb", log=log)
    assert outcome.finished == ["seed=0", "seed=1"]
    warnings = [line for line in log.said if "wandb" in line]
    assert warnings == [
        "Rounds cannot be sent to wandb now (no route to host): training goes on, and "
        "they are sent later.",
        "Not all rounds were sent to wandb: they are recorded, and the same command "
        "sends them.",
    ]
    wandb.is_down = False
    assert train(tmp_path, "wandb").skipped == ["seed=0", "seed=1"]
    assert [len(kept["rounds"]) for kept in wandb.runs.values()] == [4, 4]


def test_what_waited_is_sent_when_a_service_is_back(tmp_path, wandb, monkeypatch):
    monkeypatch.setattr(tracking, "_AGAIN_S", 0.0)
    said = []
    feed = tracking._Feed("wandb", said.append)
    copy = feed.follow(services.About("run", "", {}), tmp_path)
    wandb.is_down = True
    feed.put(copy, lambda: copy.add([{"round": 1, "loss": 2.0}]))
    feed.put(copy, lambda: setattr(wandb, "is_down", False))
    feed.put(copy, lambda: copy.add([{"round": 2, "loss": 1.0, "clients": [3]}]))
    feed.close()
    assert len(said) == 1
    (kept,) = wandb.runs.values()
    assert kept["rounds"] == [{"round": 1, "loss": 2.0}, {"round": 2, "loss": 1.0}]


@pytest.mark.parametrize("program", ["run", "sweep"])
@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("comet", "--log=comet is no service: choose from wandb, mlflow."),
        ("wandb,mlflow", "pip install 'dpsparfl_jax[wandb]'"),
    ],
)
def test_services_that_are_not_there_are_named(
    tmp_path, monkeypatch, program, names, message
):
    monkeypatch.setattr(services, "_is_installed", lambda client: False)
    flags = (f"--out={tmp_path / 'out'}", "--grid=seed=0,1")[: 1 + (program == "sweep")]
    done = call_program(f"experiments.{program}", *flags, f"--log={names}")
    assert_refused(done, message)
    assert list(tmp_path.iterdir()) == []


def test_whoever_is_not_logged_in_is_told_before_training(tmp_path, monkeypatch, wandb):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    done = call_program("experiments.run", f"--out={tmp_path}", "--log=wandb")
    assert_refused(done, "needs an account (No API key configured.): run wandb login")
    wandb.is_down = True  # an outage is told of later, and ends nothing
    services.log_in(["wandb"])
    wandb.is_down = False
    monkeypatch.setenv("WANDB_MODE", "offline")
    services.log_in(["wandb", "mlflow"])
