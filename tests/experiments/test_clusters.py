"""Do Ray and Slurm's jobs give the bits of one process, also when workers are killed?

Real workers, on loopback: Ray's own, and submitit's processes of this machine.
"""

import importlib.util
import os
import signal
import subprocess
import sys
import time

import pytest

from benchmarks import run_facts
from dpsparfl_jax import records
from experiments.engines import live_page
from tests.commands import ROOT
from tests.experiments.small_runs import SMALL, run

SWEEP = "experiments.sweep"
GRID = ("--grid=schedule.policy=random,round_robin;seed=0,1", "--length.rounds=5")
NAMES = [
    f"policy={policy},seed={s}" for policy in ("random", "round_robin") for s in "01"
]

# The first worker that comes to some round gets a signal, once.
STRUCK = """
import os, pathlib, signal
from dpsparfl_jax.runner import folder_sink

def add(self, record, add=folder_sink.FolderSink.add):
    add(self, record)
    if record.row["round"] == {round}:
        try:
            pathlib.Path({marker!r}).touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.{signal})

folder_sink.FolderSink.add = add
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory, cache):
    """The sweep by one process."""
    out = tmp_path_factory.mktemp("alone") / "o"
    done = run(out, *GRID, cache, program=SWEEP)
    assert done.returncode == 0, done.stderr
    return {name: run_facts.facts(out / name) for name in NAMES}


def sweep(out, cache, *flags):
    command = [sys.executable, "-m", SWEEP, f"--out={out}", *SMALL, *GRID, cache]
    return subprocess.run(
        [*command, *flags],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )


def struck(folder, name, when):
    plugin = folder / f"striking_{when}.py"
    marker = str(folder / f"struck_{when}")
    plugin.write_text(STRUCK.format(marker=marker, signal=name, round=when))
    return f"--plugin={plugin}"


@pytest.mark.slow
def test_any_engine_goes_on_with_what_another_has_begun(tmp_path, cache, alone):
    """One story, because every start takes seconds.

    A job is preempted (Slurm says so by SIGUSR2, and submitit acts on it), goes on, and
    loses its worker for good; Ray goes on with it, if it is installed, and loses a
    worker, too; else one process does.
    """
    pytest.importorskip("submitit")
    out = tmp_path / "o"
    strikes = (struck(tmp_path, "SIGUSR2", 2), struck(tmp_path, "SIGKILL", 3))
    engine = ("--engine=slurm", "--slurm.here", "--workers=1", "--retries=0")
    done = sweep(out, cache, *engine, *strikes)
    assert (tmp_path / "struck_3").exists(), done.stderr  # so it went on after round 2
    assert done.returncode == 2  # all runs failed for one reason
    assert "its worker was lost 1 time(s)" in done.stderr
    assert "Traceback" not in done.stderr
    assert "2x" in (out / live_page.PAGE).read_text()  # begun twice
    if importlib.util.find_spec("ray"):
        engine = ("--engine=ray", "--workers=2", struck(tmp_path, "SIGKILL", 4))
        done = sweep(out, cache, *engine)
        assert done.stderr.count("another one goes on") == 1
    else:
        done = run(out, *GRID, cache, program=SWEEP)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {n: run_facts.facts(out / n) for n in NAMES} == alone
    assert (out / "report.html").is_file()


@pytest.mark.slow
def test_asked_to_stop_workers_stop_after_the_rounds_under_way(tmp_path, cache):
    pytest.importorskip("submitit")
    out = tmp_path / "o"
    command = [sys.executable, "-m", SWEEP, f"--out={out}", *SMALL, cache]
    long = ("--grid=seed=0,1", "--length.rounds=500", "--privacy.noise=false")
    engine = ("--engine=slurm", "--slurm.here", "--workers=1")
    process = subprocess.Popen(
        [*command, *long, "--schedule.policy=random", *engine],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not records.read_rounds(out / "seed=0") and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "Stopped: seed=0, seed=1; the same command goes on." in errors
    assert "Traceback" not in errors
    assert 0 < len(records.read_rounds(out / "seed=0")) < 500
