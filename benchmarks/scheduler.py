"""How long a round's allocation takes, and how far each solver is from the optimum.

    python -m benchmarks.scheduler --json results.json

Rounds of the paper's cell with random queues; one process, solvers in turn. The gap of
`joint` is the certified one (value against its lower bound), that of the others is
measured against `joint`; both in units of lambda. Start it with OMP_NUM_THREADS=1.
"""

import dataclasses
import json
import pathlib
import statistics
import time
from typing import Any

import numpy as np
from absl import flags
from tqdm import tqdm

from benchmarks import timing
from dpsparfl_jax.planning.planner import Planner
from dpsparfl_jax.privacy.ledger import non_private_ledger
from dpsparfl_jax.registry import SOLVERS
from dpsparfl_jax.runner.run import outline
from dpsparfl_jax.scheduling.problem import RoundProblem
from dpsparfl_jax.scheduling.queues import Queues
from experiments import cli, presets

_JSON = flags.DEFINE_string("json", "", "write the results to this file")
ROWS = ((20, 5, 100), (200, 50, 15), (1000, 100, 7))  # clients, channels, rounds


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
            found = solve(problem)
            times[name].append(time.perf_counter() - start)
            values[name] = found.value
            if name == "joint":
                values["bound"] = found.lower_bound
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


def main() -> None:
    """Measures all rows, prints them and writes JSON."""
    cli.check_output("json", _JSON.value)
    rows = []
    for row in tqdm(ROWS, desc="sizes", disable=None):
        rows += measure(*row)
    for one in rows:
        print(json.dumps(one))
    if _JSON.value:
        results = {"machine": timing.machine(), "rows": rows}
        text = json.dumps(results, indent=1)
        pathlib.Path(_JSON.value).write_text(text + "\n")


if __name__ == "__main__":
    cli.run(main)
