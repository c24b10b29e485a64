r"""A run with very many clients, planned and trained on one machine.

    python -m benchmarks.large_training --json results.json [--clients=100000]

Clients own glyphs, as many as a law with a heavy tail says. The whole run is done as a
user does it, by `fl.iterate`, and told: seconds until the first round was trained
(ledger, plan, images, compilation), seconds of a round after it, and the most memory
that the process ever held, everything included.
"""

import json
import pathlib
import resource
import time
from typing import Any

import numpy as np
from absl import flags
from tqdm import tqdm

import dpsparfl_jax as fl
from benchmarks import timing
from dpsparfl_jax.data.partition import Iid
from dpsparfl_jax.registry import PARTITIONS
from experiments import cli

_JSON = flags.DEFINE_string("json", "", "write the results to this file")
_CLIENTS = flags.DEFINE_integer("clients", 100_000, "clients", 100)
_CHANNELS = flags.DEFINE_integer("channels", 100, "channels", 1)
_ROUNDS = flags.DEFINE_integer("rounds", 20, "rounds", 2)
_IMAGES = flags.DEFINE_enum("images", "auto", ("auto", "resident", "streamed"), "where")
LEAST, MEAN, LARGEST = 8, 20, 2000  # records of a client


@PARTITIONS.register("heavy_tailed_glyphs")
class HeavyTailed(Iid):
    """Sizes of a log-normal law, cut at both ends; images at random."""

    def sizes(self, settings: fl.DataConfig) -> np.ndarray:
        """The same for every seed."""
        drawn = np.random.default_rng(0).lognormal(0.0, 1.5, settings.num_clients)
        sizes = np.clip(drawn / np.mean(drawn) * MEAN, LEAST, LARGEST)
        return sizes.astype(np.int64)


def settings() -> fl.RunConfig:
    """A cell as in the quickstart, but for its size."""
    return fl.RunConfig(
        data=fl.DataConfig(
            num_clients=_CLIENTS.value,
            partition="heavy_tailed_glyphs",
            test_examples=1,
        ),
        model=fl.ModelConfig(name="small_cnn"),
        training=fl.TrainingConfig(local_steps=5, batch_size=4, learning_rate=0.1),
        privacy=fl.PrivacyConfig(noise_multiplier=2.0),
        wireless=fl.WirelessConfig(
            num_channels=_CHANNELS.value, cycles_per_sample=1e6, downlink="single"
        ),
        schedule=fl.ScheduleConfig(delay_target_s=1.0),
        length=fl.LengthConfig(rounds=_ROUNDS.value, eval_every=_ROUNDS.value),
        perf=fl.PerfConfig(images=_IMAGES.value, cache_dir=""),
    )


def measure() -> dict[str, Any]:
    """Trains, and tells what it took."""
    wanted = settings()
    sizes = HeavyTailed().sizes(wanted.data)
    began, ends = time.perf_counter(), []
    with tqdm(total=_ROUNDS.value, unit="round", disable=None) as bar:
        for row in fl.iterate(wanted):
            ends.append(time.perf_counter())
            accuracy = row["accuracy"]
            bar.update()
    return {
        "clients": _CLIENTS.value,
        "channels": _CHANNELS.value,
        "images": int(sizes.sum()),
        "different_sizes": len(np.unique(sizes)),
        "largest_client": int(sizes.max()),
        "rounds": len(ends),
        "first_round_s": round(ends[0] - began, 1),
        "round_s": round(float(np.median(np.diff(ends))), 2),
        "seconds": round(time.perf_counter() - began, 1),
        "accuracy": accuracy,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> None:
    """Measures, prints, writes."""
    cli.check_output("json", _JSON.value)
    told = measure()
    print("\n".join(f"{name}: {value}" for name, value in told.items()))
    if _JSON.value:
        content = {"machine": timing.machine(), **told}
        pathlib.Path(_JSON.value).write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    cli.run(main)
