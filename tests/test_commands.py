"""Does running a command within this process leave the process as it was?"""

import signal
import sys

import pytest
from absl import app, flags

from experiments import __main__
from tests.commands import assert_refused, call_program


def test_programs_with_the_same_flags_run_one_after_another():
    before = set(flags.FLAGS)
    argv, run, handler = sys.argv, app.run, signal.getsignal(signal.SIGINT)
    for _ in range(2):
        for name in ("run", "sweep", "schedule_only"):
            done = call_program(f"experiments.{name}", "--preset=nothing", "--out=x")
            assert_refused(done, "unknown preset 'nothing'")
    assert set(flags.FLAGS) == before
    assert (sys.argv, app.run) == (argv, run)
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_flag_does_not_outlive_its_call():
    given = call_program("experiments.budget", "--sigma=0")
    assert "noise multiplier must be positive" in given.stderr
    later = call_program("experiments.budget", "--examples=0")
    assert_refused(later, "--examples must be at least 1")


def test_a_misspelt_command_is_told_what_it_may_have_been(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["dpsparfl", "swep"])
    with pytest.raises(SystemExit, match="2"):
        __main__.main()
    told = capsys.readouterr().err
    assert told.startswith("unknown command 'swep': choose one of run, sweep, presets")
    assert "; did you mean sweep?" in told
