"""Do verdicts on the paper's claims follow from the numbers, whatever these are?"""

import copy
import json
import math

import numpy as np
import pandas as pd
import pytest

from dpsparfl_jax.errors import InputError
from experiments.paper import claim_data, claims, statistics, verdicts
from tests.commands import assert_refused, call_program, run_program
from tests.made_study import BREAKS, SETTINGS, Study, mirror, scale


@pytest.fixture(scope="module")
def _made():
    return Study()


@pytest.fixture
def study(_made):
    return copy.deepcopy(_made)


def verdicts_of(study, family=""):
    """Verdicts on claims whose names begin so."""
    tables = claim_data.Tables(study.runs, study.curves)
    chosen = [claim for claim in claims.CLAIMS if claim.name.startswith(family)]
    return {claim.name: claims.judge(claim, tables) for claim in chosen}


def verdict_on(study, name):
    return verdicts_of(study, name)[name]


def test_all_claims_hold_in_a_study_made_so(study, tmp_path):
    found = {each.claim: each for each in claims.evaluate(study.write(tmp_path))}
    assert {verdict.verdict for verdict in found.values()} == {"reproduced"}
    assert set(found) == set(BREAKS)
    effects = {
        (name, each.label): each.effect
        for name, verdict in found.items()
        for each in verdict.comparisons
    }
    for name, label, effect in (
        ("clipping:cifar", "keep rate 0.5", 10),
        ("lambda_optimum", "lambda 50 over 1 and 200", 10),
        ("lambda_delay", "queue from zero", 1),
        ("privacy_accuracy", "[2,20] over [2,5]", 15),
        ("privacy_accuracy", "[2,15] over [2,10]", 5),
        ("privacy_delay", "[2,20] against [2,5] over the same rounds", -5.1),
        ("privacy_delay", "[2,20] against [2,5] until budgets end", 4.9),
        # After round 30: the fourth evaluation is in another round for each.
        ("policies_accuracy:noniid", "round robin, equal rounds", 10),
        # At 40 h, ours had round 40, minimization round 20 and random round 10.
        ("policies_accuracy:mnist", "delay minimization, equal time", 15),
        ("policies_accuracy:mnist", "random, equal time", 30),
        ("policies_delay:cifar10", "random", -23.1),
        ("delay_minimization:mnist", "start against random", -15.4),
        ("delay_minimization:mnist", "end against start", 81.8),
        ("constraints:participation", "IID MNIST", 0),
        ("solver", "kept", 10),
        ("accountant", "PLD over RDP", 30),
    ):
        assert effects[name, label] == pytest.approx(effect, abs=0.2), (name, label)
    assert 0.099 < effects["epsilon", f"least of {20 * 4} runs"] < 0.1


@pytest.mark.parametrize("claim", BREAKS)
def test_the_other_sign_turns_that_verdict_and_none_beside_it(claim, study):
    BREAKS[claim](study)
    found = verdicts_of(study, claim.partition(":")[0])
    assert statistics.REVERSED in {each.outcome for each in found[claim].comparisons}
    assert found.pop(claim).verdict == "not reproduced (the opposite was found)"
    assert {verdict.verdict for verdict in found.values()} <= {"reproduced"}


def test_what_holds_under_some_conditions_only(study):
    study.upside_down(SETTINGS["noniid"], "accuracy")
    study.change("tradeoff_warm", mean_delay_s=mirror(100))
    rows = study.runs["sweep"].eq("clipping_fashion") & study.runs["value"].eq(0.9)
    study.runs.loc[rows, "accuracy"] = 0.8  # exactly equal in all seeds
    study.change("policies_cifar", participation_gap=lambda gap: gap + 0.5)
    found = verdicts_of(study)
    only = "reproduced only under "
    equal_time = found["policies_accuracy:noniid"]
    assert equal_time.verdict == only + "equal simulated time and training to the end"
    start = found["lambda_delay"].verdict
    assert start == only + "a delay queue that starts at zero"
    assert found["clipping:fashion"].verdict == only + "keep rate <= 0.5"
    assert found["clipping:fashion"].comparisons[-1][1:4] == (0, 0, 0)
    share = found["constraints:participation"].verdict
    assert share == only + (
        "IID MNIST, IID CIFAR-10 in our nearest setting, non-IID Fashion-MNIST and "
        "imbalanced Fashion-MNIST"
    )


def test_more_delay_spoils_the_solver_that_keeps_more(study):
    rows = study.runs["series"] == "joint"
    study.runs.loc[rows, "mean_delay_s"] *= 1.02
    assert verdict_on(study, "solver").verdict.startswith("not reproduced")


def test_an_effect_within_its_noise_is_unsettled(study):
    pld, rdp = [62, 59, 61, 60], [60, 61, 60, 59]
    study.change("accountant", rounds=lambda _: np.array(pld + rdp, float))
    found = verdict_on(study, "accountant")
    assert found.verdict == "not reproduced (unsettled)"
    assert found.comparisons[0].outcome == statistics.UNSETTLED


def test_too_few_seeds_and_missing_tables():
    study = Study(seeds=2)
    study.runs = study.runs[~study.runs["sweep"].isin(["solver", "tradeoff"])]
    study.change("noniid", common_delay_s=scale(math.nan))
    study.curves.pop("imbalance")
    study.change("imbalance", accuracy=scale(math.nan))
    found = verdicts_of(study)
    assert found["accountant"].verdict == "undecided: 2 seeds, 3 needed"
    assert found["epsilon"].verdict == "reproduced"  # exact
    assert found["lambda_delay"].verdict == "undecided: 2 seeds, 3 needed"
    for name in ("solver", "lambda_optimum", "policies_delay:noniid"):
        assert found[name].verdict == "undecided: not run"
    assert found["policies_accuracy:imbalance"].verdict == "undecided: not run"
    (alone,) = {v.verdict for v in verdicts_of(Study(seeds=1)).values()} - {
        "reproduced"
    }
    assert alone == "undecided: 1 seed, 3 needed"


def test_nothing_run_at_all(study):
    study.runs, study.curves = study.runs[:0], {}
    found = verdicts_of(study)
    assert {each.verdict for each in found.values()} == {"undecided: not run"}


def test_more_seeds_are_planned_than_trained(study):
    study.runs.loc[study.runs["seed"] == 3, "accuracy"] = math.nan
    found = verdict_on(study, "privacy_accuracy")
    assert found.verdict == "reproduced"
    assert {each.seeds for each in found.comparisons} == {3}


def test_the_interval_by_hand():
    # mean 2.5, deviation 1.290994, t of 3 degrees 3.182446: half is 2.054260.
    values = pd.Series([1.0, 2.0, math.nan, 3.0, 4.0])
    assert statistics.interval(values) == pytest.approx(
        (2.5, 0.44574, 4.55426), abs=1e-5
    )
    assert statistics.compare("", values, "pp").outcome == statistics.HOLDS
    assert statistics.compare("", values, "pp", side=-1).outcome == statistics.REVERSED
    assert (
        statistics.compare("", values, "pp", bound=0.5).outcome == statistics.UNSETTLED
    )
    assert (
        statistics.compare("", values, "pp", bound=4.6).outcome == statistics.REVERSED
    )


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        ("+++", "reproduced"),
        ("---", "not reproduced (the opposite was found)"),
        ("-++", "reproduced only under keep rate >= 0.5"),
        ("+-+", "reproduced only under keep rate 0.1, 0.9"),
        ("+?+", "reproduced only under keep rate 0.1, 0.9 (undecided: keep rate 0.5)"),
        (
            "--?",
            "not reproduced (the opposite was found; undecided: keep rate >= 0.9)",
        ),
    ],
)
def test_words_of_verdicts(outcomes, words):
    values = {"+": [1, 1, 1], "-": [-1, -1, -1], "?": []}
    parts = []
    for outcome, rate in zip(outcomes, (0.1, 0.5, 0.9), strict=True):
        compared = statistics.compare("", pd.Series(values[outcome], dtype=float), "pp")
        parts.append(verdicts.Part("keep rate", [compared], rate))
    assert verdicts.judge(parts) == words


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("solver_runs.csv", "keep_rate", "kept", "has no column keep_rate"),
        (
            "solver_runs.csv",
            "joint,,0,",
            "joint,,zero,",
            "'zero' in column seed is not",
        ),
        ("solver_runs.csv", "joint,,0,", "joint,,,", "every row needs a seed"),
        ("solver_runs.csv", "joint,,0,", "joint,,1,", "two rows for sweep solver"),
        ("noniid.csv", ",10,0.5", ",10,50.5", "must be between 0 and 1"),
        ("noniid.csv", ",10,0.5", ",inf,0.5", "'inf' in column x is not a finite"),
        ("noniid.csv", None, "", "cannot be read as a table"),
    ],
)
def test_bad_tables(file, old, new, message, study, tmp_path):
    path = study.write(tmp_path) / file
    text = path.read_text()
    assert old is None or old in text
    path.write_text(new if old is None else text.replace(old, new, 1))
    with pytest.raises(InputError, match=f"{file}.*{message}"):
        claims.evaluate(tmp_path)


def test_a_sweep_with_two_runs_where_one_is_meant(study):
    study.change("solver", series=lambda names: "joint")
    with pytest.raises(InputError, match="solver has several runs of one series"):
        verdict_on(study, "solver")


def test_figures_that_share_runs_must_agree(study, tmp_path):
    study.write(tmp_path)
    shared = pd.read_csv(tmp_path / "policies_delay_runs.csv")
    shared["delay_s"] = 5.0  # was blank
    shared.to_csv(tmp_path / "policies_accuracy_runs.csv", index=False)
    claims.evaluate(tmp_path)
    shared["mean_delay_s"] += 1
    shared.to_csv(tmp_path / "policies_accuracy_runs.csv", index=False)
    with pytest.raises(InputError, match="different numbers of one run of policies_"):
        claims.evaluate(tmp_path)


def test_the_command_prints_short_lines(study, tmp_path):
    done = call_program("experiments.claims", f"--results={study.write(tmp_path)}")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 88
    place = [n for n, line in enumerate(lines) if line.startswith("PLD accounting")]
    told = lines[place[0] + 1 : place[0] + 4]
    assert told[0] == "  => reproduced"
    assert told[2].startswith("    PLD over RDP +30.0 rounds [+29.")
    for claim in claims.CLAIMS:
        assert claim.words in " ".join(done.stdout.split())


def test_the_command_prints_a_table_and_keeps_the_numbers(study, tmp_path):
    folder = study.write(tmp_path)
    done = run_program("experiments.claims", f"--results={folder}", "--markdown")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    table = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert len(table) == 2 + len(claims.CLAIMS)
    assert {line.count("|") for line in table} == {5}
    (row,) = [line for line in table if "PLD" in line]
    assert "PLD over RDP +30.0 rounds [+29." in row
    assert row.endswith("(4 seeds) | reproduced |")
    assert "each interval is for its own comparison" in done.stdout.lower()
    kept = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert [claim["claim"] for claim in kept] == [claim.name for claim in claims.CLAIMS]
    assert kept[-1]["comparisons"][0]["effect"] == pytest.approx(30, abs=0.2)


def test_folders_that_cannot_be_read_or_written(tmp_path):
    done = call_program("experiments.claims", f"--results={tmp_path / 'missing'}")
    assert_refused(done, "missing is not a folder.")
    with pytest.raises(InputError, match="holds no table of runs"):
        claims.evaluate(tmp_path)
    (tmp_path / "claims.json").mkdir()
    with pytest.raises(InputError, match=r"cannot write .*claims\.json"):
        claims.write(tmp_path, [])


def test_unknown_numbers_are_null_and_dashes(study):
    alone = verdict_on(Study(seeds=1), "accountant")
    kept = json.loads(claims.as_json([alone]))["claims"][0]["comparisons"][0]
    assert kept["low"] is None
    assert "rounds (1 seed) | undecided" in claims.as_markdown([alone])
    study.runs = study.runs[:0]
    assert " | - | undecided: not run |" in claims.as_markdown(
        [verdict_on(study, "solver")]
    )
