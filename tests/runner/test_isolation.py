"""Does one run's trouble stay its own, and is nothing held on to?"""

import gc
import weakref

import jax.numpy as jnp
import numpy as np
import pytest

import dpsparfl_jax as fl
from dpsparfl_jax import registry
from dpsparfl_jax.errors import InputError, StorageError
from dpsparfl_jax.privacy.accountants import make_accountant
from dpsparfl_jax.privacy.rdp import RdpAccountant
from dpsparfl_jax.records.events import EventLog
from dpsparfl_jax.runner import drive
from dpsparfl_jax.runner.batch import Batch
from dpsparfl_jax.runner.folder_sink import FolderSink
from dpsparfl_jax.runner.run import Run
from dpsparfl_jax.runner.sinks import MemorySink
from dpsparfl_jax.sparsifiers import Bernoulli
from tests import toy

SILENT = drive.Hooks(say=lambda text: None, warn=lambda text: None, progress=False)


@pytest.fixture(autouse=True)
def _own_entries(monkeypatch):
    for kind in (registry.ACCOUNTANTS, registry.MODELS, registry.SPARSIFIERS):
        for name in kind:
            kind.get(name)
        monkeypatch.setattr(kind, "_entries", dict(kind._entries))


def drive_all(settings):
    runs = [Run(str(number), each) for number, each in enumerate(settings)]
    sinks = [MemorySink() for _ in runs]
    return drive.drive(runs, sinks, SILENT), sinks


def test_a_run_that_asks_for_missing_devices_stops_no_other():
    outcome, _ = drive_all([toy.settings(), toy.settings(perf={"devices": 99})])
    assert outcome.finished == ["0"]
    assert "99 devices" in str(outcome.failed["1"])


def test_a_batch_that_failed_is_let_go_before_its_runs_are_tried_alone(monkeypatch):
    batches = []
    train = Batch.train

    def fail_together(self, *args, **kwargs):
        gc.collect()
        batches.append((weakref.ref(self), [ref() for ref, _ in batches]))
        if len(self.runs) > 1:
            raise MemoryError("too many runs")
        return train(self, *args, **kwargs)

    monkeypatch.setattr(Batch, "train", fail_together)
    outcome, _ = drive_all([toy.settings(0), toy.settings(1)])
    assert outcome.finished == ["0", "1"]
    assert batches[1][1] == [None]  # the batch of two is gone


def test_images_are_let_go_with_the_runs_that_used_them():
    _, sinks = drive_all([toy.settings()])
    with pytest.raises(RuntimeError, match="not given images"):
        _ = sinks[0].run.data
    assert sinks[0].run.schedule.num_rounds


def test_a_sink_that_cannot_be_closed_leaves_no_other_locked(monkeypatch, tmp_path):
    close = EventLog.close

    def fail(self):
        close(self)
        raise StorageError("the disk is full.")

    def sinks():
        return [
            FolderSink(
                tmp_path / str(number),
                each,
                resume=True,
                say=lambda text: None,
                warn=lambda text: None,
                clock=lambda: 0.0,
            )
            for number, each in enumerate(settings)
        ]

    settings = [toy.settings(seed, perf={"tensorboard": True}) for seed in (0, 1)]
    runs = [Run(str(number), each) for number, each in enumerate(settings)]
    with monkeypatch.context() as patch:
        patch.setattr(EventLog, "close", fail)
        with pytest.raises(StorageError):
            drive.drive(runs, sinks(), SILENT)
    outcome = drive.drive(runs, sinks(), SILENT)
    assert outcome.skipped == ["0", "1"]
    assert not outcome.failed


def test_an_accountant_keeps_its_curves_under_its_own_name():
    registry.ACCOUNTANTS.register("borrowed")(type("Borrowed", (RdpAccountant,), {}))
    with pytest.raises(InputError, match="'borrowed' calls itself 'rdp'"):
        make_accountant("borrowed")


def test_a_mask_that_scales_is_used_as_a_mask_only():
    """The clipped sum must keep its bound whatever a sparsifier returns."""

    @registry.SPARSIFIERS.register("scaling")
    class Scaling(Bernoulli):
        def draw(self, key, template, keep):
            import jax

            mask = super().draw(key, template, keep)
            return jax.tree.map(lambda leaf: leaf * jnp.float32(0.01), mask)

    plain = fl.simulate(toy.settings(), progress=False)
    scaled = fl.simulate(toy.settings(training={"sparsifier": "scaling"}))
    for name, leaf in plain.params["Dense_0"].items():
        np.testing.assert_array_equal(leaf, scaled.params["Dense_0"][name])


@pytest.mark.slow
@pytest.mark.parametrize("sparsifier", ["bernoulli", "structured"])
def test_models_with_scalar_parameters_train(sparsifier):
    import flax.linen as nn

    @registry.MODELS.register("tempered")
    class Tempered(nn.Module):
        num_classes: int

        @nn.compact
        def __call__(self, x):
            warmth = self.param("warmth", nn.initializers.ones, ())
            logits = nn.Dense(self.num_classes)(x.reshape(x.shape[0], -1))
            return logits * jnp.broadcast_to(warmth, logits.shape)

    settings = toy.settings(
        model={"name": "tempered"},
        training={"sparsifier": sparsifier},
        length={"rounds": 2},
    )
    result = fl.simulate(settings, progress=False)
    assert result.summary["diverged"] == 0


def test_the_same_definition_again_replaces_the_one_before():
    def define():
        @registry.MODELS.register("again")
        def again(num_classes):
            return None

        return again

    first, second = define(), define()
    assert first is not second
    assert registry.MODELS.get("again") is second
    with pytest.raises(InputError, match="already a model named 'logistic'"):
        registry.MODELS.register("logistic")(first)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "logistic"}, "model must be of type ModelConfig"),
        ({"seed": "a"}, "seed must be of type int"),
        ({"seed": 1.5}, "seed must be of type int"),
        ({"seed": True}, "seed must be of type int"),
    ],
)
def test_what_is_no_section_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        fl.RunConfig(**changes)


def test_warnings_reach_python_callers_once_and_again_when_read_back(tmp_path):
    settings = toy.settings(privacy={"noise": False}, length={"rounds": 2})
    with pytest.warns(UserWarning, match="not private") as caught:
        first = fl.simulate(settings, tmp_path / "run", progress=False)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="not private") as caught:
        again = fl.simulate(settings, tmp_path / "run", progress=False)
    assert len(caught) == 1
    assert first.warnings == again.warnings == (str(caught[0].message),)


def test_a_clip_norm_that_is_not_private_is_told_to_python_callers():
    settings = toy.settings(
        privacy={"clip_calibration": "median"}, length={"rounds": 1}
    )
    with pytest.warns(UserWarning, match="clip norm is not private"):
        result = fl.simulate(settings, progress=False)
    assert "NOT private" in result.warnings[0]


@pytest.mark.slow
def test_one_folder_may_be_given_as_it_is(tmp_path):
    fl.simulate(toy.settings(), tmp_path / "run", progress=False)
    assert [run.name for run in fl.find_runs(tmp_path)] == ["run"]
    assert [run.name for run in fl.find_runs(str(tmp_path))] == ["run"]
    with pytest.raises(InputError, match="a folder for each of the 2 runs"):
        fl.simulate_grid([toy.settings(), toy.settings(1)], "ab")


@pytest.mark.slow
def test_columns_may_return_numbers_of_numpy(tmp_path):
    from dpsparfl_jax.records import columns

    before = dict(columns.COLUMNS)
    try:
        fl.register_column("busy", unit="", about="Busy.")(
            lambda view: view.sends.sum()
        )
        fl.register_column("odd", unit="", about="Odd.")(lambda view: np.float64("nan"))
        result = fl.simulate(toy.settings(), tmp_path / "run", progress=False)
    finally:
        columns.COLUMNS.clear()
        columns.COLUMNS.update(before)
    assert result.rounds["busy"].tolist() == [2] * len(result.rounds)
    assert result.rounds["odd"].isna().all()
