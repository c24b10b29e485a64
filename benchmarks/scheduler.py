r"""How long a round's allocation takes, and how far each solver is from the optimum.

    python -m benchmarks.scheduler --json results.json [--old=COMMIT]

Rounds of the paper's cell with random queues; one process, solvers in turn. The gap of
`joint` is the certified one (value against its lower bound), that of the others is
measured against `joint`; both in units of lambda. Start it with OMP_NUM_THREADS=1.

With `--old`, an earlier commit solves the same rounds by `joint` in turn, and both plan
whole runs: 50 rounds of 1000 clients and 100 channels, and every sixth schedule
behind the figures, as `experiments.figures` has them made: by all cores, if the commit
can do that (epsilon curves are kept from the first turn).
"""

import dataclasses
import json
import os
import pathlib
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
from absl import flags
from tqdm import tqdm

from benchmarks import timing
from benchmarks.run_facts import ROOT
from dpsparfl_jax.planning.planner import Planner
from dpsparfl_jax.privacy.ledger import non_private_ledger
from dpsparfl_jax.registry import SOLVERS
from dpsparfl_jax.runner.run import outline
from dpsparfl_jax.scheduling.problem import RoundProblem
from dpsparfl_jax.scheduling.queues import Queues
from experiments import cli, presets

_JSON = flags.DEFINE_string("json", "", "write the results to this file")
_OLD = flags.DEFINE_string("old", "", "commit to compare with")
_SHARED = (  # fields of a round problem that earlier versions have too
    *("weight", "reward", "curvature", "delay_price", "base_delay_s", "snr_per_w"),
    *("energy_j", "max_power_w", "bandwidth_hz", "bits_fixed", "bits_per_rate"),
    *("keep_min", "keep_max"),
)
# Clients, channels, rounds.
ROWS = ((20, 5, 100), (200, 50, 15), (1000, 100, 7))
COMPARED = (*ROWS, (3000, 300, 3))

_EVERY = 6  # of the schedules of the figures, one is planned

# It answers every line with seconds and a value. Only names of both commits are used.
_WORKER = (
    f"EVERY = {_EVERY}"
    + """
import sys, time
answers, sys.stdout = sys.stdout, sys.stderr
import dataclasses, pathlib, pickle, tempfile
import numpy as np
from dpsparfl_jax.planning import planner
from dpsparfl_jax.privacy.ledger import non_private_ledger
from dpsparfl_jax.scheduling.joint import solve_joint
from dpsparfl_jax.scheduling.problem import RoundProblem
from dpsparfl_jax.types import ModelSize
from experiments import presets
from experiments.paper import run_tables, sweeps
try:
    from experiments.paper import plans  # by several processes
except ImportError:
    plans = None

def solve(path):
    with open(path, "rb") as file:
        return solve_joint(RoundProblem(**pickle.load(file))).value

def large():
    base = presets.get_preset("paper_mnist").settings
    radio = dataclasses.replace(base.wireless, num_channels=100)
    length = dataclasses.replace(base.length, rounds=50)
    settings = dataclasses.replace(base, wireless=radio, length=length)
    model, ledger = ModelSize(1_663_370, 618), non_private_ledger(1000, 10**6)
    made = planner.Planner(settings, np.full(1000, 1000), model, ledger)
    planner.delay_warning(made)
    return planner.plan(made).num_rounds

def figures():
    chosen = []
    for name in sweeps.SWEEPS:
        if not name.startswith(("robust", "accuracy")):  # not in earlier commits
            chosen += [run.planned for run in sweeps.runs_of(name, "full", {})]
    chosen = chosen[::EVERY]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        if plans is not None:
            plans.plan_all(chosen, folder)
        for settings in chosen:
            (plans or run_tables).plan_once(settings, folder)
    return len(chosen)

work = {"large": large, "figures": figures}
print("ready", file=answers, flush=True)
for line in sys.stdin:
    what = line.strip()
    start = time.perf_counter()
    value = work[what]() if what in work else solve(what)
    print(time.perf_counter() - start, value, file=answers, flush=True)
"""
)


def rounds(num_clients: int, num_channels: int, count: int) -> list[RoundProblem]:
    """Problems of one cell: fresh fading, random fairness queues, delay near target."""
    preset = presets.get_preset("paper_mnist")
    settings = dataclasses.replace(
        preset.settings,
        wireless=dataclasses.replace(
            preset.settings.wireless, num_channels=num_channels
        ),
    )
    planner = Planner(
        settings,
        np.full(num_clients, 1000),
        outline(preset.settings).model,
        non_private_ledger(num_clients, 1),
    )
    random = np.random.default_rng(0)
    equilibrium, made = planner.queues.delay, []
    for index in range(count):
        planner.queues = Queues(
            random.normal(0, 1, num_clients), equilibrium * random.uniform(0.5, 1.5)
        )
        made.append(planner.observe(index)[0].problem)
    return made


def measure(num_clients: int, num_channels: int, count: int) -> list[dict[str, Any]]:
    """One row a solver."""
    times: dict[str, list[float]] = {name: [] for name in SOLVERS}
    gaps: dict[str, list[float]] = {name: [] for name in SOLVERS}
    tradeoff = presets.get_preset("paper_mnist").settings.schedule.tradeoff
    for problem in rounds(num_clients, num_channels, count):
        values = {}
        for name in SOLVERS:
            solve = SOLVERS.get(name)
            start = time.perf_counter()
            allocation = solve(problem)
            times[name].append(time.perf_counter() - start)
            values[name] = allocation.value
            if name == "joint":
                values["bound"] = allocation.lower_bound
        for name in SOLVERS:
            best = values["bound"] if name == "joint" else values["joint"]
            gaps[name].append((values[name] - best) / tradeoff)
    return [
        {
            "num_clients": num_clients,
            "num_channels": num_channels,
            "solver": name,
            "median_ms": round(statistics.median(times[name]) * 1e3, 3),
            "mean_gap_over_lambda": float(f"{np.mean(gaps[name]):.3g}"),
        }
        for name in SOLVERS
    ]


class CommitPlanner:
    """A process that plans by the code of one checkout."""

    def __init__(self, checkout: pathlib.Path) -> None:
        """Starts it."""
        self.process = subprocess.Popen(
            [sys.executable, "-c", _WORKER],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def _answer(self) -> list[str]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the code of one commit failed; see above.")
        return line.split()

    def timed(self, work: str) -> tuple[float, float]:
        """Seconds that it takes, and its value."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{work}\n")
        self.process.stdin.flush()
        seconds, value = self._answer()
        return float(seconds), float(value)

    def close(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.communicate()


def compare(old: pathlib.Path, new: pathlib.Path) -> list[dict[str, Any]]:
    """Both checkouts in turn: single rounds, a large run, the runs of the figures."""
    commits = {"old": CommitPlanner(old), "new": CommitPlanner(new)}
    jobs: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for clients, channels, count in COMPARED:
            paths = []
            for number, problem in enumerate(rounds(clients, channels, count)):
                path = pathlib.Path(scratch) / f"{clients}_{number}.pickle"
                fields = {k: v for k, v in problem._asdict().items() if k in _SHARED}
                path.write_bytes(pickle.dumps(fields))
                paths.append(str(path))
            jobs[f"joint, {clients} x {channels}"] = paths
        jobs["plan of 50 rounds, 1000 x 100"] = ["large"] * 3
        jobs["schedules of figures"] = ["figures"] * 3
        rows = []
        try:
            for name, work in tqdm(jobs.items(), desc="beside the old", disable=None):
                times: dict[str, list[float]] = {commit: [] for commit in commits}
                apart = 0.0
                for turn, one in enumerate(work):
                    values = {}
                    for commit in sorted(commits, reverse=bool(turn % 2)):
                        seconds, values[commit] = commits[commit].timed(one)
                        times[commit].append(seconds)
                    apart = max(apart, abs(values["old"] - values["new"]))
                medians = {c: statistics.median(t) for c, t in times.items()}
                rows.append(
                    {
                        "what": name,
                        **{f"{c}_s": float(f"{m:.4g}") for c, m in medians.items()},
                        "old_over_new": round(medians["old"] / medians["new"], 2),
                        "values_apart": float(f"{apart:.3g}"),
                    }
                )
        finally:
            for worker in commits.values():
                worker.close()
    return rows


def compare_with(commit: str) -> list[dict[str, Any]]:
    """`compare` with a checkout of an earlier commit."""
    with tempfile.TemporaryDirectory() as scratch:
        checkout = pathlib.Path(scratch) / "checkout"
        subprocess.run(["git", "clone", "-q", ROOT, checkout], check=True)
        subprocess.run(["git", "checkout", "-q", commit], cwd=checkout, check=True)
        return compare(checkout, ROOT)


def main() -> None:
    """Measures all rows, prints them and writes JSON."""
    cli.check_output("json", _JSON.value)
    rows: list[dict[str, Any]] = []
    for row in tqdm(ROWS, desc="sizes", disable=None):
        rows += measure(*row)
    compared = compare_with(_OLD.value) if _OLD.value else []
    for one in rows + compared:
        print(json.dumps(one))
    if _JSON.value:
        results = {"machine": timing.machine(), "rows": rows}
        if compared:
            results |= {"old": _OLD.value, "compared": compared}
        text = json.dumps(results, indent=1)
        pathlib.Path(_JSON.value).write_text(text + "\n")


if __name__ == "__main__":
    cli.run(main)
