"""Small runs to record, and hooks that tell what was said."""

import shutil

from dpsparfl_jax import records
from dpsparfl_jax.recording import campaign
from dpsparfl_jax.recording.points import Hooks, Point
from tests import toy

EVERY = 2


def settings(seed=0, **changes):
    perf = {"checkpoint_every": EVERY, **changes.pop("perf", {})}
    return toy.settings(seed, perf=perf, **changes)


class Log:
    """Hooks for tests: a clock that ticks, what was said, a stop after some calls."""

    def __init__(self, stop_after=10**9):
        self.said, self.ticks, self.calls, self.stop_after = [], 0.0, 0, stop_after

    def clock(self):
        self.ticks += 1.0
        return self.ticks

    def stop(self):
        self.calls += 1
        return self.calls > self.stop_after

    @property
    def hooks(self):
        return Hooks(self.clock, self.said.append, self.stop)

    @property
    def text(self):
        return "\n".join(self.said)


def run(folder, *points, resume=False, log=None):
    log = log or Log()
    made = [Point(f"p{i}", each, folder / f"p{i}") for i, each in enumerate(points)]
    return campaign.run_points(made, log.hooks, resume=resume), log


RUNS = (settings(0), settings(1, run={"rounds": 5}), settings(2, run={"rounds": 3}))


def unfinished(whole, tmp_path):
    """p0 as if it had been killed just before DONE."""
    folder = tmp_path / "p0"
    shutil.copytree(whole / "p0", folder)
    (folder / records.DONE).unlink()
    return folder
