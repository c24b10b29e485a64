"""Is it told how far a command is, of all that it will do?"""

import io
import sys

import pytest

from dpsparfl_jax.runner.progress import Progress, in_words


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Followed:
    """Runs a and b train together after two rounds of a; c is another program's."""

    def __init__(self, *, shown=True, clock=True, limits=None):
        self.said, self.now = [], 0.0
        self.progress = Progress(
            limits or {"a": 0, "b": 0, "c": 0},
            say=self.said.append,
            clock=(lambda: self.now) if clock else None,
            shown=shown,
        )

    def rounds(self, *times, first=1, **accuracy):
        """Rounds of a and b that end at these times."""
        for number, self.now in enumerate(times, first):
            for run, ahead in (("a", 2), ("b", 0)):
                told = {"examples": 50, "epsilon_max": number / 2}
                told |= {"round": number + ahead, "accuracy": accuracy.get(run)}
                self.progress.note(run, told)
            self.progress.step(2, "training 2 runs")

    def begin(self):
        self.progress.plan("a", 12)
        self.progress.plan("b", 8)
        self.progress.begin({"a": 2, "b": 0}, untimed=1)
        self.progress.doing("compiling for 2 runs")


def test_a_line_now_and_then_says_how_far_all_runs_are():
    followed = Followed()
    followed.begin()
    followed.rounds(10.0, 20.0)
    # Two steps of two runs; the first one was compiled, the second took 10 s.
    assert followed.said == [
        "About 2 min to go: 24 rounds of about 30 are left, and one takes 5 s."
    ]
    followed.progress.plan("c", 4)  # shorter than the mean of the others
    followed.rounds(40.0, first=3, a=0.25, b=0.75)
    assert followed.said[1:] == [
        "Training 2 runs: 8 of 24 rounds, about 2 min left, accuracy up to 0.750 "
        "(mean 0.500), epsilon up to 1.5, 7 examples/s."
    ]


def test_plans_and_compilers_that_take_long_are_told_of():
    followed = Followed(limits={"a": 9, "b": 9, "c": 0})
    followed.now = 31.0
    followed.progress.doing("planning")
    assert followed.said == ["Planning: 0 of about 18 rounds."]
    followed.begin()
    followed.now = 62.0
    followed.progress.doing("compiling for 2 runs")
    assert followed.said[1:] == ["Compiling for 2 runs: 2 of about 30 rounds."]


def test_a_run_that_fails_is_not_waited_for():
    followed = Followed()
    followed.begin()
    followed.progress.plan("c", 10)
    followed.rounds(1.0, 40.0)
    followed.progress.drop(["a", "of another command"])
    followed.now = 80.0
    followed.progress.doing("planning")
    assert followed.said[-1].startswith("Planning: 6 of 22 rounds, about 5 min left")


@pytest.mark.parametrize("silent", [{"shown": False}, {"clock": False}])
def test_whoever_wants_no_progress_hears_none(silent):
    followed = Followed(**silent)
    followed.begin()
    followed.rounds(40.0, 80.0, 120.0)
    assert followed.said == []


def test_a_terminal_has_one_bar_for_everything(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    followed = Followed(limits={"a": 0})
    followed.progress.plan("a", 4)
    with followed.progress:
        followed.progress.begin({"a": 0}, untimed=1)
        followed.progress.note("a", {"round": 1, "accuracy": 0.5, "examples": 10})
        followed.progress.step(1, "training 1 run")
    shown = sys.stderr.getvalue()
    assert " 25%|" in shown
    assert "training 1 run: 1 of 4 rounds, accuracy 0.500" in shown
    assert followed.said == []


def test_times_are_quickly_read():
    assert [in_words(s) for s in (59, 600, 7200)] == ["59 s", "10 min", "2.0 h"]
