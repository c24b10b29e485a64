r"""How long does one round of the paper take, now and at an earlier commit?

    python -m benchmarks.paper_round --old=COMMIT --json results.json

A round is five clients, 60 local steps each, batches of ten expected records and three
tenths of the MNIST network's gradient. Both commits run in the same minutes: each has a
process that compiles its round once (by its own `benchmarks.engine`, on as many CPU
devices as its users get), and they take turns. The time to evaluate 10,000 images of
MNIST's shape is measured in the same way. All times are seconds. `--model` and
`--batch` measure a round of another network, or of other batches.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

from absl import flags
from tqdm import tqdm

from benchmarks import timing
from benchmarks.run_facts import ROOT
from experiments import cli

_OLD = flags.DEFINE_string("old", None, "commit to compare with", required=True)
_JSON = flags.DEFINE_string("json", "", "write the results to this file")
_REPEATS = flags.DEFINE_integer("repeats", 7, "timed rounds of each commit", 1)
_STEPS = flags.DEFINE_integer("steps", 60, "local steps of a client", 1)

_MODEL = flags.DEFINE_string("model", "mnist_cnn", "name of the network")
_BATCH = flags.DEFINE_integer("batch", 10, "expected examples of a step", 1)

KEEP_RATE, TEST_IMAGES = 0.3, 10_000

# It answers every line ("round" or "evaluation") with the seconds that this took. Only
# names that both commits have are used.
_WORKER = """
import sys, time
answers, sys.stdout = sys.stdout, sys.stderr
import jax, numpy as np
from benchmarks import engine
from dpsparfl_jax.training import cohort, evaluate
from dpsparfl_jax.types import EvalRows, ImageSet
model, batch, keep_rate, steps, images = sys.argv[1:]
images = int(images)
shared, mesh = {}, None
if hasattr(engine, "use_devices"):
    engine.use_devices()
    mesh = cohort.task_mesh()
    shared = {"mesh": mesh}
setting = engine.Setting(model, int(batch), float(keep_rate))
play_round = engine.engine(setting, int(steps))
measure = evaluate.make_evaluate(setting.net, setting.shape, **shared)
shape = (images, *setting.shape)
data = ImageSet(
    np.random.default_rng(1).integers(0, 256, shape, np.uint8),
    np.zeros(images, np.int32),
)
params = jax.tree.map(lambda leaf: leaf[None], setting.params)
test = EvalRows(np.arange(images, dtype=np.int32)[None], np.ones(1, bool))
params, data, test = cohort.replicate((params, data, test), mesh)
work = {
    "round": play_round,
    "evaluation": lambda: jax.block_until_ready(measure(params, data, test)),
}
for run in work.values():
    run()
print(len(jax.devices()), file=answers, flush=True)
for line in sys.stdin:
    start = time.perf_counter()
    work[line.strip()]()
    print(time.perf_counter() - start, file=answers, flush=True)
"""


class CommitWorker:
    """A process that runs the code of one checkout."""

    def __init__(self, checkout: pathlib.Path) -> None:
        """Starts it."""
        settings = (_MODEL.value, _BATCH.value, KEEP_RATE, _STEPS.value, TEST_IMAGES)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _WORKER, *map(str, settings)],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answer(self) -> float:
        """Waits for its next number; the first says how many devices it uses."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the code of one commit failed; see above.")
        return float(line)

    def seconds(self, work: str) -> float:
        """Has it done once."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{work}\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.communicate()


def compare(old: pathlib.Path, new: pathlib.Path) -> dict[str, Any]:
    """Seconds of both checkouts, in turns that start with the one and the other."""
    commits = {"old": CommitWorker(old), "new": CommitWorker(new)}
    try:
        devices = {name: int(worker.answer()) for name, worker in commits.items()}
        results: dict[str, Any] = {"devices": devices}
        for work in ("round", "evaluation"):
            times: dict[str, list[float]] = {name: [] for name in commits}
            order = list(commits)
            for _ in tqdm(range(_REPEATS.value), desc=work, disable=None):
                for name in order:
                    times[name].append(commits[name].seconds(work))
                order.reverse()
            results[work] = _summary(times)
    finally:
        for worker in commits.values():
            worker.close()
    return results


def _summary(times: dict[str, list[float]]) -> dict[str, Any]:
    """Medians, quartiles, and how many times faster the new code is."""
    spreads = {name: timing.spread(values) for name, values in times.items()}
    columns: dict[str, Any] = {}
    for name, seconds in spreads.items():
        columns[name] = round(seconds.median, 4)
        columns[f"{name}_spread"] = [round(seconds.low, 4), round(seconds.high, 4)]
    ratio = spreads["old"].median / spreads["new"].median
    return columns | {"old_over_new": round(ratio, 2)}


def main() -> None:
    """Compares, prints, writes."""
    cli.check_output("json", _JSON.value)
    with tempfile.TemporaryDirectory() as scratch:
        checkout = pathlib.Path(scratch) / "checkout"
        subprocess.run(["git", "clone", "-q", ROOT, checkout], check=True)
        subprocess.run(["git", "checkout", "-q", _OLD.value], cwd=checkout, check=True)
        results = compare(checkout, ROOT)
    results = {
        "machine": timing.machine(),
        "old": _OLD.value,
        "model": _MODEL.value,
        "batch": _BATCH.value,
        "steps": _STEPS.value,
        "repeats": _REPEATS.value,
        **results,
    }
    print(json.dumps(results))
    if _JSON.value:
        text = json.dumps(results, indent=1)
        pathlib.Path(_JSON.value).write_text(text + "\n")


if __name__ == "__main__":
    cli.run(main)
