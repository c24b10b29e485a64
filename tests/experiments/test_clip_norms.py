"""Are clip norms those that validation images choose?"""

import pandas as pd
import pytest

from dpsparfl_jax.errors import InputError
from experiments.paper import clip_norms, protocol
from tests.commands import ROOT


@pytest.mark.parametrize(
    ("accuracies", "choice"),
    [
        ({10: 0.60, 20: 0.70, 40: 0.65}, 20),
        ({10: 0.60, 20: 0.70, 40: 0.704}, 20),  # half a point is not enough
        ({10: 0.60, 20: 0.70, 40: 0.706}, 40),
        ({10: 0.71, 40: 0.706}, 10),
    ],
)
def test_the_best_unless_the_presets_own_is_near(accuracies, choice):
    assert clip_norms.choose(pd.Series(accuracies), 20.0) == choice


def write(path, sweep="clip_fashion", best=40.0, seeds=(1000, 1001)):
    rows = [
        (sweep, value, seed, 0.8 if value == best else 0.7)
        for value in (10.0, 20.0, 40.0)
        for seed in seeds
    ]
    columns = ["sweep", "value", "seed", "tuning_accuracy"]
    pd.DataFrame(rows, columns=columns).to_csv(path, index=False)
    return path


def test_a_table_chooses_for_all_presets_of_its_images(tmp_path, monkeypatch):
    monkeypatch.setattr(protocol, "CHOSEN_CLIP_NORMS", {})
    found = clip_norms.chosen(write(tmp_path / "runs.csv"))
    assert found == dict.fromkeys(clip_norms.CHOOSES["clip_fashion"], 40.0)
    advice = clip_norms.advice(tmp_path / "runs.csv")
    assert advice[0].startswith("Validation images choose C = 40 for paper_fashion, ")
    assert len(advice) == 3
    assert clip_norms.advice(write(tmp_path / "own.csv", best=20.0)) == []


def test_nothing_is_chosen_before_all_is_trained(tmp_path):
    assert clip_norms.chosen(write(tmp_path / "runs.csv", seeds=(1000,))) == {}
    pd.DataFrame({"sweep": [], "value": [], "seed": []}).to_csv(
        tmp_path / "planned.csv", index=False
    )
    assert clip_norms.chosen(tmp_path / "planned.csv") == {}
    with pytest.raises(InputError, match="is no table of runs"):
        clip_norms.chosen(tmp_path / "missing.csv")


def test_the_clip_norms_in_use_are_those_of_the_committed_table():
    table = ROOT / "experiments/results/full/parameters_runs.csv"
    for preset, choice in clip_norms.chosen(table).items():
        assert clip_norms.in_use(preset) == choice
    assert set(protocol.CHOSEN_CLIP_NORMS) <= {
        preset for names in clip_norms.CHOOSES.values() for preset in names
    }
