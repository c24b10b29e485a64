"""Do several processes train as one does, and does a lost one leave a run to go on?

The processes are real ones, of two devices each, on loopback. Each start takes seconds,
so one story is told: the follower is killed, two go on, process 0 is killed, and one
process alone finishes what is left.
"""

import json
import os
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

from dpsparfl_jax import records
from dpsparfl_jax.records.columns import WALL_TIMES
from dpsparfl_jax.runner.checkpoint import load_params
from experiments import distributed, last_words
from tests.commands import ROOT, assert_refused
from tests.experiments.small_runs import SMALL, run

PLAN = (
    *("--schedule.policy=random", "--length.rounds=8"),
    *("--perf.devices=2", "--perf.tensorboard=false"),
)

# A process that is killed when it has been handed a certain round.
KILLED = """
import os, signal
from dpsparfl_jax.runner import shared_sinks

def add(self, record, add=shared_sinks.{sink}.add):
    if record.row["round"] == {round}:
        os.kill(os.getpid(), signal.SIGKILL)
    add(self, record)

shared_sinks.{sink}.add = add
"""


def start(out, *flags, own=((), ())):
    """Two processes with the same flags and some of their own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "experiments.run", f"--out={out}", *SMALL, *flags]
    command += [
        f"--distributed.coordinator=127.0.0.1:{port}",
        *("--distributed.num_processes=2", "--distributed.heartbeat_s=3"),
    ]
    options = {"cwd": ROOT, "text": True, "env": os.environ | {"JAX_PLATFORMS": "cpu"}}
    return [
        subprocess.Popen(
            [*command, f"--distributed.process_id={number}", *own[number]],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )
        for number in range(2)
    ]


def finish(processes):
    """What both printed, and their exit codes."""
    ended = [process.communicate(timeout=120) for process in processes]
    return [process.returncode for process in processes], ended


def said(output):
    """Lines of ours: Gloo tells who is connected, from threads that mix their lines."""
    lines = (line.strip() for line in output.splitlines())
    ours = (line for line in lines if "peer ranks" not in line)
    return [line for line in ours if line and not line.isdigit()]


def content(folder):
    """Rounds without wall times, clients, and every bit of the parameters."""
    rows = records.read_rounds(folder)
    rows = [{k: v for k, v in row.items() if k not in WALL_TIMES} for row in rows]
    leaves = jax.tree.leaves(load_params(folder))
    clients = (folder / records.CLIENTS).read_text()
    return json.dumps(rows), clients, [np.asarray(leaf).tobytes() for leaf in leaves]


def one_process(out, cache, *flags):
    """What one process with one device makes of the run."""
    done = run(out, *PLAN, cache, "--perf.devices=1", *flags)
    assert done.returncode == 0, done.stderr
    assert "not to the bit" not in done.stdout
    return content(out)


@pytest.fixture(scope="module")
def alone(tmp_path_factory, cache):
    """The whole run."""
    return one_process(tmp_path_factory.mktemp("alone") / "o", cache)


@pytest.mark.slow
def test_a_lost_process_ends_all_and_any_number_goes_on(tmp_path, cache, alone):
    out = tmp_path / "o"
    for lost, sink, when in ((1, "HearingSink", 4), (0, "TellingSink", 7)):
        plugin = tmp_path / f"killed_{lost}.py"
        plugin.write_text(KILLED.format(sink=sink, round=when))
        flags = (*PLAN, cache, f"--plugin={plugin}", *["--resume"] * (not lost))
        codes, ended = finish(start(out, *flags))
        assert (codes[lost], codes[1 - lost]) == (-9, distributed.LOST)
        assert ended[1 - lost][1] == (
            f"Ended, because process {lost} was lost: the same commands with --resume "
            "go on.\n"
        )
        assert said(ended[1][0]) == []  # process 0 speaks for all
        kept = len(records.read_rounds(out))
        assert when - 3 <= kept < 8
    assert "going on after round" in ended[0][0]  # two processes resumed it
    assert one_process(out, cache, "--resume") == alone


TOGETHER = "go together: give all three"
THREE = (
    "--distributed.coordinator=127.0.0.1:1",
    "--distributed.num_processes=2",
    "--distributed.process_id=1",
)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (THREE[:1], TOGETHER),
        (THREE[1:], TOGETHER),
        (["--distributed.bind=127.0.0.1:1"], TOGETHER),
        ([*THREE, "--distributed.auto"], "asks the cluster: leave out"),
        ([*THREE, "--distributed.process_id=2"], "=2 is not below"),
        ([*THREE, "--distributed.coordinator=127.0.0.1"], "is no HOST:PORT"),
        ([*THREE, "--distributed.coordinator=:80"], "is no HOST:PORT"),
        ([*THREE, "--distributed.bind=127.0.0.1:70000"], "bind=127.0.0.1:70000 is no"),
        ([*THREE, "--distributed.num_processes=0"], "num_processes"),
        (
            [*THREE, "--distributed.process_id=0", "--distributed.bind=192.0.2.1:99"],
            "process 0 cannot listen at 192.0.2.1:99",  # an address of documents
        ),
    ],
)
def test_flags_that_do_not_fit_are_refused_before_anybody_is_contacted(flags, message):
    assert_refused(run("unused", *flags), message)


COORDINATOR = "E1117 19:05 1 coordination_service_agent.cc:289] Polled an error\n"
FATAL = f"F1117 19:05 1 client.h:80] {last_words._ENDED}. This most likely "


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("", ""),
        (COORDINATOR, COORDINATOR),  # the process went on
        (FATAL, "Ended, because another process was lost: go on.\n"),
        (
            f"{COORDINATOR}{FATAL} (stopped sending heartbeats):\n12\nThe tasks",
            "Ended, because process 12 was lost: go on.\n",
        ),
        (
            f"{FATAL} {last_words._FIRST_GONE}. Either the leader",
            "Ended, because process 0 was lost: go on.\n",
        ),
        (f"{FATAL}RPC: /xla.{last_words._NOT_MET}\n", "The processes did not meet"),
    ],
)
def test_the_last_words_of_jax_become_a_sentence(written, read):
    assert last_words.describe(written, "go on").startswith(read)
    assert bool(written) == bool(read)
