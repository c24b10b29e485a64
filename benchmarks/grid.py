"""A grid of runs in one program against the same runs one after another.

    python -m benchmarks.grid --json results.json

24 runs (4 lambdas, 2 ranges of epsilon, 3 seeds) of the quickstart's network on glyphs:
first `experiments.sweep`, then `experiments.run` for each, all with a cache of compiled
programs and epsilon curves that is filled beforehand. Records, client tables and
parameters must be equal to the bit.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from absl import flags
from tqdm import tqdm

from benchmarks import run_facts, timing
from experiments import cli, grid, presets

_JSON = flags.DEFINE_string("json", "", "write the results to this file")
_ROUNDS = flags.DEFINE_integer("rounds", 20, "rounds of a run at most", lower_bound=1)
GRID = "schedule.tradeoff=1,10,50,100;privacy.epsilon_hi=5,10;seed=0,1,2"


def run(program: str, *arguments: str) -> tuple[float, str]:
    """Seconds that a program takes, and what JAX says of its compilations."""
    command = [sys.executable, "-m", f"experiments.{program}", *arguments]
    began = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=run_facts.ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "JAX_LOG_COMPILES": "1"},
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr[-2000:]}")
    return time.perf_counter() - began, done.stderr


def compilations(log: str) -> int:
    """How often the cohort step was compiled, by JAX's own log."""
    return sum(
        "Finished XLA compilation of jit(step)" in line for line in log.split("\n")
    )


def main() -> int:
    """Measures, prints, writes."""
    cli.check_output("json", _JSON.value)
    settings = presets.get_preset("quickstart").settings
    names = [axis.name for axis in grid.parse(GRID)]
    points = grid.expand(settings, grid.parse(GRID)).settings
    rounds = f"--length.rounds={_ROUNDS.value}"
    with tempfile.TemporaryDirectory() as scratch:
        common = ("--preset=quickstart", rounds, f"--perf.cache_dir={scratch}/cache")
        policy = "--schedule.policy=dp_sparfl"
        _, log = run(
            "sweep", *common, policy, f"--grid={GRID}", f"--out={scratch}/first"
        )
        run("run", *common, policy, f"--out={scratch}/warm")
        together, _ = run(
            "sweep", *common, policy, f"--grid={GRID}", f"--out={scratch}/grid"
        )
        single, equal = 0.0, 0
        for point in tqdm(points, desc="single runs", disable=None):
            values = [part.split("=")[1] for part in point.split(",")]
            changes = [f"--{n}={v}" for n, v in zip(names, values, strict=True)]
            out = pathlib.Path(scratch, "single", point)
            seconds, _ = run("run", *common, policy, *changes, f"--out={out}")
            single += seconds
            swept = pathlib.Path(scratch, "grid", point)
            equal += run_facts.facts(out) == run_facts.facts(swept)
    results = {
        "runs": len(points),
        "rounds": _ROUNDS.value,
        "compilations_of_the_step": compilations(log),
        "equal": equal,
        "grid_s": together,
        "one_by_one_s": single,
        "ratio": together / single,
    }
    print(json.dumps(results, indent=1))
    if _JSON.value:
        content = {"machine": timing.machine(), **results}
        pathlib.Path(_JSON.value).write_text(json.dumps(content, indent=1) + "\n")
    return int(equal < len(points))


if __name__ == "__main__":
    cli.run(main)
