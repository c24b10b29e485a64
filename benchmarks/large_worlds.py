r"""What very many clients cost on one machine: ledger, plan, memory.

    python -m benchmarks.large_worlds --json results.json [--cases=joint_100k,...]

Clients have sizes with a heavy tail (hundreds of different ones), or all the same.
Each case has a process of its own, so that its largest memory is its own; no image is
read. Epsilon curves are computed anew. Times are of the processor, and beside them of
the clock, which are longer where others use the machine. `round_s` is the median of a
round; `open_s` is all before the first one but the ledger: shapes, world, the price at
which a run starts, and the warning of a delay target that cannot be met.
"""

import concurrent.futures
import dataclasses
import json
import multiprocessing
import pathlib
import resource
import time
from typing import Any, NamedTuple

import numpy as np
from absl import flags
from tqdm import tqdm

import dpsparfl_jax as fl
from benchmarks import timing
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning import planner as planner_lib
from dpsparfl_jax.planning import schedule as schedule_lib
from dpsparfl_jax.privacy import first_ledger
from dpsparfl_jax.registry import PARTITIONS
from dpsparfl_jax.runner.run import Run
from experiments import cli

_JSON = flags.DEFINE_string("json", "", "write the results to this file")
_CASES = flags.DEFINE_list("cases", [], "names of cases; empty: all")
LEAST, MEAN, LARGEST = 16, 96, 20_000  # records of a client


class Case(NamedTuple):
    """One world, and how it is planned."""

    clients: int
    channels: int
    policy: str
    rounds: int
    partition: str = "heavy_tail"


CASES = {
    "joint_1k": Case(1_000, 100, "dp_sparfl", 20),
    "joint_10k": Case(10_000, 500, "dp_sparfl", 3, "iid"),
    "joint_100k": Case(100_000, 100, "dp_sparfl", 20),
    "delay_min_100k": Case(100_000, 100, "delay_min", 5),
    "round_robin_1m": Case(1_000_000, 10, "round_robin", 5),
    "random_1m": Case(1_000_000, 10, "random", 20),
    "random_1m_unequal": Case(1_000_000, 10, "random", 5),
}


@PARTITIONS.register("heavy_tail")
class HeavyTail:
    """Sizes of a log-normal law, cut at both ends; images are not dealt."""

    def sizes(self, settings: fl.DataConfig) -> np.ndarray:
        """The same for every seed."""
        drawn = np.random.default_rng(0).lognormal(0.0, 1.5, settings.num_clients)
        sizes = np.clip(drawn / np.mean(drawn) * MEAN, LEAST, LARGEST)
        return sizes.astype(np.int64)

    def deal(self, settings: fl.DataConfig, sets: Any, seed: int) -> Any:
        """Only plans are made here."""
        raise InputError("clients of heavy_tail own no images.")


def settings_of(case: Case) -> fl.RunConfig:
    """Noise that lets most clients take part, and a cell as in the quickstart."""
    return fl.RunConfig(
        data=fl.DataConfig(
            num_clients=case.clients,
            partition=case.partition,
            train_examples=MEAN,
        ),
        model=fl.ModelConfig(name="small_cnn"),
        training=fl.TrainingConfig(local_steps=10, batch_size=8),
        privacy=fl.PrivacyConfig(noise_multiplier=2.0),
        wireless=fl.WirelessConfig(
            num_channels=case.channels, cycles_per_sample=1e6, downlink="single"
        ),
        schedule=fl.ScheduleConfig(policy=case.policy, delay_target_s=1.0),
        length=fl.LengthConfig(rounds=case.rounds),
        perf=fl.PerfConfig(cache_dir=""),
    )


def measure(name: str) -> dict[str, Any]:
    """Plans one case, step by step."""
    case = CASES[name]
    settings = settings_of(case)
    began = _now()
    run = Run(name, settings).outlined()
    outlined = _now()
    ledger, message = first_ledger.start_ledger(
        settings,
        run.outline.sizes,
        run.outline.capacity,
        run.outline.model.parameters,
    )
    opened = _now()
    planner = run.make_planner(ledger)
    warning = planner_lib.delay_warning(planner)
    ready = _now()
    rounds, ends = [], [ready]
    for plan in planner_lib.stream(planner):
        rounds.append(plan)
        ends.append(_now())
    times = np.diff(ends, axis=0)  # [rounds, 2]
    schedule = schedule_lib.join(
        rounds,
        num_channels=case.channels,
        last_delay_queue=planner.queues.delay,
        affordable=ledger.affordable,
        budget=ledger.budget,
        rate=planner.rates,
        fairness=settings.schedule.fairness,
        epsilon_curve=ledger.curves,
        group=ledger.group,
        reason=planner.reason,
    )
    kept = sum(np.asarray(v).nbytes for v in dataclasses.asdict(schedule).values())
    return {
        "case": name,
        **case._asdict(),
        "different_sizes": len(np.unique(run.outline.sizes)),
        "able": int(np.sum(ledger.affordable > 0)),
        **_seconds("ledger", opened - outlined),
        **_seconds("open", outlined - began + ready - opened),
        **_seconds("round", np.median(times, axis=0)),
        **_seconds("slowest_round", np.max(times, axis=0)),
        **_seconds("plan", ends[-1] - ready),
        "mean_delay_s": float(np.mean(schedule.round_delay_s)),
        "schedule_mb": round(kept / 1e6, 1),
        "largest_memory_mb": _largest_memory_mb(),
        "budgets": message.splitlines()[-1],
        "warning": warning,
    }


def _now() -> np.ndarray:
    return np.array([time.process_time(), time.perf_counter()])


def _seconds(name: str, both: np.ndarray) -> dict[str, float]:
    return {
        f"{name}_s": round(float(both[0]), 3),
        f"{name}_wall_s": round(float(both[1]), 3),
    }


def _largest_memory_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    """Measures, prints and writes JSON."""
    cli.check_output("json", _JSON.value)
    unknown = set(_CASES.value) - set(CASES)
    if unknown:
        raise InputError(
            f"there is no case {sorted(unknown)[0]!r}: choose from {', '.join(CASES)}."
        )
    rows = []
    for name in tqdm(_CASES.value or CASES, desc="cases", disable=None):
        with concurrent.futures.ProcessPoolExecutor(
            1, mp_context=multiprocessing.get_context("spawn")
        ) as fresh:
            rows.append(fresh.submit(measure, name).result())
        print(json.dumps(rows[-1]), flush=True)
    if _JSON.value:
        content = {"machine": timing.machine(), "rows": rows}
        text = json.dumps(content, indent=1)
        pathlib.Path(_JSON.value).write_text(text + "\n")


if __name__ == "__main__":
    cli.run(main)
