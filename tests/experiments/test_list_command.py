"""Does `dpsparfl list` count runs, group them, and refuse what it cannot do?"""

import csv
import subprocess
import sys

import pytest

from dpsparfl_jax import records
from tests.commands import ROOT, assert_refused, call_program, run_program
from tests.report.test_report import write_run

LIST = "experiments.list_runs"


@pytest.fixture
def runs(tmp_path):
    root = tmp_path / "runs"
    for tradeoff in (1.0, 50.0):
        for seed in (0, 1):
            write_run(
                root / f"{tradeoff:g},{seed}",
                seed=seed,
                schedule={"tradeoff": tradeoff},
            )
    write_run(root / "half", num_rounds=2, done=False)
    return root


def test_the_table_has_a_line_a_setting(runs, tmp_path):
    done = run_program(LIST, str(runs), f"--csv={tmp_path / 'all.csv'}")
    assert (done.returncode, done.stderr) == (0, "")
    first, heads, *lines = done.stdout.splitlines()
    assert first == "5 runs: 4 finished, 1 unfinished."
    assert heads.split("  ")[0] == "tradeoff"
    assert sorted(line.split()[0] for line in lines) == ["1", "50"]
    accuracies = [
        records.load_run(runs / f"50,{seed}").rounds["accuracy"].iloc[-1]
        for seed in (0, 1)
    ]
    mean, low, high = sum(accuracies) / 2, min(accuracies), max(accuracies)
    (line,) = [line for line in lines if line.split()[0] == "50"]
    assert f"2  {mean:.2%} ({low:.2%} to {high:.2%})" in line
    with open(tmp_path / "all.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert {row["run"] for row in table} == {path.name for path in runs.iterdir()}
    assert [row["done"] for row in table].count("False") == 1


def test_long_tables_are_cut_unless_all_is_asked_for(tmp_path):
    for number in range(42):
        write_run(
            tmp_path / f"run{number}",
            num_rounds=1,
            schedule={"tradeoff": 1.0 + number},
        )
    short = call_program(LIST, tmp_path)
    assert "and 2 more settings with less accuracy." in short.stdout
    assert len(short.stdout.splitlines()) == 44
    whole = call_program(LIST, tmp_path, "--all")
    assert len(whole.stdout.splitlines()) == 44
    assert (tmp_path / records.INDEX).is_file()


def test_damaged_runs_are_told_of_a_few_times(runs):
    for number in range(7):
        (runs / f"damaged{number}").mkdir()
        (runs / f"damaged{number}" / records.MANIFEST).write_text("{")
    done = call_program(LIST, runs)
    assert done.returncode == 0
    assert done.stdout.startswith("12 runs: 4 finished, 1 unfinished, 7 unreadable.")
    *told, last = done.stderr.splitlines()
    assert len(told) == 5
    assert all(line.startswith("Left out: ") for line in told)
    assert last == "and 2 more."


def test_refusals(tmp_path):
    assert_refused(call_program(LIST), "name at least one folder")
    assert_refused(call_program(LIST, tmp_path), "there is no recorded run in")
    write_run(tmp_path / "one")
    csv_file = f"--csv={tmp_path / 'nowhere' / 'runs.csv'}"
    assert_refused(call_program(LIST, tmp_path, csv_file), "make its folder first")
    (tmp_path / "one" / records.MANIFEST).write_text("{")
    assert_refused(call_program(LIST, tmp_path), "is no manifest of a run")


def test_listing_does_not_load_jax(runs):
    code = (
        "import sys; sys.argv = ['list', sys.argv[1]]; from experiments import cli, "
        "list_runs; list_runs.flags.FLAGS(sys.argv); list_runs.main(sys.argv[1:]); "
        "sys.exit('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(runs)], cwd=ROOT)
    assert done.returncode == 0
