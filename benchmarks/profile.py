r"""Where does the time of a local step go?

    python -m benchmarks.profile --json results.json --picture profile.png

runs rounds of the engine under JAX's profiler and adds up its operations by part:

forward, backward   the network and its gradient by the outputs of layers
norms, sums         norms of the examples' gradients, and their clipped sum
windows             patches of a convolution's input
noise and update    noise on the sum, and the step of the local optimizer
sampling, mask      Poisson batches and their images; which coordinates are kept
diagnosis           what a run records of a step
aggregation         the server's mean over clients, and its step
other               operations of no part, and those that XLA gave no path
host                time in which a device runs no operation: Python and the runtime

Figures are milliseconds of one local step of one client. Clients that are spread over
several devices run at the same time: then all figures, also `measured`, are summed over
devices (core-milliseconds). A fused operation counts for the part of its last
operation. `traced` is the wall time of the profiled rounds, which the parts should add
up to, and `measured` that of rounds without the profiler. The parts add up to more than
`traced` where one device runs several operations at a time. Evaluation is timed by
itself, since a run chooses how often it is done.
"""

import json
import pathlib
import statistics
import tempfile
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from absl import flags
from matplotlib.figure import Figure
from tqdm import tqdm

from benchmarks import rounds, timing, traces
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.training import cohort, evaluate, models
from dpsparfl_jax.types import EvalRows
from experiments import cli

EVALUATED = 10_000
LARGEST = 25

_JSON = flags.DEFINE_string("json", "", "write the results to this file")
_PICTURE = flags.DEFINE_string("picture", "", "draw the parts into this file")
_MODEL = flags.DEFINE_string("model", "mnist_cnn", "name of the network")
_BATCH = flags.DEFINE_integer("batch", 16, "expected examples of a step", 1)
_CLIENTS = flags.DEFINE_integer("clients", 2, "clients of a round", 1)
_STEPS = flags.DEFINE_integer("steps", 20, "local steps of a round", 1)
_DEVICES = flags.DEFINE_integer("devices", 1, "devices that share the clients", 1)
_ROUNDS = flags.DEFINE_integer("rounds", 3, "rounds under the profiler", 1)


def profile(made: rounds.Round, size: rounds.Size, count: int) -> dict[str, Any]:
    """Parts, largest operations and wall times, in ms of a local step and client."""
    elapsed = rounds.seconds(made.work, count)
    with tempfile.TemporaryDirectory() as folder:
        wall = _trace(made.work, count, folder)
        events = traces.read_events(pathlib.Path(folder))
    elapsed += rounds.seconds(made.work, count)
    program = traces.read_program(made.compiled.as_text())
    found = traces.times(events, program, wall * 1e6, size.devices)
    if not found.operations:
        raise InputError("the profiler of this backend lists no operations.")
    steps = size.clients * size.steps
    per_step = {
        part: value / 1e3 / (steps * count)
        for part, value in traces.by_part(found, program).items()
    }
    joined = traces.over_branches(found, program)
    largest = sorted(joined.items(), key=lambda item: -item[1])[:LARGEST]
    return {
        "parts": per_step,
        "explained": sum(per_step.values()),
        "traced": wall * 1e3 * size.devices / (steps * count),
        "measured": statistics.median(elapsed) * 1e3 * size.devices / steps,
        "largest": [
            {
                "operation": name,
                "part": traces.part_of(path),
                "ms": value / 1e3 / (steps * count),
                "path": path,
            }
            for (name, path), value in largest
        ],
    }


def _trace(work: timing.Contender, count: int, folder: str) -> float:
    """Runs rounds under the profiler; returns the seconds that they took."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # Python's own calls are not asked for, and cost
    with jax.profiler.trace(folder, profiler_options=options):
        start = time.perf_counter()
        for _ in range(count):
            work()
        return time.perf_counter() - start


def evaluation_ms(net: Any, shape: tuple[int, ...], params: Any) -> float:
    """Milliseconds of judging one model by 10,000 images, on one device."""
    judge = evaluate.make_evaluate(net, shape)
    rows = EvalRows(np.arange(EVALUATED, dtype=np.int32)[None], np.ones(1, bool))
    batched = jax.tree.map(lambda leaf: leaf[None], params)
    batched, data, rows = cohort.replicate(
        (batched, rounds.random_images(shape, EVALUATED), rows)
    )
    elapsed = rounds.seconds(lambda: jax.device_get(judge(batched, data, rows)), 3)
    return statistics.median(elapsed) * 1e3


def table(results: Mapping[str, Any]) -> str:
    """The results for a terminal."""
    unit = "core-ms" if results["devices"] > 1 else "ms"
    total = results["explained"]
    lines = [f"{'part':<18}{unit:>9}{'share':>8}   of a local step and client"]
    lines += [
        f"{part:<18}{value:9.3f}{value / total:8.1%}"
        for part, value in results["parts"].items()
    ]
    lines += [f"{'sum of parts':<18}{total:9.3f}{1:8.1%}"]
    for name, about in (
        ("traced", "wall time under the profiler"),
        ("measured", "wall time without it"),
    ):
        value = results[name]
        lines.append(f"{name:<18}{value:9.3f}{value / total:8.1%}   {about}")
    lines.append(
        f"{'evaluation':<18}{results['evaluation_ms']:9.1f}{'':8}   "
        f"of {EVALUATED:,} images, once"
    )
    lines += ["", f"{'largest operations':<34}{'part':<18}{unit:>9}{'share':>8}"]
    lines += [
        f"{each['operation'][:33]:<34}{each['part']:<18}{each['ms']:9.3f}"
        f"{each['ms'] / total:8.1%}   {_end_of(each['path'])}"
        for each in results["largest"]
    ]
    return "\n".join(lines)


def _end_of(path: str) -> str:
    """The last words of a path, which tell operations apart."""
    return "/".join(path.split("/")[-3:])


def picture(results: Mapping[str, Any]) -> Figure:
    """Horizontal bars, one a part, the longest on top."""
    parts = sorted(results["parts"].items(), key=lambda item: item[1])
    parts = [(name, value) for name, value in parts if value > 0]
    total, unit = results["explained"], "core-ms" if results["devices"] > 1 else "ms"
    figure = Figure(figsize=(7, 0.8 + 0.36 * len(parts)), layout="constrained")
    axes = figure.add_subplot(xlabel=f"{unit} of a local step and client")
    bars = axes.barh(
        [name for name, _ in parts],
        [value for _, value in parts],
        color=["0.6" if name == traces.HOST else "C0" for name, _ in parts],
    )
    labels = [f"{value:.2f} ({value / total:.1%})" for _, value in parts]
    axes.bar_label(bars, labels, padding=3, fontsize="small")
    axes.set_xlim(0, 1.22 * parts[-1][1])
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(
        f"{results['model']}, b = {results['batch']}, {results['device']} x "
        f"{results['devices']}: parts {total:.2f}, measured "
        f"{results['measured']:.2f} {unit}",
        fontsize="medium",
    )
    return figure


def main() -> None:
    """Profiles, prints the table, and writes JSON and picture."""
    cli.check_output("json", _JSON.value)
    cli.check_output("picture", _PICTURE.value)
    if _PICTURE.value:
        cli.check_picture(_PICTURE.value)
    rounds.use_devices(_DEVICES.value)
    size = rounds.Size(
        _BATCH.value, _STEPS.value, _CLIENTS.value, devices=_DEVICES.value
    )
    shape, net = rounds.image_shape(_MODEL.value), models.make_model(_MODEL.value)
    with tqdm(total=3, desc="compile", disable=None) as bar:
        made = rounds.make_round(net, shape, size)
        bar.update()
        bar.set_description("profile")
        found = profile(made, size, _ROUNDS.value)
        bar.update()
        bar.set_description("evaluate")
        judged = evaluation_ms(net, shape, made.params)
        bar.update()
    results = {
        "machine": timing.machine(),
        "model": _MODEL.value,
        "device": jax.devices()[0].device_kind,
        **size._asdict(),
        **found,
        "evaluation_ms": judged,
    }
    print(table(results))
    if _JSON.value:
        text = json.dumps(results, indent=1)
        pathlib.Path(_JSON.value).write_text(text + "\n")
    if _PICTURE.value:
        picture(results).savefig(_PICTURE.value, dpi=150)


if __name__ == "__main__":
    cli.run(main)
