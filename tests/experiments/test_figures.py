"""Are figures drawn from what was run, and is what was drawn reproducible?"""

import os
import pathlib
import shutil
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from dpsparfl_jax import records
from dpsparfl_jax.errors import InputError
from experiments import presets
from experiments.paper import (
    bound,
    catalogue,
    claims,
    figure_curves,
    figure_pictures,
    figure_runs,
    plans,
    protocol,
    run_tables,
    sweeps,
    trained,
)
from experiments.paper.protocol_sweeps import POLICIES
from tests import made_study, toy
from tests.commands import ROOT, assert_refused, call_program, run_program


def test_every_figure_of_the_paper_is_declared():
    asked = "clipping tradeoff privacy_level policies_accuracy policies_delay noniid "
    asked += "imbalance fairness queues bound solver options robustness accountant "
    asked += "policies_sparse sparse_noniid noise_aware "
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


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Two policies, two seeds trained and three planned, with the toy images."""
    folder = tmp_path_factory.mktemp("figures")
    with pytest.MonkeyPatch.context() as patch:
        toys = toy.settings(length={"rounds": 0}, privacy={"accountant": "rdp"})
        patch.setitem(presets.PRESETS, "toy", presets.Preset("", toys))
        patch.setitem(sweeps.SWEEPS, "noniid", sweeps.Sweep("toy", POLICIES[::3]))
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
        shutil.rmtree(folder / "trained")  # else it is known to be finished
        assert make(train=False) == 0
        shutil.copytree(folder, folder.parent / "unfinished", dirs_exist_ok=True)
        (folder / "done").rename(
            folder / "runs/noniid/policy=random,seed=0" / records.DONE
        )
        assert make(train=False) == 0
        yield folder


def test_the_full_scale_is_trained_seed_by_seed(tmp_path, monkeypatch):
    toys = toy.settings(length={"rounds": 0}, privacy={"accountant": "rdp"})
    monkeypatch.setitem(presets.PRESETS, "toy", presets.Preset("", toys))
    worlds = protocol.Worlds((4, 5), (4, 5, 6))
    pair = sweeps.Sweep("toy", POLICIES[::3], worlds=worlds)
    monkeypatch.setitem(sweeps.SWEEPS, "noniid", pair)
    calls = []

    def train(wanted, folder):
        seeds = {settings.seed for settings in wanted.values()}
        calls.append((len(wanted), seeds, (folder / "noniid.csv").is_file()))
        return 130 if stopped else 0

    monkeypatch.setattr(figure_runs, "_train", train)
    make = {"scale": "full", "changes": {"data.test_examples": "20"}, "train": True}
    stopped = False
    figures = catalogue.get_figures("noniid")
    assert figure_runs.make_tables(figures, tmp_path, **make) == 0
    assert calls == [(2, {4}, False), (2, {5}, True)]
    home = "noniid/policy=random,seed=4"
    every = sweeps.runs_of("noniid", "full", make["changes"])
    (settings,) = (run.trained for run in every if run.home == home)
    trained.keep({home: made_study.finished(settings)}, tmp_path)
    stopped = True
    monkeypatch.setattr(figure_runs.run_tables, "build", None)  # not after a signal
    assert figure_runs.make_tables(figures, tmp_path, **make) == 130
    assert calls[2:] == [(1, {4}, True)]


def test_tables_with_accuracies_are_not_lost(drawn, tmp_path, capsys):
    """Their records may be elsewhere, as those of committed tables are."""
    for name in ("noniid.csv", "noniid_runs.csv"):
        shutil.copy(drawn / name, tmp_path / name)
    before = (tmp_path / "noniid_runs.csv").read_text()
    figures = catalogue.get_figures("noniid")
    make = {"scale": "few", "changes": {}, "train": False}
    assert figure_runs.make_tables(figures, tmp_path, **make) == 0
    assert (tmp_path / "noniid_runs.csv").read_text() == before
    assert "the tables of noniid stay as they are" in capsys.readouterr().err
    (tmp_path / "noniid_runs.csv").unlink()
    assert figure_runs.make_tables(figures, tmp_path, **make) == 0
    planned = pd.read_csv(tmp_path / "noniid_runs.csv")
    assert "mean_delay_s" in planned
    assert not {"accuracy", "settled_accuracy"} & set(planned)


def test_tables_need_no_records_of_runs_that_were_kept(drawn, tmp_path, monkeypatch):
    monkeypatch.setattr(figure_runs, "_train", None)  # nothing is trained
    shutil.copytree(drawn / "trained", tmp_path / "trained")
    figures = catalogue.get_figures("noniid")
    make = {"scale": "few", "changes": {}, "train": True}
    assert figure_runs.make_tables(figures, tmp_path, **make) == 0
    for name in ("noniid.csv", "noniid_runs.csv", "trained/noniid.jsonl"):
        assert (tmp_path / name).read_text() == (drawn / name).read_text()


def test_kept_runs_of_other_schedules_and_damaged_files_are_refused(drawn, tmp_path):
    runs = sweeps.runs_of("noniid", "few", {})
    other = {runs[0].home: made_study.finished(runs[0].trained, "another")}
    with pytest.raises(InputError, match="another schedule"):
        run_tables.build(runs, other, drawn / "runs/plans")
    path = trained.path_of(tmp_path, "noniid")
    trained.keep(other, tmp_path)
    assert trained.find(runs, tmp_path).keys() == other.keys()
    whole = path.read_text()
    path.write_text(whole.replace('"train_wall_s": 1', '"train_wall_s": "long"'))
    with pytest.raises(InputError, match=r"noniid.jsonl is damaged: restore it"):
        trained.read(path)
    path.write_text(whole[:-9])
    with pytest.raises(InputError, match=r"noniid.jsonl is damaged: restore it"):
        trained.find(runs, tmp_path)


def test_series_that_nobody_trains_leave_accuracies_at_equal_time():
    table = pd.DataFrame(
        {
            "run": [0, 1, 2, 3, 4],
            "seed": [0, 0, 0, 1, 1],
            "once": False,
            "to_train": [True, True, False, True, True],
            "trained_delay_s": [30.0, 20.0, np.nan, 30.0, np.nan],
        }
    )
    times = {"cumulative_delay_s": [10.0, 30.0], "accuracy": [0.4, 0.6]}
    seen = pd.concat([pd.DataFrame(times).assign(run=run) for run in (0, 1, 3)])
    found = run_tables.equal_time_accuracy(table, seen)
    # Seed 0 has both that are to be trained, seed 1 lacks one of them.
    np.testing.assert_allclose(found, [0.5, 0.5, np.nan, np.nan, np.nan])


def test_the_bound_is_drawn_wherever_its_condition_holds():
    (run, *_) = sweeps.runs_of("bound", "quick", {})
    zeros = dict.fromkeys(bound.BoundRow._fields, 0)
    rows = [
        bound.BoundRow(**zeros | {"rounds": rounds, "holds": holds})
        for rounds, holds in ((10, True), (20, False))
    ]
    drawn = figure_curves.of_bound(rows, run)
    assert list(drawn.loc[drawn["series"] == "bound", "x"]) == [10]
    assert list(drawn.loc[drawn["series"] == "sum (no bound)", "x"]) == [20]


def test_tables_hold_what_was_recorded_and_planned(drawn):
    points = pd.read_csv(drawn / "noniid.csv")
    about = pd.read_csv(drawn / "noniid_runs.csv")
    assert len(about) == 6
    assert about["accuracy"].notna().sum() == 4
    told = about.dropna(subset="accuracy").set_index(["series", "seed"])
    ends = told["trained_delay_s"].groupby("seed").min()
    shortest = told[told["trained_delay_s"] == told.index.map(lambda k: ends[k[1]])]
    np.testing.assert_allclose(
        shortest["equal_time_accuracy"], shortest["accuracy"], rtol=1e-5
    )
    assert told["settled_accuracy"].notna().all()
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
    known = recorded.rounds.set_index("round")["cumulative_delay_s"]
    both = delay.index.intersection(known.index)
    assert len(both) > 0
    np.testing.assert_allclose(delay[both], known[both], rtol=1e-5)


def test_unfinished_runs_are_not_judged(drawn):
    about = pd.read_csv(drawn.parent / "unfinished" / "noniid_runs.csv")
    blank = about[about["accuracy"].isna() & (about["seed"] < 2)]
    assert list(zip(blank["series"], blank["seed"], strict=True)) == [("random", 0)]


def test_records_of_other_settings_are_refused(drawn, tmp_path):
    (other,) = [
        run
        for run in sweeps.runs_of("noniid", "few", {"training.clip_norm": "3"})
        if run.name == "policy=random,seed=1"
    ]
    with pytest.raises(InputError, match="clip_norm"):
        trained.find([other], drawn)
    shutil.copytree(drawn / "trained", tmp_path / "trained")
    assert trained.find([other], tmp_path) == {}  # kept ones are only not those


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
    ours = sweeps.Sweep("toy", POLICIES[:1], trained=False)
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
    from tests import made_study, toy
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


def test_what_needs_no_training_is_tabulated_drawn_and_judged(tmp_path):
    done = call_program(
        *("experiments.figures", "--figure=solver", "--scale=quick", "--plan_only"),
        f"--out={tmp_path}",
    )
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "quick"
    points = pd.read_csv(folder / "solver.csv")
    assert set(points["panel"]) == {"objective", "running_delay", "keep_rate"}
    runs = pd.read_csv(folder / "solver_runs.csv")
    assert set(runs["seed"]) == {0, 1, 2}
    last = points.groupby(["panel", "series", "seed"])["x"].max()["keep_rate"]
    ends = runs.set_index(["series", "seed"])["rounds"]
    assert (last.sort_index() == ends.sort_index()).all()  # every seed to its end
    assert "accuracy" not in runs
    assert (folder / "solver.png").is_file()
    assert "=> not run (3 of 10 seeds)" in done.stdout
    assert "| not run (3 of 10 seeds) | 3 |" in (folder / "claims.md").read_text()


def test_bad_requests_are_refused(tmp_path):
    out = f"--out={tmp_path}"
    done = run_program("experiments.figures", "--figure=fig9", out)
    assert_refused(done, "--figure=fig9 is unknown: choose all or one of clipping")
    done = call_program("experiments.figures", "--figure=noniid", "--draw_only", out)
    assert_refused(done, "leave out --draw_only")
    with pytest.raises(InputError, match="unknown"):
        catalogue.get_figures("")
