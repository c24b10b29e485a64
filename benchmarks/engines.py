r"""The same sweep by every engine of this machine: how long, and is it equal?

    python -m benchmarks.engines --json results.json

trains a grid of small points (four policies, twelve seeds, until budgets end) in one
process, by two workers of a Ray cluster that is started for it, and by two job
processes of submitit. Each command starts with empty folders and caches, and its whole
time counts: starting, planning, compiling, training, the report. All engines must leave
the same records and parameters, to the bit.
"""

import json
import pathlib
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
_SEEDS = flags.DEFINE_integer("seeds", 12, "of each of four policies", 1)
_ROUNDS = flags.DEFINE_integer("rounds", 0, "of a run; 0: until budgets end", 0)
_WORKERS = flags.DEFINE_integer("workers", 2, "of Ray and submitit", 1)
_REPEATS = flags.DEFINE_integer("repeats", 1, "turns of every engine", 1)
# The same cell for everybody and small budgets, which end soon.
EQUAL_CLIENTS = (
    *("--privacy.epsilon_hi=5", "--wireless.shadowing_db=0"),
    *("--wireless.cycles_per_sample=1e6", "--schedule.tradeoff=50"),
)


def _flags_of_engines() -> dict[str, list[str]]:
    workers = f"--workers={_WORKERS.value}"
    return {
        "local": [],
        "ray": ["--engine=ray", workers],
        "slurm.here": ["--engine=slurm", "--slurm.here", workers],
    }


def sweep(folder: pathlib.Path, engine: list[str]) -> float:
    """Runs the command; seconds."""
    seeds = ",".join(map(str, range(_SEEDS.value)))
    policies = "schedule.policy=dp_sparfl,delay_min,round_robin,random"
    command = [
        *(sys.executable, "-m", "experiments.sweep", "--preset=quickstart"),
        *(f"--grid={policies};seed={seeds}", f"--length.rounds={_ROUNDS.value}"),
        *EQUAL_CLIENTS,
        *(f"--out={folder / 'runs'}", f"--perf.cache_dir={folder / 'cache'}"),
    ]
    began = time.perf_counter()
    done = subprocess.run(
        command + engine, cwd=run_facts.ROOT, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return time.perf_counter() - began


def measure() -> dict[str, Any]:
    """All engines in turn."""
    engines = _flags_of_engines()
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    equal = dict.fromkeys(engines, True)
    first: dict[str, Any] = {}
    names = list(engines)
    turns = [
        name
        for turn in range(_REPEATS.value)
        for name in names[turn % len(names) :] + names[: turn % len(names)]
    ]
    for name in tqdm(turns, desc="sweeps", disable=None):
        with tempfile.TemporaryDirectory() as scratch:
            seconds[name].append(sweep(pathlib.Path(scratch), engines[name]))
            made = _facts(pathlib.Path(scratch, "runs"))
        first = first or made
        equal[name] &= made == first
    local = timing.spread(seconds["local"]).median
    return {
        "points": len(first),
        "rounds": sum(len(json.loads(facts["rounds"])) for facts in first.values()),
        "engines": {
            name: {
                "seconds": [round(each, 1) for each in seconds[name]],
                "to_local": round(timing.spread(seconds[name]).median / local, 3),
                "equal_to_the_bit": equal[name],
            }
            for name in engines
        },
    }


def _facts(folder: pathlib.Path) -> dict[str, Any]:
    return {
        file.parent.name: run_facts.facts(file.parent)
        for file in sorted(folder.glob(f"*/{records.DONE}"))
    }


def main() -> int:
    """Measures, prints, writes."""
    cli.check_output("json", _JSON.value)
    told = measure()
    print(f"{told['points']} points, {told['rounds']} rounds")
    for name, one in told["engines"].items():
        same = "equal" if one["equal_to_the_bit"] else "NOT EQUAL"
        print(f"{name}: {one['seconds']} s, {one['to_local']}x local, {same}")
    if _JSON.value:
        content = {"machine": timing.machine(), **told}
        pathlib.Path(_JSON.value).write_text(json.dumps(content, indent=1) + "\n")
    return int(not all(one["equal_to_the_bit"] for one in told["engines"].values()))


if __name__ == "__main__":
    cli.run(main)
