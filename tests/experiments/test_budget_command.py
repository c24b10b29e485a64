"""Does `experiments.budget` answer a user, and refuse what has no answer?"""

import json

import pytest

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
    ],
)
def test_bad_input_gets_one_sentence_and_exit_code_2(tmp_path, flag, message):
    assert_refused(budget(tmp_path, flag), message)
