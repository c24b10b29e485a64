"""How long do our CPU kernels take, and how long does XLA for the same?

    python -m benchmarks.cpu_kernels --json results.json

Every row is an operation of one local step of the paper's networks, run alone on one
core, by XLA and by the kernels of `dpsparfl_jax/training/cpu`, which take turns:
medians in milliseconds, how many times as fast ours are, and the relative difference of
the two results. Sums of gradients and masked squares are part of neither.
"""

import functools
import json
import os
import pathlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from tqdm import tqdm

from benchmarks import timing
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.training import convolution, cpu_kernels, noise
from experiments import cli

_JSON = flags.DEFINE_string("json", "", "write the results to this file")
_REPEATS = flags.DEFINE_integer("repeats", 15, "timed calls of each", 1)


class Layer(NamedTuple):
    """A convolution of the paper's networks: square images, and all they become."""

    name: str
    batch: int
    side: int
    channels: tuple[int, int]  # in, out
    kernel: int


LAYERS = (
    Layer("MNIST, first", 16, 28, (1, 32), 5),
    Layer("MNIST, second", 16, 14, (32, 64), 5),
    Layer("MNIST, second", 64, 14, (32, 64), 5),
    Layer("CIFAR-10, first", 8, 32, (3, 64), 3),
    Layer("CIFAR-10, second", 8, 16, (64, 128), 3),
    Layer("CIFAR-10, third", 8, 8, (128, 256), 3),
    Layer("CIFAR-10, third", 2, 8, (128, 256), 3),
)
DENSE = 3136 * 512  # weights of the MNIST network's large layer
KEEP_RATES = (0.3, 0.5, 1.0)


class Case(NamedTuple):
    """One operation, by XLA and by us."""

    name: str
    xla: Callable[..., Any]
    own: Callable[..., Any]
    arguments: tuple[Any, ...]


def _normal(number: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(number), shape)


def layer_cases(layer: Layer) -> Iterator[Case]:
    """Output, cotangent of the input and kernel gradients of a convolution."""
    taken, given = layer.channels
    size, margin = layer.kernel, layer.kernel // 2
    geometry = convolution.Geometry(
        (size, size), (1, 1), ((margin, margin), (margin, margin))
    )
    x = jax.nn.relu(_normal(0, layer.batch, layer.side, layer.side, taken))
    d = _normal(1, layer.batch, layer.side, layer.side, given)
    kernel = _normal(2, size, size, taken, given)
    about = f"{layer.name} convolution, b = {layer.batch}"

    def output(x: Any, kernel: Any) -> jax.Array:
        return convolution.convolve(x, kernel, geometry)

    def cotangent(d: Any, kernel: Any) -> jax.Array:
        return jax.vjp(lambda x: output(x, kernel), x)[1](d)[0]

    def own_gradients(x: Any, d: Any) -> jax.Array:
        mask = jnp.ones(kernel.shape)
        return cpu_kernels.kernel_gradients(x, d, mask, (margin, margin))[0]

    if cpu_kernels.can_convolve(kernel.shape, geometry.strides):
        yield _case(f"{about}: output", output, output, x, kernel)
        yield _case(f"{about}: input's cotangent", cotangent, cotangent, d, kernel)
    by_windows = functools.partial(convolution.kernel_gradients, geometry=geometry)
    yield _case(f"{about}: kernel gradients", by_windows, own_gradients, x, d)


def noise_cases() -> Iterator[Case]:
    """Noise on the MNIST network's large layer, at several keep rates."""
    total = _normal(0, DENSE)
    for keep_rate in KEEP_RATES:
        mask = (jax.random.uniform(jax.random.key(1), (DENSE,)) < keep_rate).astype(
            jnp.float32
        )

        def add(total: Any, mask: Any) -> Any:
            return noise.add_noise(jax.random.key(2), total, mask, jnp.float32(1))

        yield _case(f"noise, {DENSE:,} weights, s = {keep_rate}", add, add, total, mask)


def _case(
    name: str, xla: Callable[..., Any], own: Callable[..., Any], *arguments: Any
) -> Case:
    return Case(
        name,
        jax.jit(cpu_kernels.choosing("xla", xla)),
        jax.jit(cpu_kernels.choosing("auto", own)),
        arguments,
    )


def measure(case: Case, repeats: int) -> dict[str, Any]:
    """Medians of both in turn, and how far their results are apart."""
    results = [
        np.asarray(function(*case.arguments)) for function in (case.xla, case.own)
    ]
    elapsed: dict[str, list[float]] = {"xla": [], "own": []}
    for _ in range(repeats):
        for name in elapsed:
            start = time.perf_counter()
            jax.block_until_ready(getattr(case, name)(*case.arguments))
            elapsed[name].append((time.perf_counter() - start) * 1e3)
    medians = {name: statistics.median(times) for name, times in elapsed.items()}
    apart = np.linalg.norm(results[1] - results[0]) / np.linalg.norm(results[0])
    return {
        "operation": case.name,
        "xla_ms": round(medians["xla"], 3),
        "own_ms": round(medians["own"], 3),
        "ratio": round(medians["xla"] / medians["own"], 2),
        "apart": float(f"{apart:.1e}"),
    }


def main() -> None:
    """Measures all cases on one core, prints a table and writes JSON."""
    cli.check_output("json", _JSON.value)
    if hasattr(os, "sched_setaffinity"):  # before XLA starts its threads
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if not cpu_kernels.instructions():
        raise InputError("no CPU kernels were built for this processor.")
    cases = [case for layer in LAYERS for case in layer_cases(layer)]
    cases += noise_cases()
    rows = [measure(case, _REPEATS.value) for case in tqdm(cases, disable=None)]
    print(f"{'operation':<52}{'XLA':>9}{'ours':>9}{'ratio':>7}{'apart':>9}")
    for row in rows:
        print(
            f"{row['operation']:<52}{row['xla_ms']:6.2f} ms{row['own_ms']:6.2f} ms"
            f"{row['ratio']:7.2f}{row['apart']:9.0e}"
        )
    if _JSON.value:
        told = {
            "machine": timing.machine(),
            "instructions": cpu_kernels.instructions(),
            "rows": rows,
        }
        pathlib.Path(_JSON.value).write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    cli.run(main)
