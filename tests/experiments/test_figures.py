"""Are figures drawn from what was run, and is what was drawn reproducible?"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from matplotlib import image
from PIL import Image
from scipy import stats

from dpsparfl_jax import config, config_values, records
from dpsparfl_jax.errors import InputError
from experiments import presets
from experiments.paper import (
    catalogue,
    claims,
    figure_curves,
    figure_pictures,
    figure_runs,
    plans,
    run_tables,
    sweeps,
)
from tests import toy
from tests.commands import ROOT, assert_refused, call_program, run_program
from tests.marks import mostly_slow

RESULTS = (ROOT / "RESULTS.md").read_text()
SHOWN = sorted(set(re.findall(r"\((experiments/results/\w+/\w+)\.png\)", RESULTS)))


def test_every_figure_of_the_paper_is_declared():
    asked = "clipping tradeoff privacy_level policies_accuracy policies_delay noniid "
    asked += "imbalance fairness queues bound solver options robustness accountant "
    asked += "accuracy_fashion accuracy_noniid accuracy_mnist accuracy_cifar"
    assert set(catalogue.get_figures("all")) == set(asked.split())
    known = [claim.name for claim in claims.CLAIMS]
    for figure in catalogue.FIGURES.values():
        assert set(figure.sweeps) <= set(sweeps.SWEEPS)
        assert len({panel.name for panel in figure.panels}) == len(figure.panels)
        for panel in figure.panels:
            assert panel.draw in figure_curves.DRAWS or panel.draw == "bound"
        for claim in figure.claims:
            assert any(name.split(":")[0] == claim for name in known)


@pytest.mark.parametrize("scale", sweeps.SCALES)
@pytest.mark.parametrize("name", sweeps.SWEEPS)
def test_sweeps_are_runs_with_names_of_their_own(name, scale):
    runs = sweeps.runs_of(name, scale, {"data.dir": "there"})
    assert len({run.name for run in runs}) == len(runs)
    longest = sweeps.SCALES[scale].rounds
    whole = sweeps.SWEEPS[name].whole and scale == "full"
    for run in runs:
        assert run.planned.length.rounds == (0 if run.planned.privacy.noise else 50)
        if run.trained is not None:
            rounds = run.trained.length.rounds
            assert rounds == 0 if whole else 0 < rounds <= longest
            assert run.trained.data.dir == "there"
            assert run.trained.seed == run.seed
    if not sweeps.SWEEPS[name].trained:
        assert all(run.trained is None for run in runs)


def test_equal_runs_of_several_sweeps_are_trained_once():
    homes: dict[str, config.RunConfig] = {}
    shared = 0
    for name in sweeps.SWEEPS:
        for run in sweeps.runs_of(name, "full", {}):
            if run.trained is not None:
                shared += run.home in homes
                assert homes.setdefault(run.home, run.trained) == run.trained
    digests = [config_values.digest(settings) for settings in homes.values()]
    assert len(set(digests)) == len(digests)
    assert shared >= 9  # policies, solver and accountant begin with the same run
    (paper, *_) = sweeps.runs_of("accuracy_options", "full", {})
    assert paper.home == "accuracy_fashion/seed=0"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Two policies, two seeds trained and three planned, with the toy images."""
    folder = tmp_path_factory.mktemp("figures")
    with pytest.MonkeyPatch.context() as patch:
        toys = toy.settings(length={"rounds": 0}, privacy={"accountant": "rdp"})
        patch.setitem(presets.PRESETS, "toy", presets.Preset("", toys))
        patch.setitem(
            sweeps.SWEEPS, "noniid", sweeps.Sweep("toy", sweeps._POLICIES[::3])
        )
        few = sweeps.Scale((0, 1), (0, 1, 2), 3, {"length.eval_every": "2"}, 1, None)
        patch.setitem(sweeps.SCALES, "few", few)
        figures = catalogue.get_figures("noniid")

        def make(train):
            return figure_runs.make_tables(
                figures, folder, scale="few", changes={}, train=train
            )

        assert make(train=True) == 0
        before = {
            path: path.stat().st_mtime_ns for path in folder.rglob("rounds.jsonl")
        }
        assert make(train=True) == 0  # nothing is left to train
        after = {path: path.stat().st_mtime_ns for path in folder.rglob("rounds.jsonl")}
        assert before == after
        assert len(before) == 4
        (folder / "runs/noniid/policy=random,seed=0" / records.DONE).rename(
            folder / "done"
        )
        assert make(train=False) == 0
        shutil.copytree(folder, folder.parent / "unfinished", dirs_exist_ok=True)
        (folder / "done").rename(
            folder / "runs/noniid/policy=random,seed=0" / records.DONE
        )
        assert make(train=False) == 0
        yield folder


def test_tables_hold_what_was_recorded_and_planned(drawn):
    points = pd.read_csv(drawn / "noniid.csv")
    about = pd.read_csv(drawn / "noniid_runs.csv")
    assert len(about) == 6
    assert about["accuracy"].notna().sum() == 4
    recorded = records.load_run(drawn / "runs/noniid/policy=random,seed=1")
    own = points[(points["series"] == "random") & (points["seed"] == 1)]
    seen = recorded.rounds.dropna(subset="accuracy")
    assert list(seen["round"]) == [2, 3]
    for panel, x in (("accuracy", "round"), ("accuracy_time", "cumulative_delay_s")):
        drawn_of_panel = own[own["panel"] == panel]
        scale = 3600 if panel == "accuracy_time" else 1
        np.testing.assert_allclose(drawn_of_panel["x"] * scale, seen[x], rtol=1e-5)
        np.testing.assert_allclose(drawn_of_panel["y"], seen["accuracy"], rtol=1e-5)
    # What was trained follows the schedule that was planned to its end.
    delay = own[own["panel"] == "delay"].set_index("x")["y"] * 3600
    assert delay.index.max() > 3
    trained = recorded.rounds.set_index("round")["cumulative_delay_s"]
    both = delay.index.intersection(trained.index)
    assert len(both) > 0
    np.testing.assert_allclose(delay[both], trained[both], rtol=1e-5)


def test_unfinished_runs_are_not_judged(drawn):
    about = pd.read_csv(drawn.parent / "unfinished" / "noniid_runs.csv")
    blank = about[about["accuracy"].isna() & (about["seed"] < 2)]
    assert list(zip(blank["series"], blank["seed"], strict=True)) == [("random", 0)]


def test_records_of_other_settings_are_refused(drawn):
    (other,) = [
        run
        for run in sweeps.runs_of("noniid", "few", {"training.clip_norm": "3"})
        if run.name == "policy=random,seed=1"
    ]
    with pytest.raises(InputError, match="clip_norm"):
        run_tables.build([other], drawn / "runs", drawn / "runs/plans")


def test_fairness_is_looked_at_before_clients_retire(drawn):
    (run,) = [
        run
        for run in sweeps.runs_of("noniid", "few", {})
        if run.name == "policy=random,seed=2"
    ]
    schedule = plans.plan_once(run.planned, drawn / "runs/plans")
    half = schedule.affordable.sum() // 2 // 2  # of two channels
    counts = [int(np.sum(schedule.client[:half] == i)) for i in range(6)]
    gap = max(rate - n / half for rate, n in zip(schedule.rate, counts, strict=True))
    about = pd.read_csv(drawn / "noniid_runs.csv")
    own = about[(about["series"] == "random") & (about["seed"] == 2)]
    assert own["participation_gap"].item() == pytest.approx(gap, rel=1e-4)
    assert gap > 0


@pytest.mark.slow
def test_the_bound_is_measured_once_and_drawn(drawn, monkeypatch):
    ours = sweeps.Sweep("toy", sweeps._POLICIES[:1], trained=False)
    monkeypatch.setitem(sweeps.SWEEPS, "bound", ours)
    figures = catalogue.get_figures("bound")
    make = {"scale": "few", "changes": {"length.rounds": "3"}}
    assert figure_runs.make_tables(figures, drawn, train=True, **make) == 0
    table = pd.read_csv(drawn / "bound.csv")
    assert set(table["seed"]) == {0, 1}
    wide = table[table["seed"] == 0].pivot(index="x", columns="series", values="y")
    assert list(wide.index) == [1, 2, 3]
    terms = wide[[name for name in wide if name.startswith("its ")]].sum(axis=1)
    total = [name for name in wide if "bound" in name]
    np.testing.assert_allclose(wide[total[0]], terms, rtol=1e-4)
    assert figure_pictures.draw(figures["bound"], table).axes[0].get_yscale() == "log"
    monkeypatch.setattr(figure_runs.bound, "measure", None)  # not measured again
    assert figure_runs.make_tables(figures, drawn, train=True, **make) == 0
    other = {
        "scale": "few",
        "changes": {"length.rounds": "3", "training.clip_norm": "3"},
    }
    with pytest.raises(InputError, match="delete it to measure again"):
        figure_runs.make_tables(figures, drawn, train=True, **other)


def test_common_delay_ends_where_the_shortest_run_ends(drawn):
    about = pd.read_csv(drawn / "noniid_runs.csv")
    for _, own in about.groupby("seed"):
        shortest = own.loc[own["rounds"].idxmin()]
        assert shortest["common_delay_s"] == pytest.approx(
            shortest["delay_s"], rel=1e-5
        )
        assert (own["common_delay_s"] <= own["delay_s"] * (1 + 1e-5)).all()


def test_processes_make_the_same_schedules(tmp_path):
    wanted = [toy.settings(seed=seed) for seed in (0, 1, 1)]
    plans.plan_all(wanted, tmp_path / "several", processes=2)
    assert len(list((tmp_path / "several").iterdir())) == 2
    for settings in wanted:
        alone = plans.plan_once(settings, tmp_path / "one")
        together = plans.plan_once(settings, tmp_path / "several")
        for name, mine in vars(alone).items():
            np.testing.assert_array_equal(mine, getattr(together, name), name)


_ENDLESS = """
import os, pathlib, sys, time
from experiments.paper import plans

def plan(settings, folder):
    (pathlib.Path(folder) / str(os.getpid())).touch()
    time.sleep(600)

plans._plan = plan
if __name__ == "__main__":
    from tests import toy
    wanted = [toy.settings(seed=seed) for seed in range(2)]
    plans.plan_all(wanted, pathlib.Path(sys.argv[1]), processes=2)
"""


@pytest.mark.slow
def test_processes_end_with_the_one_that_waits_for_them(tmp_path):
    script, folder = tmp_path / "endless.py", tmp_path / "plans"
    script.write_text(_ENDLESS)
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    waiting = subprocess.Popen([sys.executable, script, folder], env=environment)
    try:
        helpers = wait_for(lambda: sorted(folder.iterdir()), lambda found: found[1:])
    finally:
        waiting.kill()
        waiting.wait()
    alive = [pathlib.Path("/proc") / path.name for path in helpers]
    wait_for(lambda: [one for one in alive if one.exists()], lambda left: not left)


def wait_for(look, good):
    """What is seen once it is good; a failure after a minute."""
    for _ in range(600):
        if good(seen := look()):
            return seen
        time.sleep(0.1)
    raise AssertionError(f"after a minute there is {seen}")


def test_few_schedules_start_no_process(tmp_path):
    plans.plan_all([toy.settings()], tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_schedule_is_planned_once_and_a_damaged_one_again(drawn, tmp_path):
    settings = toy.settings()
    first = plans.plan_once(settings, tmp_path)
    (file,) = tmp_path.iterdir()
    made = file.stat().st_mtime_ns
    assert plans.plan_once(settings, tmp_path).num_rounds == first.num_rounds
    assert file.stat().st_mtime_ns == made
    file.write_bytes(file.read_bytes()[:100])
    again = plans.plan_once(settings, tmp_path)
    np.testing.assert_array_equal(again.client, first.client)
    plans.plan_once(toy.settings(seed=3), tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_pictures_show_the_mean_and_its_interval(drawn):
    table = pd.read_csv(drawn / "noniid.csv")
    picture = figure_pictures.draw(catalogue.FIGURES["noniid"], table)
    axes = picture.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("round", "test accuracy")
    own = table[(table["panel"] == "accuracy") & (table["series"] == "random")]
    wide = own.pivot(index="x", columns="seed", values="y")
    line = next(one for one in axes.get_lines() if one.get_label() == "random")
    np.testing.assert_allclose(line.get_xdata(), wide.index)
    np.testing.assert_allclose(line.get_ydata(), wide.mean(axis=1))
    half = stats.t.ppf(0.975, 1) * wide.std(axis=1) / np.sqrt(2)
    _, mean, low, high = figure_pictures.average(own)
    np.testing.assert_allclose(low, mean - half)
    np.testing.assert_allclose(high, mean + half)
    assert len(axes.collections) == 2  # a band a policy


def test_titles_are_said_once_in_a_row():
    def left_titles(name):
        blank = pd.DataFrame(columns=figure_curves.COLUMNS)
        picture = figure_pictures.draw(catalogue.FIGURES[name], blank)
        count = len(catalogue.FIGURES[name].panels)
        return [axes.get_title(loc="left") for axes in picture.axes[:count]]

    assert left_titles("privacy_level") == ["(a) Fashion-MNIST", "(b)", "(c)"]
    assert left_titles("bound") == ["Fashion-MNIST"]
    pairs = left_titles("policies_accuracy")
    assert pairs[::4] == [
        "(a) MNIST",
        "(e) CIFAR-10, \N{GREEK SMALL LETTER SIGMA} 0.6 (ours)",
    ]
    assert pairs[1::2] == ["(b)", "(d)", "(f)"]
    assert left_titles("robustness")[3:5] == ["(d) no margin", "(e) error 1 dB"]


def test_averages_of_models_have_a_panel_of_their_own():
    seen = pd.DataFrame(
        {
            "series": "plain",
            "seed": 0,
            "round": [2, 4],
            "accuracy": [0.1, 0.2],
            "accuracy_averaged": [np.nan, 0.3],
        }
    )
    blank = pd.DataFrame()
    tables = run_tables.Tables(blank, blank, seen, blank)
    last = figure_curves.DRAWS["accuracy"](tables)
    assert last[["x", "y"]].to_numpy().tolist() == [[2, 0.1], [4, 0.2]]
    average = figure_curves.DRAWS["accuracy_averaged"](tables)
    assert average[["x", "y"]].to_numpy().tolist() == [[4, 0.3]]


def test_seeds_with_other_times_are_interpolated():
    rows = pd.DataFrame(
        {"seed": [0, 0, 1, 1], "x": [0.0, 2.0, 1.0, 4.0], "y": [0.0, 2.0, 11.0, 14.0]}
    )
    x, mean, *_ = figure_pictures.average(rows)
    assert (x[0], x[-1]) == (1.0, 2.0)
    np.testing.assert_allclose(mean, (x + x + 10) / 2)


def test_bad_requests_are_refused(tmp_path):
    out = f"--out={tmp_path}"
    done = run_program("experiments.figures", "--figure=fig9", out)
    assert_refused(done, "--figure=fig9 is unknown: choose all or one of clipping")
    done = call_program("experiments.figures", "--figure=noniid", "--draw_only", out)
    assert_refused(done, "leave out --draw_only")
    with pytest.raises(InputError, match="unknown"):
        catalogue.get_figures("")


@pytest.mark.parametrize("shown", mostly_slow(SHOWN, 4))
def test_pictures_of_the_results_are_drawn_from_their_tables(shown, tmp_path):
    path = ROOT / f"{shown}.csv"
    with Image.open(ROOT / f"{shown}.png") as picture:
        assert figure_pictures.checksum(path) in picture.text["Description"]
    copy = tmp_path / path.name
    shutil.copy(path, copy)
    figure_pictures.save(catalogue.FIGURES[path.stem], copy, [".png"])
    ours = image.imread(copy.with_suffix(".png"))
    theirs = image.imread(ROOT / f"{shown}.png")
    assert ours.shape == theirs.shape
    # Other versions of the drawing library set letters a little differently: curves,
    # which have colours, must be the same.
    coloured = (_colour(ours) > 0.15) | (_colour(theirs) > 0.15)
    assert coloured.sum() > 500
    differ = np.max(np.abs(ours - theirs), axis=2) > 0.2
    assert np.sum(differ & coloured) < 0.02 * np.sum(coloured)


def test_letters_of_pictures_are_outlines(tmp_path):
    """Publishers refuse fonts of Type 3."""
    path = ROOT / f"{SHOWN[0]}.csv"
    copy = tmp_path / path.name
    shutil.copy(path, copy)
    (drawn,) = figure_pictures.save(catalogue.FIGURES[path.stem], copy, [".pdf"])
    assert b"/Type3" not in drawn.read_bytes()


def _colour(picture):
    return np.ptp(picture[:, :, :3], axis=2)


def test_results_show_pictures():
    assert len(SHOWN) >= 11


def test_the_claims_of_the_results_follow_from_their_tables():
    for name in ("full", "quick"):
        folder = ROOT / "experiments" / "results" / name
        verdicts = claims.evaluate(folder)
        assert (folder / "claims.json").read_text() == claims.as_json(verdicts)
        if name == "full":
            for line in claims.as_markdown(verdicts).splitlines():
                assert line in RESULTS


STUDIED = {
    "Fashion-MNIST": "fashion",
    "Fashion-MNIST, Dirichlet(0.2)": "noniid",
    "MNIST": "mnist",
    "CIFAR-10": "cifar",
}


def test_the_page_on_accuracy_tells_what_the_tables_have():
    text = (ROOT / "docs/accuracy.md").read_text()
    _, _, table = text.partition("| average of models |\n|---|---|---|---|---|\n")
    shown, images = {}, ""
    for line in table.partition("\n\n")[0].splitlines():
        name, series, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        images = name or images
        shown[STUDIED[images], series] = cells
    expected = {}
    for images in STUDIED.values():
        path = ROOT / f"experiments/results/full/accuracy_{images}_runs.csv"
        runs = pd.read_csv(path).dropna(subset="accuracy") if path.exists() else None
        for series, own in () if runs is None else runs.groupby("series"):
            own = own.sort_values("seed")
            assert list(own["seed"]) == [0, 1, 2]
            expected[images, series] = [
                " / ".join(f"{count:.0f}" for count in own["trained_rounds"]),
                *(
                    " / ".join(f"{100 * share:.1f}" for share in own[name].dropna())
                    for name in ("accuracy", "accuracy_averaged")
                ),
            ]
    assert shown == expected
