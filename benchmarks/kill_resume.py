"""Runs killed at random moments and resumed: are they the same to the bit?

    python -m benchmarks.kill_resume --kills 20 --json results.json

One small run goes through undisturbed. Then it is started again and again, killed
(SIGKILL) at a moment drawn uniformly from its whole life, start-up included, and
resumed by a new process; records (but for wall times), client table and parameters must
be equal.
"""

import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

from absl import flags
from tqdm import tqdm

from benchmarks import run_facts, timing
from dpsparfl_jax import records
from experiments import cli

_JSON = flags.DEFINE_string("json", "", "write the results to this file")
_KILLS = flags.DEFINE_integer("kills", 20, "runs to kill and resume", lower_bound=1)
_SEED = flags.DEFINE_integer("seed", 0, "seed of the moments")
SMALL = (
    "--preset=quickstart",
    "--schedule.policy=dp_sparfl",
    "--length.rounds=30",
    "--perf.checkpoint_every=3",
)


def command(folder: pathlib.Path, settings: tuple[str, ...], *more: str) -> list[str]:
    """`experiments.run` into this folder."""
    program = [sys.executable, "-m", "experiments.run", f"--out={folder}"]
    return [*program, *settings, *more]


def finish(folder: pathlib.Path, settings: tuple[str, ...], *more: str) -> float:
    """Runs to the end; returns the seconds."""
    began = time.perf_counter()
    done = subprocess.run(
        command(folder, settings, *more),
        cwd=run_facts.ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode or not (folder / records.DONE).is_file():
        raise RuntimeError(f"the run failed: {done.stderr}")
    return time.perf_counter() - began


def kill_after(folder: pathlib.Path, settings: tuple[str, ...], seconds: float) -> int:
    """Starts a run, kills it after a while; returns the rounds it had recorded."""
    process = subprocess.Popen(
        command(folder, settings, "--resume"),
        cwd=run_facts.ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
    return len(records.read_rounds(folder))


def measure(kills: int, seed: int, settings: tuple[str, ...] = SMALL) -> dict[str, Any]:
    """Kills and resumes so many runs; one row each."""
    moments = random.Random(seed)
    made = []
    with tempfile.TemporaryDirectory() as scratch:
        whole = pathlib.Path(scratch, "whole")
        finish(whole, settings)  # fills the caches
        life = finish(pathlib.Path(scratch, "again"), settings)
        expected = run_facts.facts(whole)
        for number in tqdm(range(kills), desc="kills", disable=None):
            folder = pathlib.Path(scratch, str(number))
            seconds = moments.uniform(0, life)
            rounds = kill_after(folder, settings, seconds)
            finish(folder, settings, "--resume")
            found = run_facts.facts(folder)
            wrong = [name for name in expected if found[name] != expected[name]]
            made.append({"killed_s": seconds, "rounds": rounds, "wrong": wrong})
    equal = sum(not row["wrong"] for row in made)
    return {"life_s": life, "kills": kills, "equal": equal, "rows": made}


def main() -> int:
    """Measures, prints, writes."""
    cli.check_output("json", _JSON.value)
    found = measure(_KILLS.value, _SEED.value)
    for row in found["rows"]:
        verdict = f"DIFFERS in {', '.join(row['wrong'])}" if row["wrong"] else "equal"
        print(
            f"killed after {row['killed_s']:5.1f} s, {row['rounds']:3d} rounds "
            f"recorded: {verdict}"
        )
    print(f"{found['equal']} of {found['kills']} equal the undisturbed run.")
    if _JSON.value:
        content = {"machine": timing.machine(), **found}
        pathlib.Path(_JSON.value).write_text(json.dumps(content, indent=1) + "\n")
    return int(found["equal"] < found["kills"])


if __name__ == "__main__":
    cli.run(main)
