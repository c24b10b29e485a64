"""Do the documents say what is true: commands, examples, and that CI runs them?"""

import dataclasses
import re

import pytest

from dpsparfl_jax import config
from tests.commands import ROOT, assert_refused, run_program

README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_ci_runs_the_test_command_of_the_readme():
    commands = [block.strip() for block in blocks("sh")]
    (test_command,) = [command for command in commands if "pytest" in command]
    assert test_command in (ROOT / ".ci" / "run").read_text().splitlines()


def test_the_main_command_names_an_existing_program():
    (main_command,) = [b for b in blocks("sh") if "pytest" not in b]
    module = main_command.split()[-1]
    assert (ROOT / (module.replace(".", "/") + ".py")).is_file()


@pytest.mark.parametrize("code", blocks("python"))
def test_readme_examples_run(code, monkeypatch):
    from dpsparfl_jax.scheduling import base
    from dpsparfl_jax.training import models

    for room in (models, base):
        monkeypatch.setattr(room, "_REGISTRY", dict(room._REGISTRY))
    exec(compile(code, "README.md", "exec"), {})


def run(program, *arguments):
    flags = ["--perf.cache_dir="] if program == "experiments.smoke" else []
    return run_program(program, *flags, *arguments)


def client_rows(output):
    """The table of budgets: client, participations, afforded, spent, asked."""
    lines = output.splitlines()
    (start,) = [i for i, line in enumerate(lines) if line.startswith("client ")]
    return [[float(cell) for cell in line.split()] for line in lines[start + 1 : -1]]


def test_the_main_job_learns_within_its_budgets():
    done = run("experiments.smoke", "--rounds=6", "--perf.padded_sizes=2")
    assert done.returncode == 0, done.stderr
    clients = client_rows(done.stdout)
    assert len(clients) == 10
    assert sum(row[1] for row in clients) == 6 * 3
    assert all(row[1] <= row[2] and row[3] <= row[4] for row in clients)
    table = done.stdout.split("\nround ")[1].split("\nclient ")[0]
    rows = [line.split() for line in table.splitlines()[1:-1]]
    assert [int(row[0]) for row in rows] == list(range(7))
    assert float(rows[-1][2]) < float(rows[0][2])  # test loss falls


def test_the_main_job_ends_when_all_budgets_are_spent():
    done = run(
        "experiments.smoke",
        "--rounds=9",
        "--perf.padded_sizes=1",
        "--privacy.epsilons=" + ",".join(["1.2"] * 9 + ["1"]),
        "--privacy.clip_calibration=private",
    )
    assert done.returncode == 0, done.stderr
    assert "9 of 10 clients can take part, 9 times in all" in done.stdout
    assert "All budgets are spent after 3 rounds." in done.stdout
    assert "private 0.5-quantile" in done.stdout
    clients = client_rows(done.stdout)
    assert [row[1] for row in clients] == [1] * 9 + [0]
    assert clients[9][3] == 0


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--privacy.delta=0", "--privacy.delta must be above 0 and below 1"),
        ("--privacy.epsilon_lo=12", "--privacy.epsilon_lo must be at most epsilon_hi"),
        ("--privacy.epsilons=2,5", "2 epsilons are given for 10 clients"),
        ("--privacy.noise_multiplier=0.2", "no client can take part even once"),
        ("--training.clip_norm=0", "--training.clip_norm must be above 0, but is 0.0."),
        ("--nonsense=3", "Unknown command line flag 'nonsense'"),
        ("--training.batch_size=many", "could not convert string to float"),
        ("--training.batch_size=301", "sampling rate above 1"),
        ("--model.name=vit", "unknown model 'vit': choose one of mnist_cnn"),
        ("--data.dir=/nowhere", "no file /nowhere/mnist.npz"),
        ("--training.clipping=off", "noise without clipping protects nothing"),
        ("stray", "unexpected argument 'stray'"),
    ],
)
def test_bad_flags_get_one_sentence_and_exit_code_2(flag, message):
    assert_refused(run("experiments.smoke", flag), message)


def test_help_lists_every_setting():
    text = run("experiments.smoke", "--help").stdout
    for section in config.SECTIONS:
        for field in dataclasses.fields(getattr(config.RunConfig(), section)):
            assert f"{section}.{field.name}:" in text
            assert field.metadata["help"].split()[0] in text


def test_benchmark_refuses_what_it_cannot_do():
    done = run("benchmarks.engine", "--json=/nowhere/results.json")
    assert done.returncode == 2
    assert "make its folder first" in done.stderr
