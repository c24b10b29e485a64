"""Fair timing on a shared machine: contenders take turns, and medians are compared."""

import datetime
import os
import platform
import time
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np

# A contender does a fixed piece of work, waits for it, and says how many real examples
# it processed.
Contender = Callable[[], int]


def examples_per_second(
    contenders: Mapping[str, Contender], repeats: int
) -> dict[str, float]:
    """Median rate of each contender over `repeats` turns; the first turn is a warm-up.

    Taking turns spreads the machine's slow moments over all contenders alike.
    """
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(repeats + 1):
        for name, work in contenders.items():
            start = time.perf_counter()
            examples = work()
            elapsed = time.perf_counter() - start
            if turn:
                rates[name].append(examples / elapsed)
    return {name: float(np.median(values)) for name, values in rates.items()}


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
        "cores": len(os.sched_getaffinity(0)),
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
