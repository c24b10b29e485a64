"""Which runs are the same to the bit on any number of devices, and what does it cost?

    python -m benchmarks.equal_bits --json results.json

Whole runs of a small convolutional network on drawn characters, eight clients a round,
for every way to run tasks and for one to eight devices (forced ones, on a CPU). A run
is compared with the same way on one device: every bit of the parameters, of accuracies
and of losses. `cpu_s` is what a round takes of all cores together, which other work on
the machine does not change much; the first round, with compilation, is left out.
"""

import hashlib
import json
import pathlib
import time
from typing import Any

import jax
import numpy as np
from absl import flags
from tqdm import tqdm

from benchmarks import rounds, timing
from dpsparfl_jax import config
from dpsparfl_jax.runner import drive
from dpsparfl_jax.runner.run import Run
from dpsparfl_jax.runner.sinks import MemorySink
from experiments import cli

_JSON = flags.DEFINE_string("json", "", "write the results to this file")
_ROUNDS = flags.DEFINE_integer("rounds", 8, "rounds of a run", lower_bound=2)
_ONLY = flags.DEFINE_multi_string("only", None, "only these ways")
WAYS: dict[str, dict[str, Any]] = {
    "map": {"execution": "map"},
    "chunked": {"execution": "chunked", "chunk_size": 2},
    "chunked, ordered": {
        "execution": "chunked",
        "chunk_size": 2,
        "ordered_sums": True,
    },
    "vmap": {"execution": "vmap"},
    "vmap, ordered": {"execution": "vmap", "ordered_sums": True},
}
# Of eight tasks; on three devices some are left over. A chunk needs two a device.
DEVICES = {"map": (1, 2, 3, 4, 8)}
_WITH_CHUNKS = (1, 2, 4)


def settings(perf: dict[str, Any]) -> config.RunConfig:
    """A private run of a few rounds."""
    return config.RunConfig(
        data=config.DataConfig(num_clients=12, train_examples=100, test_examples=40),
        model=config.ModelConfig(name="small_cnn"),
        training=config.TrainingConfig(
            local_steps=5, batch_size=8, learning_rate=0.2, clip_norm=4.0
        ),
        privacy=config.PrivacyConfig(noise_multiplier=1.5),
        wireless=config.WirelessConfig(num_channels=8, cycles_per_sample=1e6),
        schedule=config.ScheduleConfig(delay_target_s=1.0, policy="random"),
        length=config.LengthConfig(rounds=_ROUNDS.value),
        perf=config.PerfConfig(padded_sizes=2, eval_batch_size=64, **perf),
    )


def train(perf: dict[str, Any]) -> dict[str, Any]:
    """Bits and time of a run, and its parameters."""
    sink = MemorySink()
    hooks = drive.Hooks(_ignore, _ignore, clock=time.process_time, progress=False)
    outcome = drive.drive([Run("run", settings(perf))], [sink], hooks)
    for reason in outcome.failed.values():
        raise reason
    assert sink.state is not None
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(sink.state.params)]
    told = [[row["accuracy"], row["loss"]] for row in sink.rounds]
    digest = hashlib.sha256(json.dumps(told).encode())
    for leaf in leaves:
        digest.update(leaf.tobytes())
    mean = float(np.mean([row["device_s"] for row in sink.rounds[1:]]))
    return {"bits": digest.hexdigest()[:12], "cpu_s": mean, "params": leaves}


def _ignore(sentence: str) -> None:
    """Only results are of interest."""


def main() -> int:
    """Measures, prints, writes."""
    cli.check_output("json", _JSON.value)
    rounds.use_devices(8)
    found: list[dict[str, Any]] = []
    for way in tqdm(_ONLY.value or WAYS, disable=None):
        first: Any = None
        for devices in DEVICES.get(way, _WITH_CHUNKS):
            got = train({**WAYS[way], "devices": devices})
            params = got.pop("params")
            first = first or (got["bits"], params)
            far = max(
                float(np.max(np.abs(a - b)))
                for a, b in zip(first[1], params, strict=True)
            )
            same = got["bits"] == first[0]
            found.append({"way": way, "devices": devices, "equal": same, **got})
            found[-1]["largest_difference"] = far
            print(json.dumps(found[-1]), flush=True)
    if _JSON.value:
        content = {"machine": timing.machine(), "rounds": _ROUNDS.value, "runs": found}
        pathlib.Path(_JSON.value).write_text(json.dumps(content, indent=1) + "\n")
    promised = [one for one in found if one["way"] in ("map", "chunked, ordered")]
    return int(not all(one["equal"] for one in promised))


if __name__ == "__main__":
    cli.run(main)
