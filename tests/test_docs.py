"""Do the documents say what is true: commands, examples, and that CI runs them?"""

import dataclasses
import pathlib
import re
import subprocess
import sys

import pytest

from dpsparfl_jax import config

ROOT = pathlib.Path(__file__).parent.parent
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
    from dpsparfl_jax.training import models

    monkeypatch.setattr(models, "_REGISTRY", dict(models._REGISTRY))
    exec(compile(code, "README.md", "exec"), {})


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True
    )


def test_the_main_job_learns():
    done = run("experiments.smoke", "--rounds=6", "--perf.padded_sizes=2")
    assert done.returncode == 0, done.stderr
    rows = [
        line.split() for line in done.stdout.splitlines() if line[:6].strip().isdigit()
    ]
    assert [int(row[0]) for row in rows] == list(range(7))
    assert float(rows[-1][2]) < float(rows[0][2])  # test loss falls


@pytest.mark.parametrize(
    ("flag", "message"),
    [
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
    done = run("experiments.smoke", flag)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


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
