r"""How much memory do microbatches save, and do they move the result?

    python -m benchmarks.microbatches --json results.json

One round of two clients with a convolutional network of 20 million parameters and
batches of 32, on one device: for each `perf.microbatch`, a process of its own tells the
most memory that it ever held, everything included (Python, JAX, compilation), and its
parameters are compared with those of whole batches.
"""

import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from absl import flags
from tqdm import tqdm

import dpsparfl_jax as fl
from benchmarks import timing
from experiments import cli

_JSON = flags.DEFINE_string("json", "", "write the results to this file")
_PARTS = flags.DEFINE_list("parts", "0,8,2,1", "microbatches; 0: whole batches, first")
_WIDTH = flags.DEFINE_integer("width", 512, "of the network; 512: 20M parameters", 1)
_POINT = flags.DEFINE_string("point", "", "a microbatch and a file, for own use")

ROOT = pathlib.Path(__file__).parent.parent


def settings(part: int) -> fl.RunConfig:
    """One round with this microbatch."""
    return fl.RunConfig(
        data=fl.DataConfig(num_clients=4, train_examples=200, test_examples=10),
        model=fl.ModelConfig(name="wide_convolutions"),
        training=fl.TrainingConfig(
            local_steps=2, batch_size=32, learning_rate=0.01, clip_norm=1.0
        ),
        privacy=fl.PrivacyConfig(noise_multiplier=2.0),
        wireless=fl.WirelessConfig(num_channels=2, cycles_per_sample=1e6),
        schedule=fl.ScheduleConfig(delay_target_s=1e4),
        length=fl.LengthConfig(rounds=1),
        perf=fl.PerfConfig(
            padded_sizes=1, devices=1, microbatch=part, eval_batch_size=10
        ),
    )


def register(width: int) -> None:
    """The network: 3 x 3 convolutions, nearly all parameters in the last two."""

    @fl.register_model("wide_convolutions")
    class WideConvolutions(nn.Module):
        num_classes: int = 10

        @nn.compact
        def __call__(self, images: jax.Array) -> jax.Array:
            x = images
            channels = (width // 8, width, 2 * width, 25 * width // 8)
            for count, stride in zip(channels, (2, 2, 1, 2), strict=True):
                x = nn.relu(nn.Conv(count, (3, 3), strides=(stride, stride))(x))
            return nn.Dense(self.num_classes)(x.mean((1, 2)))


def measure_one(part: int, file: str) -> None:
    """Trains, keeps the parameters, prints what it took."""
    register(_WIDTH.value)
    began = time.perf_counter()
    result = fl.simulate(settings(part))
    seconds = time.perf_counter() - began
    leaves = [np.ravel(leaf) for leaf in jax.tree.leaves(result.params)]
    np.save(file, np.concatenate(leaves))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(json.dumps({"peak_mb": peak, "seconds": seconds}))


def measure() -> list[dict[str, Any]]:
    """A row for each microbatch."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        whole = None
        for part in tqdm([int(part) for part in _PARTS.value], disable=None):
            file = pathlib.Path(folder) / f"{part}.npy"
            program = [sys.executable, "-m", "benchmarks.microbatches"]
            flags_of_point = [f"--point={part}:{file}", f"--width={_WIDTH.value}"]
            told = subprocess.run(
                [*program, *flags_of_point],
                cwd=ROOT,
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            ).stdout
            params = np.load(file)
            whole = params if whole is None else whole
            moved = float(np.max(np.abs(params - whole)))
            row = json.loads(told.splitlines()[-1])
            rows.append(
                {"microbatch": part, "parameters": params.size, "moved": moved, **row}
            )
    return rows


def main() -> None:
    """Measures, prints, writes."""
    if _POINT.value:
        part, _, file = _POINT.value.partition(":")
        measure_one(int(part), file)
        return
    cli.check_output("json", _JSON.value)
    rows = measure()
    print(f"{rows[0]['parameters']:,} parameters, batches of 32:")
    for row in rows:
        print(
            f"microbatch {row['microbatch']}: {row['peak_mb']:.0f} MB at most, "
            f"{row['seconds']:.0f} s, parameters moved by {row['moved']:.1e} at most"
        )
    if _JSON.value:
        content = {"machine": timing.machine(), "rows": rows}
        pathlib.Path(_JSON.value).write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    cli.run(main)
