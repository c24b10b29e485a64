"""Are runs compared seed by seed, with intervals that can be checked?"""

import csv
import html
import math
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from dpsparfl_jax import records
from dpsparfl_jax.report import headline, palette
from dpsparfl_jax.report.difference_pictures import Row, difference_figure
from dpsparfl_jax.report.seeds import show_runs
from tests.commands import ROOT, assert_refused, call_program
from tests.report.test_report import write_run

COMPARE = "experiments.compare"


def write(root, tradeoff, seeds, **more):
    for seed in seeds:
        write_run(
            root / f"tradeoff={tradeoff:g},seed={seed}",
            seed=seed,
            schedule={"tradeoff": tradeoff},
            **more,
        )


def read_csv(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def grid(tmp_path):
    """Two settings with three seeds in common; runs of the second are shorter."""
    root = tmp_path / "grid"
    write(root, 1.0, (0, 1, 2, 5))
    write(root, 20.0, (0, 1, 2, 7), num_rounds=9)
    return root


def rounds_of(root, tradeoff, seed):
    return records.load_run(root / f"tradeoff={tradeoff},seed={seed}").rounds


def by_hand(values):
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1)
    half /= np.sqrt(len(values))
    mean = np.mean(values)
    return mean, mean - half, mean + half


def test_differences_are_paired_by_seed(grid, tmp_path):
    target = tmp_path / "all.csv"
    done = call_program(COMPARE, grid, f"--csv={target}")
    assert (done.returncode, done.stderr) == (0, "")
    told = {
        (row["setting"], row["less"], row["number"]): row for row in read_csv(target)
    }
    for name, column in (
        ("accuracy", "accuracy"),
        ("delay_s", "cumulative_delay_s"),
        ("energy_j", "cumulative_energy_j"),
        ("epsilon_max", "epsilon_max"),
    ):
        ends = [
            [rounds_of(grid, tradeoff, seed)[column].iloc[-1] for seed in (0, 1, 2)]
            for tradeoff in (1, 20)
        ]
        row = told["#2", "#1", name]
        found = [float(row[key]) for key in ("mean", "low", "high")]
        np.testing.assert_allclose(found, by_hand(np.subtract(*ends[::-1])))
        assert row["seeds"] == "3"
    assert told["#1", "", "accuracy"]["schedule.tradeoff"] == "1.0"
    assert told["#1", "", "accuracy"]["seeds"] == "4"
    row = told["#2", "#1", "accuracy"]
    mean, low, high = (100 * float(row[key]) for key in ("mean", "low", "high"))
    line = f"accuracy (points) {mean:+.2f} ({low:+.2f} to {high:+.2f})"
    assert line in re.sub(" +", " ", done.stdout)


def test_accuracies_at_equal_delay_are_those_known_by_then(grid, tmp_path):
    """By the delay that all eight runs reach, those without a partner too."""
    target = tmp_path / "all.csv"
    call_program(COMPARE, grid, f"--csv={target}")
    found = {
        (tradeoff, seed): rounds_of(grid, tradeoff, seed)
        for tradeoff, seeds in ((1, (0, 1, 2, 5)), (20, (0, 1, 2, 7)))
        for seed in seeds
    }
    end = min(one["cumulative_delay_s"].max() for one in found.values())
    known = {
        key: one[one["cumulative_delay_s"] <= end]["accuracy"].iloc[-1]
        for key, one in found.items()
    }
    differences = [known[20, seed] - known[1, seed] for seed in (0, 1, 2)]
    told = {row["number"]: row for row in read_csv(target) if row["less"]}
    row = told["accuracy_at_equal_delay"]
    found = [float(row[key]) for key in ("mean", "low", "high")]
    np.testing.assert_allclose(found, by_hand(differences))
    assert float(told["equal_delay_s"]["mean"]) == pytest.approx(end, rel=1e-5)
    assert np.mean(differences) != float(told["accuracy"]["mean"])


def test_the_report_says_what_the_comparison_says(grid):
    """At equal largest epsilon, at equal mean epsilon and at equal delay."""
    printed = re.sub(" +", " ", call_program(COMPARE, grid).stdout)
    page = headline.headline(headline.of_entries(show_runs(records.find_runs([grid]))))
    said = html.unescape(re.sub("<[^>]*>", "", page))
    for words, where in (
        ("largest epsilon", r"At equal largest epsilon \([^)]*?, ([\d. to]+);"),
        ("mean epsilon", r"At equal mean epsilon \(over clients, ([\d. to]+)\)"),
        ("delay", r"At equal simulated time \(([\d,.]+) s"),
    ):
        (cap, first, low, high) = re.search(
            where + r".*?, tradeoff=(20|1) is .*?seeds: (\S+) to (\S+) points", said
        ).groups()
        unit = " (s)" if words == "delay" else ""
        assert f"that equal {words}{unit} {cap}\n" in printed
        line = re.search(
            rf"at equal {words} \(points\) \S+ \((\S+) to (\S+)\)", printed
        )
        ends = sorted(
            float(end) * (1 if first == "20" else -1) for end in line.groups()
        )
        assert ends == pytest.approx([float(low), float(high)], abs=0.011)


def test_caps_may_be_chosen(grid):
    def at(*flags):
        return call_program(COMPARE, grid, *flags)

    printed = re.sub(" +", " ", at("--epsilon=0.4", "--delay=900").stdout)
    assert "that equal delay (s) 900.0\n" in printed
    assert "that equal largest epsilon 0.400\n" in printed
    told = at("--delay=0.001").stdout
    assert "at equal delay (points)" not in told
    assert "3 of 3 pairs are left out" in " ".join(told.split())
    assert_refused(at("--epsilon=-1"), "--epsilon=-1 must be a number above 0")
    assert_refused(at("--mean_epsilon=nan"), "must be a number above 0")
    assert_refused(at("--delay=1e9"), "choose a delay of at most")


def test_the_run_that_is_named_first_is_what_others_are_compared_with(grid):
    first = grid / "tradeoff=20,seed=2"
    lines = call_program(COMPARE, first, grid).stdout.splitlines()
    (settings,) = [line for line in lines if line.startswith("schedule.tradeoff")]
    assert settings.split()[1:] == ["20", "1"]


def test_few_seeds_are_said_plainly(tmp_path):
    write(tmp_path, 1.0, (0,))
    write(tmp_path, 2.0, (0,))
    write(tmp_path, 3.0, (4,))
    done = call_program(COMPARE, tmp_path)
    assert "#2 and #1 have one seed in common (0): there is no interval" in done.stdout
    assert "#3 and #1 have no seed in common: nothing can be paired" in done.stdout
    assert "one is expected to miss" in done.stdout
    assert "nan" not in done.stdout
    assert not re.search(r"\d \(.* to ", done.stdout)


def test_unequal_privacy_is_said(tmp_path):
    def compare(**privacy):
        folder = tmp_path / "_".join(privacy)
        write_run(folder / "one")
        write_run(folder / "two", privacy=privacy)
        return call_program(COMPARE, folder).stdout

    assert "equal privacy" not in compare(noise_multiplier=3.0)
    told = " ".join(compare(delta=1e-5, accountant="rdp").split())
    assert "differ in delta (0.001, 1e-05), accountant (pld, rdp), so" in told
    assert "differ in whether they are private" in compare(noise=False)
    write_run(tmp_path / "spent" / "one")
    write_run(tmp_path / "spent" / "two", num_rounds=3, schedule={"tradeoff": 3.0})
    assert "largest epsilon spent (" in call_program(COMPARE, tmp_path / "spent").stdout
    write(tmp_path / "paired", 1.0, (0, 1))
    write(tmp_path / "paired", 2.0, (0,))
    write(tmp_path / "paired", 2.0, (3,), num_rounds=40)  # has no partner
    assert "equal privacy" not in call_program(COMPARE, tmp_path / "paired").stdout


def test_many_settings_have_lines_and_one_has_no_difference(tmp_path):
    for number in range(6):
        write(tmp_path / "many", 1.0 + number, (0,), num_rounds=1)
    done = call_program(COMPARE, tmp_path / "many")
    assert [line.split()[0] for line in done.stdout.splitlines() if "#6" in line] == [
        *("#6", "#6"),
        "#6",
    ]
    write(tmp_path / "seeds", 1.0, (0, 1))
    write(tmp_path / "again", 1.0, (1,))
    write(tmp_path / "again", 4.0, (9,), done=False)
    done = call_program(COMPARE, tmp_path / "seeds", tmp_path / "again")
    assert "1 unfinished run(s) are left out." in done.stdout
    assert "These runs differ in nothing but their seeds." in done.stdout
    assert "#1 has 1 more run(s) of a seed" in done.stdout
    assert "Paired" not in done.stdout


def test_differences_are_drawn_with_their_intervals(grid, tmp_path):
    picture = tmp_path / "differences.png"
    done = call_program(COMPARE, grid, f"--plot={picture}")
    assert (done.returncode, done.stderr) == (0, "")
    with Image.open(picture) as drawn:
        assert drawn.width == round(300 * 4.6)
    rows = {
        "points": [Row("accuracy", [(-8.8, -9.3, -8.3), (1.0, math.nan, math.nan)])],
        "s": [Row("delay", [(3.0, 2.0, 4.0), (5.0, 4.0, 6.0)])],
    }
    looks = dict(zip(("a", "random"), palette.looks(["a", "random"]), strict=True))
    first, second = difference_figure(rows, looks).axes
    assert [text.get_text() for text in second.get_yticklabels()] == ["delay"]
    _, bar, dot, other_bar, _ = second.lines  # after the line at zero
    assert ([*bar.get_xdata()], [*dot.get_xdata()]) == ([2.0, 4.0], [3.0])
    assert other_bar.get_color() == palette.look(3).colour
    assert first.get_xlabel() == "points"


def test_refusals(tmp_path):
    assert_refused(call_program(COMPARE), "name at least two recorded runs")
    assert_refused(call_program(COMPARE, tmp_path), "there is no recorded run in")
    write_run(tmp_path / "one")
    write_run(tmp_path / "two", done=False)
    assert_refused(call_program(COMPARE, tmp_path), "1 finished runs here, and 1 unf")
    write_run(tmp_path / "three", seed=1)
    plot = f"--plot={tmp_path / 'a.png'}"
    assert_refused(call_program(COMPARE, tmp_path, plot), "name runs of another")
    assert_refused(call_program(COMPARE, tmp_path, "--plot=a.exe"), "pdf, png, svg")
    csv_file = f"--csv={tmp_path / 'nowhere' / 'runs.csv'}"
    assert_refused(call_program(COMPARE, tmp_path, csv_file), "make its folder first")


def test_showing_and_comparing_do_not_load_jax():
    code = (
        "import sys; from experiments import compare, show; "
        "sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
