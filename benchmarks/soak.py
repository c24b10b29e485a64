"""Long runs: does memory stay flat, and is everything compiled once?

    python -m benchmarks.soak --json results.json

plans 5,000 rounds and trains 1,000 rounds of a small network on drawn characters, and
watches the process's memory and its compilations on the way. Some ten minutes.
"""

import json
import os
import pathlib
import time
from typing import Any

import jax
import numpy as np
from absl import flags
from tqdm import tqdm

import dpsparfl_jax as fl
from benchmarks import timing
from dpsparfl_jax.errors import InputError
from experiments import cli

_JSON = flags.DEFINE_string("json", "", "write the results to this file")
_PLANNED = flags.DEFINE_integer("planned", 5000, "rounds to plan", lower_bound=10)
_TRAINED = flags.DEFINE_integer("trained", 1000, "rounds to train", lower_bound=10)
_COMPILED = "/jax/core/compile/backend_compile_duration"


def settings(rounds: int) -> fl.RunConfig:
    """A private run whose budgets last."""
    return fl.RunConfig(
        data=fl.DataConfig(num_clients=20, train_examples=200, test_examples=10),
        model=fl.ModelConfig(name="small_cnn"),
        training=fl.TrainingConfig(local_steps=2, batch_size=4, learning_rate=0.05),
        privacy=fl.PrivacyConfig(
            noise_multiplier=4.0, epsilon_lo=500.0, epsilon_hi=1000.0, accountant="rdp"
        ),
        wireless=fl.WirelessConfig(cycles_per_sample=1e6),
        schedule=fl.ScheduleConfig(delay_target_s=1.0),
        length=fl.LengthConfig(rounds=rounds, eval_every=10),
        perf=fl.PerfConfig(devices=1),
    )


def memory_mb() -> float:
    """What this process holds now."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def growth(samples: list[float]) -> float:
    """Share by which memory grows from the second fifth of a run to its last fifth."""
    fifth = max(1, len(samples) // 5)
    early = float(np.median(samples[fifth : 2 * fifth]))
    return float(np.median(samples[-fifth:])) / early - 1


def plan(rounds: int) -> dict[str, Any]:
    """Plans a long run; memory before and after."""
    before, began = memory_mb(), time.perf_counter()
    schedule = fl.plan(settings(rounds))
    if schedule.num_rounds != rounds:
        raise InputError(f"budgets end after {schedule.num_rounds} rounds.")
    sizes = [np.asarray(part).nbytes for part in vars(schedule).values()]
    return {
        "rounds": rounds,
        "seconds": time.perf_counter() - began,
        "memory_mb": [before, memory_mb()],
        "schedule_mb": sum(sizes) / 1e6,
    }


def train(rounds: int) -> dict[str, Any]:
    """Trains a long run; memory after every round, compilations by round."""
    compiled: list[int] = []
    done = 0

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == _COMPILED:
            compiled.append(done)

    jax.monitoring.register_event_duration_secs_listener(listen)
    samples, began = [], time.perf_counter()
    for _ in tqdm(fl.iterate(settings(rounds)), total=rounds, disable=None):
        done += 1
        samples.append(memory_mb())
    # The last round has a program of its own: the table of clients.
    late = [number for number in compiled if rounds // 10 < number < rounds - 3]
    return {
        "rounds": done,
        "seconds": time.perf_counter() - began,
        "memory_mb": [samples[len(samples) // 5], samples[-1], max(samples)],
        "memory_growth": growth(samples),
        "programs": len(compiled),
        "compiled_late": len(late),
    }


def main() -> int:
    """Measures, prints, writes."""
    cli.check_output("json", _JSON.value)
    results = {"plan": plan(_PLANNED.value), "train": train(_TRAINED.value)}
    planned, trained = results["plan"], results["train"]
    print(
        f"planned {planned['rounds']} rounds in {planned['seconds']:.0f} s; memory "
        f"{planned['memory_mb'][0]:.0f} -> {planned['memory_mb'][1]:.0f} MB"
    )
    print(
        f"trained {trained['rounds']} rounds in {trained['seconds']:.0f} s; memory "
        f"{trained['memory_mb'][0]:.0f} -> {trained['memory_mb'][1]:.0f} MB "
        f"({trained['memory_growth']:+.2%}); {trained['programs']} programs, "
        f"{trained['compiled_late']} of them compiled late (not in the last round)"
    )
    if _JSON.value:
        content = {"machine": timing.machine(), **results}
        pathlib.Path(_JSON.value).write_text(json.dumps(content, indent=1) + "\n")
    return int(trained["memory_growth"] > 0.02 or trained["compiled_late"] > 0)


if __name__ == "__main__":
    cli.run(main)
