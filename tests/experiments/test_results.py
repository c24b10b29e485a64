"""Do RESULTS.md and other pages tell what committed tables have?"""

import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from matplotlib import image
from PIL import Image
from scipy import stats

from experiments.paper import (
    accuracies,
    catalogue,
    claim_data,
    claim_tests,
    claims,
    differences,
    figure_pictures,
    protocol,
    protocol_sweeps,
    times,
)
from tests.commands import ROOT
from tests.marks import mostly_slow

RESULTS = (ROOT / "RESULTS.md").read_text()
FULL = ROOT / "experiments/results/full"
SHOWN = sorted(set(re.findall(r"\((experiments/results/\w+/\w+)\.png\)", RESULTS)))


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
    verdicts = claims.evaluate(FULL)
    assert (FULL / "claims.json").read_text() == claims.as_json(verdicts)
    table = claims.as_markdown(verdicts)
    assert (FULL / "claims.md").read_text() == table
    assert table in RESULTS
    before, *_ = RESULTS.partition(table)
    assert "|" not in before  # the page opens with it


def test_the_results_tell_the_accuracies_of_the_tables():
    table = accuracies.as_markdown(claim_data.read(FULL))
    assert (FULL / "accuracies.md").read_text() == table
    assert table in RESULTS
    # A row computed the plain way.
    runs = pd.read_csv(FULL / "noniid_runs.csv")
    own = runs[(runs["series"] == "random") & runs["settled_accuracy"].notna()]
    settled, reach = 100 * own["settled_accuracy"], own["reach_s"].dropna() / 3600
    shares = own[["equal_time_accuracy", "best_accuracy", "accuracy"]].mean()
    cells = [
        f"{settled.mean():.1f} ({settled.min():.1f}-{settled.max():.1f})",
        *(f"{100 * share:.1f}" for share in shares),
        f"{reach.mean():.2f} (50%: {len(reach)} of 5)",
    ]
    assert "| Fig. 7, Dirichlet | random | 5 | " + " | ".join(cells) + " |" in table


def test_the_results_tell_differences_by_every_statistic():
    table = differences.as_markdown(claim_data.read(FULL))
    assert (FULL / "differences.md").read_text() == table
    assert table in RESULTS
    # A row computed the plain way, and the judged column beside the verdicts.
    runs = pd.read_csv(FULL / "solver_runs.csv").dropna(subset="settled_accuracy")
    cells = []
    for measure in differences.STATISTICS:
        joint, paper = (
            runs[runs["series"] == name].set_index("seed")[measure]
            for name in ("joint", "paper")
        )
        gain = 100 * (joint - paper)
        reach = stats.t.ppf(0.975, 4) * gain.std() / np.sqrt(5)
        ends = gain.mean() - reach, gain.mean() + reach
        cells.append(f"{gain.mean():+.2f} ({ends[0]:+.2f} to {ends[1]:+.2f})")
    assert "| joint over paper's | " + " | ".join(cells) + " |" in table
    ends = [row.split("|")[-2].split("; ") for row in table.splitlines()[2:-2]]
    plain, corrected = np.array(ends, dtype=float).T
    tests, order = len(plain), np.argsort(plain)
    scaled = plain[order] * (tests - np.arange(tests))
    holm = np.minimum(np.maximum.accumulate(scaled), 1)
    np.testing.assert_allclose(corrected[order], holm, rtol=0.06)  # of two digits
    sure = np.sum(corrected < protocol.LEVEL)
    words = f"and {sure} if all {tests} are corrected together"
    assert words in " ".join(RESULTS.split())
    judged = [
        f"| {each.label} | {each.effect:+.2f} ({each.low:+.2f} to {each.high:+.2f}) |"
        for verdict in claims.evaluate(FULL)
        for each in verdict.comparisons
        if each.seeds == each.seeds_asked == protocol.TRAINED_SEEDS
    ]
    assert len(judged) > 10
    assert all(row in table for row in judged)


def test_the_results_tell_how_long_they_trained():
    table = times.as_markdown(FULL)
    assert (FULL / "times.md").read_text() == table
    assert table in RESULTS
    lines = (FULL / "trained/imbalance.jsonl").read_text().splitlines()
    kept = [json.loads(line) for line in lines]
    rounds = sum(one["trained_rounds"] for one in kept)
    hours = sum(one["train_wall_s"] for one in kept) / 3600
    assert f"sizes | {len(kept)} | {rounds:,} | {hours:.1f} |" in table
    hours = [float(row.split("|")[4]) for row in table.splitlines()[2:-2]]
    assert hours[-1] == pytest.approx(sum(hours[:-1]), abs=0.06 * len(hours))


def test_accuracies_are_told_of_all_trained_sweeps_of_the_protocol():
    chosen = ("clip_fashion", "clip_mnist", "clip_cifar")  # by validation images
    trained = {
        name
        for name, sweep in protocol_sweeps.PROTOCOL_SWEEPS.items()
        if sweep.trained and name not in chosen
    }
    assert set(accuracies.SETTINGS) == trained | {"noise_aware"}


def test_the_results_tell_how_far_policies_are_apart():
    found = {verdict.claim: verdict for verdict in claims.evaluate(FULL)}
    for name in claim_tests.BASELINES:
        words = name if "delay" in name or "robin" in name else f"{name} choice"
        (row,) = re.findall(rf"^ +\| of {words} \|(.+)\|$", RESULTS, re.M)
        for cell, setting in zip(row.split("|"), claim_tests.SETTINGS, strict=True):
            family = found[f"policies_accuracy:{setting.key}"].comparisons
            labels = name, f"{name}, at equal time"
            for told, label in zip(cell.split("/"), labels, strict=True):
                (one,) = (each for each in family if each.label == label)
                number, starred = told.strip().removesuffix(r"\*"), r"\*" in told
                assert float(number) == pytest.approx(one.effect, abs=0.051)
                assert starred == (one.low < 0 < one.high)


@pytest.mark.parametrize("claim", ["policies_delay", "sparse_delay"])
def test_pages_tell_the_delays_of_the_claims(claim):
    less = [
        -each.effect
        for verdict in claims.evaluate(FULL)
        if verdict.claim.startswith(f"{claim}:")
        for each in verdict.comparisons
    ]
    words = f"{min(less):.0f}-{max(less):.0f}% less"
    assert words in " ".join(RESULTS.split())
    assert words in " ".join((ROOT / "README.md").read_text().split())


def test_the_results_tell_accuracies_of_last_models():
    for words, images in STUDIED.items():
        name = words if "(" in words else f"{words}, IID"
        (line,) = [one for one in RESULTS.splitlines() if one.startswith(f"| {name} |")]
        runs = pd.read_csv(FULL / f"accuracy_{images}_runs.csv")
        means = (
            100 * runs.dropna(subset="accuracy").groupby("series")["accuracy"].mean()
        )
        told = [cell.strip() for cell in line.strip("|").split("|")[1:3]]
        # The table's digits are rounded, and so are those told.
        expected = means["paper"], means.max()
        assert [float(each) for each in told] == pytest.approx(expected, abs=0.06)


def full_runs(figure, sweep):
    runs = pd.read_csv(FULL / f"{figure}_runs.csv")
    return runs[runs["sweep"] == sweep]


def test_the_results_tell_delays_over_lambda():
    rows = re.findall(r"^\| (\d+) \|" + r" ([\d.]+) \|" * 4 + "$", RESULTS, re.M)
    means = [
        full_runs("tradeoff", sweep)
        .groupby("value")[["mean_delay_s", "keep_rate"]]
        .mean()
        for sweep in ("tradeoff", "tradeoff_warm")
    ]
    assert [row[0] for row in rows] == ["1", "10", "50", "100", "200"]
    for value, *told in rows:
        expected = [
            f"{number:{form}}"
            for mean in means
            for number, form in zip(mean.loc[float(value)], (".1f", ".3f"), strict=True)
        ]
        assert told == expected


def test_the_results_tell_the_terms_of_the_bound():
    points = pd.read_csv(FULL / "bound.csv")
    mean = points[points["x"] == 20].groupby("series")["y"].mean()
    words = (
        f"gradient norm is {mean['measured, mean so far']:.1f} and the bound "
        f"{mean['bound']:.0f} (means of three seeds): noise {mean['its noise']:.0f}, "
        f"sparsification {mean['its sparsification']:.0f}, divergence of clients "
        f"{mean['its divergence']:.1f}, start {mean['its start']:.1f}."
    )
    assert words in " ".join(RESULTS.split())


def test_the_results_tell_what_margins_save():
    dropped = full_runs("robustness", "robust_margin")
    dropped = dropped[dropped["series"] == "DP-SparFL"].groupby("value")
    waited = full_runs("robustness", "robust_late")
    waited = waited[waited["series"] == "wait"].groupby("value")
    for words, runs, column, form in (
        ("uploads that are late, if they are dropped", dropped, "late", ".1%"),
        ("epsilon spent for nothing, if they", dropped, "epsilon_wasted", ".1%"),
        ("uploads over their energy, if they", waited, "energy_broken", ".1%"),
        ("mean keep rate, if they are waited for", waited, "keep_rate", ".3f"),
    ):
        (line,) = [one for one in RESULTS.splitlines() if one.startswith(f"| {words}")]
        told = [cell.strip() for cell in line.strip("|").split("|")[1:]]
        means = runs[column].mean()
        assert told == [f"{means[margin]:{form}}" for margin in (0, 1, 2, 3)]


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


def test_the_page_on_accuracy_tells_what_single_options_do():
    text = (ROOT / "docs/accuracy.md").read_text()
    _, _, table = text.partition(
        "| best on the way | last model |\n|---|---|---|---|\n"
    )
    shown = {}
    for line in table.partition("\n\n")[0].splitlines():
        series, _, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        shown[series] = cells
    runs = full_runs("options", "accuracy_options").sort_values("seed")
    expected = {
        series: [
            " / ".join(f"{100 * share:.1f}" for share in own[name])
            for name in ("best_accuracy", "accuracy")
        ]
        for series, own in runs.dropna(subset="accuracy").groupby("series")
    }
    assert shown == expected
