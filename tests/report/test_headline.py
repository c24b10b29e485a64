"""Does a page's first sentence say what the numbers say, and no more?"""

import html
import math
import re

import pytest

from dpsparfl_jax import records
from dpsparfl_jax.records.comparisons import Evaluation, interval
from dpsparfl_jax.report import headline, seeds
from dpsparfl_jax.report.headline import Candidate
from tests.records.test_groups import make_run
from tests.report.test_report import write_run

DELTA = "delta = 0.001, pld accountant"


def setting(name, *runs, done=True, private=True, privacy=DELTA):
    """A setting; evaluations of its seeds are (delay, epsilon, accuracy)."""
    made = {
        seed: [
            Evaluation(at, delay, 2.0 * at, *_spent(epsilon, private), accuracy)
            for at, (delay, epsilon, accuracy) in enumerate(run, start=1)
        ]
        for seed, run in enumerate(runs)
    }
    return Candidate(name, done, private, privacy, made)


def _spent(largest, private):
    return (largest, largest / 2) if private else (math.inf, math.inf)


def words(*settings):
    text = headline.headline(settings)
    return html.unescape(re.sub("<[^>]*>", "", text))


FAST = [(1.0, 1.0, 0.30), (2.0, 2.0, 0.60), (3.0, 3.0, 0.70)]
SLOW = [(4.0, 1.0, 0.35), (8.0, 2.0, 0.65), (12.0, 2.5, 0.66)]


def test_of_a_single_run_only_its_own_numbers_are_told():
    said = words(setting("alone", FAST))
    assert "alone has 70.00% accuracy after 3 rounds, 3.0 s" in said
    assert "spent epsilon 3.000 (delta = 0.001, pld accountant)" in said
    assert "One run with one seed" in said
    assert "best" not in said
    said = words(setting("open", FAST, private=False, privacy="not private: no noise"))
    assert "It is not private: no noise." in said
    assert "spent" not in said
    assert "It is not finished." in words(setting("half", FAST, done=False))
    assert "No model has been tested yet" in words()


def test_the_best_is_the_one_at_equal_epsilon_and_at_equal_time():
    """From epsilon 2 to 2.5 both were last tested at 2; at 3 s the slow one never."""
    said = words(setting("fast", FAST), setting("slow", SLOW))
    assert (
        "At equal largest epsilon (of the client that has spent most, 2.000 to 2.500; "
        f"{DELTA}), slow is the best of 2: 65.00% accuracy, 5.00 points ahead of fast "
        "(60.00%). One seed each: chance may explain the difference." in said
    )
    assert "mean epsilon (over clients, 1.000 to 1.250), slow is the best of 2" in said
    assert "At equal simulated time (3.0 s" in said
    assert "fewer than two of them had been tested" in said
    longer = [*FAST, (9.0, 3.5, 0.50)]
    said = words(setting("fast", longer), setting("slow", SLOW))
    assert "simulated time (9.0 s, when the first of them ends), slow is" in said
    assert "65.00% accuracy, 15.00 points ahead of fast (50.00%)" in said


def test_differences_over_seeds_have_student_intervals():
    """Differences 1, 2, 6 points: mean 3, deviation 2.65, and t(0.975, 2) = 4.3027."""
    first = [[(5.0, 1.0, accuracy)] for accuracy in (0.51, 0.52, 0.56)]
    second = [[(5.0, 1.0, 0.50)]] * 3
    said = words(setting("a", *first), setting("b", *second))
    half = 4.3027 * math.sqrt(7 / 3)
    assert f"over 3 seeds: {3 - half:.2f} to {3 + half:.2f} points, so which" in said
    assert "53.00% accuracy, mean of 3 seeds, 3.00 points ahead of b" in said
    sure = [[(5.0, 1.0, accuracy)] for accuracy in (0.60, 0.601, 0.602)]
    said = words(setting("a", *sure), setting("b", *second))
    assert "9.85 to 10.35 points." in said
    assert "is open" not in said
    assert "level with" in words(setting("a", *second), setting("b", *second))
    near = [[(5.0, 1.0, 0.627649)]], [[(5.0, 1.0, 0.619251)]]  # 0.8398 points apart
    said = words(setting("a", *near[0]), setting("b", *near[1]))
    assert "62.76% accuracy, 0.83 points ahead of b (61.93%)" in said
    assert interval([0.5, None, math.nan]) == pytest.approx(
        (0.5, math.nan, math.nan), nan_ok=True
    )


def test_epsilons_that_mean_different_things_are_not_compared():
    said = words(setting("a", FAST), setting("b", SLOW, privacy="delta = 1e-05, rdp"))
    assert "cannot be compared" in said
    assert "equal epsilon" not in said
    open_run = setting("c", FAST, private=False, privacy="not private")
    assert "equal epsilon" not in words(setting("a", FAST), open_run)
    three = words(setting("a", FAST), setting("b", SLOW), open_run)
    assert "among those that are private, b is the best of 2" in three


def test_recorded_and_indexed_runs_say_the_same(tmp_path):
    for seed in (0, 1):
        for tradeoff in (1.0, 2.0):
            folder = tmp_path / f"{tradeoff},{seed}"
            write_run(folder, seed=seed, schedule={"tradeoff": tradeoff})
    entries = seeds.show_runs(records.find_runs([tmp_path]))
    recorded = headline.of_entries(entries)
    indexed = headline.of_groups(
        records.groups.group_runs(records.FoundRuns([tmp_path]).read())
    )
    assert [one.name for one in recorded] == ["tradeoff=1", "tradeoff=2"]
    assert headline.headline(recorded) == headline.headline(indexed)
    nothing = records.groups.group_runs([make_run(0, {}, {"round": [1]})])
    assert headline.of_groups(nothing) == []
