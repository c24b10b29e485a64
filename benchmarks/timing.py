"""Fair timing on a shared machine: contenders take turns, and medians are compared."""

import datetime
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

# A contender does a fixed piece of work, waits for it, and says how many real examples
# it processed.
Contender = Callable[[], int]


class Spread(NamedTuple):
    """The median of some measurements, and the quartiles around it."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """The quartiles of some measurements."""
    low, median, high = np.quantile(values, (0.25, 0.5, 0.75))
    return Spread(float(median), float(low), float(high))


def examples_per_second(
    contenders: Mapping[str, Contender], repeats: int
) -> dict[str, Spread]:
    """Rates of each contender over `repeats` turns; the first turn is a warm-up.

    Taking turns spreads the machine's slow moments over all contenders alike, and each
    turn starts with another contender, so that none always follows the same one.
    """
    names = list(contenders)
    rates: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(repeats + 1):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            start = time.perf_counter()
            examples = contenders[name]()
            elapsed = time.perf_counter() - start
            if turn:
                rates[name].append(examples / elapsed)
    return {name: spread(values) for name, values in rates.items()}


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0))


def gemm_peak_gflops(size: int = 2048, repeats: int = 5) -> float:
    """Best float32 matrix-product rate that JAX reaches here, in GFLOP/s."""
    a = jnp.ones((size, size), jnp.float32)
    product = jax.jit(lambda x: x @ x)
    product(a).block_until_ready()
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        product(a).block_until_ready()
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best / 1e9


def machine() -> dict[str, object]:
    """Where and when a measurement was made."""
    return {
        "date": datetime.date.today().isoformat(),
        "processor": _processor(),
        "cores": cores(),
        "device": jax.devices()[0].device_kind,
        "python": platform.python_version(),
        "jax": jax.__version__,
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            names = [line.split(":")[1] for line in lines if "model name" in line]
        return names[0].strip()
    except (OSError, IndexError):
        return platform.processor()
