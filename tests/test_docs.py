"""Do the documents say what is true: commands, examples, and that CI runs them?"""

import dataclasses
import re

import jax
import pytest

from dpsparfl_jax import config
from dpsparfl_jax.runner import programs
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
def test_readme_examples_run(code, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))  # keeps no epsilon curves
    monkeypatch.setattr(programs, "chosen_devices", lambda count: (jax.devices()[0],))
    from dpsparfl_jax.scheduling import base
    from dpsparfl_jax.training import models

    for room in (models, base):
        monkeypatch.setattr(room, "_REGISTRY", dict(room._REGISTRY))
    exec(compile(code, "README.md", "exec"), {})


@pytest.mark.parametrize("program", ["run", "sweep"])
def test_help_lists_every_setting_with_unit_default_bounds_and_source(program):
    text = run_program(f"experiments.{program}", "--help").stdout
    words = " ".join(text.split())
    for section in config.SECTIONS:
        for field in dataclasses.fields(getattr(config.RunConfig(), section)):
            assert f"--{section}.{field.name}:" in words or (
                f"--[no]{section}.{field.name}:" in words
            )
            assert f"default: {field.default!r}" in words
    assert (
        "--wireless.bandwidth_hz: bandwidth of one uplink channel (unit: Hz; above 0; "
        "default: 15000.0; paper: Setup)" in words
    )
    assert "paper_fig8: Fig. 8: policies, imbalanced Fashion-MNIST" in words


def test_benchmark_refuses_what_it_cannot_do():
    done = run_program("benchmarks.engine", "--json=/nowhere/results.json")
    assert_refused(done, "make its folder first")
