"""Are the runs behind the figures those of the protocol, and trained once each?"""

import functools
import re

import jax
import numpy as np
import pytest

import dpsparfl_jax as fl
from dpsparfl_jax import config, config_values
from experiments.paper import protocol, sweeps
from tests import toy
from tests.commands import ROOT


@functools.cache
def runs_of(name, scale="full"):
    """Many tests look at the same runs."""
    return sweeps.runs_of(name, scale, {"data.dir": "there"})


@pytest.mark.parametrize("scale", sweeps.SCALES)
@pytest.mark.parametrize("name", sweeps.SWEEPS)
def test_sweeps_are_runs_with_names_of_their_own(name, scale):
    runs = runs_of(name, scale)
    assert len({run.name for run in runs}) == len(runs)
    what, longest = sweeps.SWEEPS[name], sweeps.SCALES[scale].rounds
    caps = {int(what.changes.get("length.rounds", 0)), 50}  # 50: without noise
    for run in runs:
        assert run.planned.length.rounds == (0 if run.planned.privacy.noise else 50)
        if run.trained is not None:
            rounds = run.trained.length.rounds
            assert rounds in caps if scale == "full" else 0 < rounds <= longest
            assert run.trained.data.dir == "there"
            assert run.trained.seed == run.seed
    if not what.trained:
        assert all(run.trained is None for run in runs)


def test_the_full_scale_has_the_seeds_of_the_protocol():
    text = (ROOT / "experiments/paper/PROTOCOL.md").read_text()
    told = dict(re.findall(r"^\| ([^|]+) \| (\d+ to \d+) \|", text, re.M))
    expected = {
        "Fashion-MNIST, IID": (
            *("tradeoff", "tradeoff_warm", "privacy_level", "solver", "accountant"),
            *("noise_aware", "robust_error", "robust_margin", "robust_late"),
        ),
        "MNIST, IID": ("policies_mnist", "sparse_mnist", "delay_targets"),
        "CIFAR-10, IID, nearest": ("policies_cifar_ours", "sparse_cifar"),
        "Fashion-MNIST, Dirichlet(0.2)": ("noniid", "sparse_noniid"),
        "Fashion-MNIST, unequal sizes": ("imbalance", "sparse_imbalance"),
        "Fashion-MNIST, fixed keep rates": ("clipping_fashion",),
        "CIFAR-10, fixed keep rates": ("clipping_cifar",),
    }
    assert set(told) == set(expected)
    seen: dict[int, str] = {}
    for setting, names in expected.items():
        first, last = map(int, told[setting].split(" to "))
        for name in names:
            runs = [run for run in runs_of(name) if not run.series.once]
            assert {run.seed for run in runs} == set(range(first, last + 1))
            assert all(seen.setdefault(run.seed, setting) == setting for run in runs)
            trained = [run for run in runs if run.trained is not None]
            assert {run.seed for run in trained} <= set(range(first, first + 5))
            for run in trained:
                assert run.trained.length.eval_every == 2
                assert run.trained.data.test_examples == 250
                assert run.trained.privacy.noise_key == "paired"
    assert min(seen) == 10  # none of those that were looked at before


def test_series_of_the_protocol():
    def series(sweep):
        runs = runs_of(sweep)
        return {run.series.label: run.trained or run.planned for run in runs}

    assert [s.value for s in sweeps.SWEEPS["tradeoff"].series[:5]] == [
        *(1, 10, 50, 100, 200)
    ]
    for name, keep in (("mnist", 0.46), ("cifar", 0.5), ("noniid", 0.43)):
        settings = series(f"sparse_{name}")
        assert settings.pop("DP-SparFL").schedule.keep_rate == 0
        assert {one.schedule.keep_rate for one in settings.values()} == {keep}
    rounds = {
        sweep: {run.trained.length.rounds for run in runs_of(sweep)}
        for sweep in ("clipping_fashion", "clipping_cifar", "clip_mnist", "clip_cifar")
    }
    assert [*rounds.values()] == [{30}, {20}, {20}, {10}]
    for run in runs_of("clip_fashion"):
        assert run.trained.length.eval_on == "validation"
        assert run.seed in (1000, 1001)
    trained = {
        (run.series.label, run.series.value)
        for run in runs_of("robust_margin")
        if run.trained is not None
    }
    assert trained == {("DP-SparFL", 0), ("DP-SparFL", 2)}


def test_a_chosen_clip_norm_is_that_of_the_full_scale_alone(monkeypatch):
    monkeypatch.setattr(protocol, "CHOSEN_CLIP_NORMS", {"paper_fashion": "40"})

    def clip_norms(sweep, scale):
        runs = sweeps.runs_of(sweep, scale, {})
        return {run.planned.training.clip_norm for run in runs}

    assert clip_norms("solver", "full") == {40}
    assert clip_norms("solver", "quick") == {20}
    assert clip_norms("clip_fashion", "full") == {10, 20, 40}
    assert clip_norms("accuracy_options", "full") == {20}


def test_clipping_arms_are_equal_where_their_bounds_are():
    """Unadjusted clipping at sqrt(s) C is adjusted clipping at C."""

    def params(clipping, clip_norm):
        settings = toy.settings(
            training={"clipping": clipping, "clip_norm": clip_norm},
            schedule={"policy": "random", "keep_rate": 0.25},
            privacy={"noise_key": "paired", "max_participations": 20},
            length={"rounds": 2},
        )
        return jax.tree.leaves(fl.simulate(settings, progress=False).params)

    adjusted, unadjusted = params("adjusted", 2.0), params("unadjusted", 1.0)
    for one, other in zip(adjusted, unadjusted, strict=True):
        np.testing.assert_array_equal(one, other)
    other_c = params("unadjusted", 2.0)
    assert any((one != two).any() for one, two in zip(adjusted, other_c, strict=True))


def test_equal_runs_of_several_sweeps_are_trained_once():
    homes: dict[str, config.RunConfig] = {}
    shared = 0
    for name in sweeps.SWEEPS:
        for run in runs_of(name):
            if run.trained is not None:
                shared += run.home in homes
                assert homes.setdefault(run.home, run.trained) == run.trained
    digests = [config_values.digest(settings) for settings in homes.values()]
    assert len(set(digests)) == len(digests)
    # Five seeds of one setting in privacy_level, solver, accountant and noise_aware.
    assert shared >= 15
    (paper, *_) = runs_of("accuracy_options")
    assert paper.home == "accuracy_fashion/seed=0"
