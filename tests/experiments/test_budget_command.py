"""Does `experiments.budget` answer a user, and refuse what has no answer?"""

import dataclasses
import json

import numpy as np
import pytest

from dpsparfl_jax import config
from dpsparfl_jax.privacy import advise
from experiments import advice
from tests.commands import assert_refused, call_program, run_program

EXAMPLE = (
    "--sigma 0.6 --batch 10 --examples 1000 --steps 60 --delta 1e-3 --epsilon 2,5,10"
)


def budget(folder, *flags, how=call_program):
    files = ("--plot", folder / "b.png", "--json", folder / "b.json")
    cache = ("--cache_dir", folder / "cache")
    return how("experiments.budget", *files, *cache, *EXAMPLE.split(), *flags)


def test_the_program_starts_and_answers(tmp_path):
    done = budget(tmp_path, "--epsilon=2", "--limit=20", how=run_program)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert ["2", "0", "2"] in [line.split() for line in done.stdout.splitlines()]
    numbers = json.loads((tmp_path / "b.json").read_text())
    assert (numbers["rdp"], numbers["pld"]) == ({"2": 0}, {"2": 2})
    assert (tmp_path / "b.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.slow
def test_the_table_the_numbers_and_the_figure(tmp_path):
    done = budget(tmp_path, "--participations=50")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["2", "0", "2"] in rows
    assert ["5", "11", "18"] in rows
    assert ["10", "51", "67"] in rows
    assert "noise multiplier that affords 50 participations:" in done.stdout
    noise = {row[0]: row[1:] for row in rows[-4:-1]}
    assert float(noise["5"][1]) < float(noise["5"][0])
    numbers = json.loads((tmp_path / "b.json").read_text())
    assert numbers["rdp"] == {"2": 0, "5": 11, "10": 51}
    assert numbers["pld"] == {"2": 2, "5": 18, "10": 67}
    one = numbers["epsilon_after_one"]
    assert 1.5 < one["pld"] < 2 < one["rdp"] < 2.6
    assert (tmp_path / "b.png").read_bytes()[:4] == b"\x89PNG"
    # A damaged cache is mended, with one sentence a file, and the same answer.
    for path in (tmp_path / "cache").iterdir():
        path.write_text("{")
    again = budget(tmp_path, how=run_program)
    assert again.returncode == 0
    assert again.stderr.count("is damaged; computing it again.") == 2
    assert json.loads((tmp_path / "b.json").read_text()) == numbers
    assert budget(tmp_path).stderr == ""


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--sigma=0", "noise multiplier must be positive and finite"),
        ("--sigma=-1", "epsilon is infinite"),
        ("--batch=0", "batch size must be positive"),
        ("--batch=1001", "sampling rate above 1"),
        ("--examples=0", "--examples must be at least 1"),
        ("--steps=0", "at least one step"),
        ("--delta=0", "delta must lie strictly between 0 and 1"),
        ("--delta=1", "delta must lie strictly between 0 and 1"),
        ("--epsilon=2,x", "separated by commas"),
        ("--epsilon=-2", "positive and finite"),
        ("--json=/nowhere/b.json", "make its folder first"),
        ("--plot=/", "is a folder"),
        ("--plot=figure.xyz", "ending is one of pdf, png, svg"),
        ("--participations=0", "0 is not a positive integer"),
        ("--epsilon=2..10", "separated by commas"),
        ("--clients=3", "--clients is for --advise"),
    ],
)
def test_bad_input_gets_one_sentence_and_exit_code_2(tmp_path, flag, message):
    assert_refused(budget(tmp_path, flag), message)


ADVISE = (
    *("--advise", "--examples=60", "--most_batch=8", "--epsilon=5..8", "--batch=4"),
    *("--most_examples=2e4", "--clients=10", "--channels=2"),
)


@pytest.mark.slow
def test_advice_is_a_table_flags_numbers_and_a_figure(tmp_path):
    done = budget(tmp_path, *ADVISE)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    numbers = json.loads((tmp_path / "b.json").read_text())
    best, present, rows = (numbers[name] for name in ("best", "present", "frontier"))
    within = [row for row in rows if row["examples"] <= 2e4]
    assert best == max(within, key=lambda row: row["signal"])
    assert len(within) < len(rows)  # what more would give is shown as well
    assert numbers["limits"] == {"examples": 2e4, "rounds": None}
    assert len(numbers["epsilons"]) == 40
    assert present["noise_multiplier"] == 0.6
    for row in (*rows, present):
        noisy = row["participations_mean"] * row["local_steps"]
        assert row["examples"] == pytest.approx(10 * noisy * row["batch_size"])
    flags = (
        f"--privacy.noise_multiplier={best['noise_multiplier']:g} "
        f"--training.batch_size={best['batch_size']:g} "
        f"--training.local_steps={best['local_steps']}"
    )
    assert numbers["flags"] == flags
    assert f"within the limits pass {flags} (" in done.stdout
    lines = done.stdout.splitlines()
    (marked,) = [line for line in lines if line.endswith("<- best within the limits")]
    assert marked.split()[0] == f"{best['noise_multiplier']:g}"
    assert len([line for line in lines if line.endswith("present settings")]) == 1
    assert (tmp_path / "b.png").read_bytes()[:4] == b"\x89PNG"


def test_flags_of_advice_are_settings_of_a_run():
    def row(noise, counts):
        setting = advise.Setting(noise, 16, 5)
        return advise.Spending(setting, np.array(counts), 9, 1e4, 100.0 * noise)

    clients = advise.Clients(np.array([2.0, 5.0]), 100, 2, 1, 1e-3)
    few, many, none = row(1.5, [3, 7]), row(2.0, [40, 2001]), row(0.0, [0, 0])
    given = advice.Advice(clients, advise.Limits(), [few, many], few, none)
    assert "max_participations" not in advice.flags_of(given)
    assert "nobody can take part with the present settings" in advice.sentence(given)
    given = dataclasses.replace(given, best=many, present=few)
    assert "1.33 times the signal of the present" in advice.sentence(given)
    changes = dict(each[2:].split("=") for each in advice.flags_of(given).split())
    assert list(changes.values()) == ["2", "16", "5", "2001"]
    for name in changes:
        section, setting = name.split(".")
        assert hasattr(getattr(config.RunConfig(), section), setting)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--epsilon=8..5", "from a positive one to a larger one"),
        ("--epsilon=0..5", "from a positive one to a larger one"),
        ("--epsilon=5..", "separated by commas"),
        ("--clients=0", "0 is not a positive integer"),
        ("--channels=0", "0 is not a positive integer"),
        ("--most_examples=-1", "is not a non-negative number"),
        ("--most_rounds=-1", "-1 is not a non-negative integer"),
        ("--most_batch=2", "batches of 4 records and more"),
        ("--batch=61", "sampling rate above 1"),
        ("--participations=5", "--participations is not for --advise"),
        ("--delta=0", "delta must lie strictly between 0 and 1"),
        ("--most_examples=1", "lets anybody take part within these limits"),
    ],
)
def test_advice_refuses_what_has_no_answer(tmp_path, flag, message):
    assert_refused(budget(tmp_path, *ADVISE, flag), message)


@pytest.mark.parametrize("flag", ["--steps=1000000000", "--delta=1e-300"])
def test_budgets_that_afford_nothing_are_told(tmp_path, flag):
    done = budget(tmp_path, flag)
    assert done.returncode == 0
    assert "No budget affords a single participation: raise --sigma" in done.stderr
    assert "PLD: no finite epsilon can be computed" in done.stderr


@pytest.mark.parametrize("sigma", ["1e300", "1e-300", "1e6"])
def test_noise_that_cannot_be_accounted_for_is_refused(tmp_path, sigma):
    message = "must lie between 0.001 and 100000 to be accounted for"
    assert_refused(budget(tmp_path, f"--sigma={sigma}"), message)
