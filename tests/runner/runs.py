"""Small runs to record, and hooks that tell what was said."""

import dataclasses
import shutil

from dpsparfl_jax import records
from dpsparfl_jax.runner.drive import Hooks, describe_failure, drive
from dpsparfl_jax.runner.folder_sink import FolderSink
from dpsparfl_jax.runner.run import Run
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
        say = self.said.append
        return Hooks(say, warn=say, clock=self.clock, stop=self.stop)

    @property
    def text(self):
        return "\n".join(self.said)


def sink(folder, each, log, resume=False):
    """Where a run is recorded."""
    say, clock = log.said.append, log.clock
    return FolderSink(folder, each, resume=resume, say=say, warn=say, clock=clock)


def run(folder, *wanted, resume=False, log=None):
    """Records runs as p0, p1, ... and gives the outcome; failures as sentences."""
    log = log or Log()
    runs = [Run(f"p{i}", each) for i, each in enumerate(wanted)]
    sinks = [sink(folder / each.name, each.settings, log, resume) for each in runs]
    outcome = drive(runs, sinks, log.hooks)
    told = {name: describe_failure(why) for name, why in outcome.failed.items()}
    return dataclasses.replace(outcome, failed=told), log


RUNS = (
    settings(0),
    settings(1, length={"rounds": 5}),
    settings(2, length={"rounds": 3}),
)


def unfinished(whole, tmp_path):
    """p0 as if it had been killed just before DONE."""
    folder = tmp_path / "p0"
    shutil.copytree(whole / "p0", folder)
    (folder / records.DONE).unlink()
    return folder
