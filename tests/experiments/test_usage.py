"""Does `--help` begin with what matters, and is a mistaken flag told its name?"""

import subprocess
import sys

import pytest

from dpsparfl_jax import config
from experiments import usage
from tests.commands import ROOT, assert_refused, call_program


@pytest.mark.parametrize(("program", "own"), [("run", "resume"), ("sweep", "grid")])
def test_help_has_sections_in_order(program, own):
    text = call_program(f"experiments.{program}", "--help").stdout
    assert max(map(len, text.splitlines())) <= 88
    _, first, *sections, rest = text.split("\n\n")[-len(config.SECTIONS) - 3 :]
    assert first.startswith("What most runs set:\n  --preset: ")
    for name in (own, "out", "data.name", "schedule.policy", "length.rounds", "seed"):
        assert f"{name}: " in first
    assert [block.split()[2].rstrip(":") for block in sections] == [*config.SECTIONS]
    assert sections[0].startswith("Settings of data: where images come from, and how")
    assert rest.startswith("All other flags:\n")
    assert "--config: " in rest
    assert f"{own}: " not in rest


def test_programs_with_few_flags_list_them():
    text = call_program("experiments.report", "--help").stdout
    assert "\n  --title: title of the page" in text
    assert "What most runs set" not in text


@pytest.mark.parametrize(
    ("flag", "meant"),
    [
        ("--lenght.rounds=3", "--length.rounds?"),
        ("--length.rouns=3", "--length.rounds?"),
        ("--epsilon_hi=3", "--privacy.epsilon_hi?"),
        ("--epsilon_high=3", "--privacy.epsilon_hi?"),
        ("--policy=random", "--schedule.policy?"),
        ("--data.momentum=1", "--training.momentum or --server.momentum?"),
        ("--nofading", "--nowireless.fading?"),
        ("--presets=quickstart", "--preset?"),
    ],
)
def test_a_mistaken_flag_is_told_its_name(flag, meant):
    done = call_program("experiments.run", flag)
    assert_refused(done, f"': did you mean {meant} (--help")


def test_what_is_like_nothing_has_no_hint():
    assert usage.nearest("zzz", ["a.b", "seed"]) == []
    assert usage.hint([]) == ""


def test_help_does_not_load_jax():
    code = (
        "import sys, experiments.sweep; "
        "sys.exit(bool({'jax', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
