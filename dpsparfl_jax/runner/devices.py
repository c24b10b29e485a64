"""How many devices train: on a CPU, one for each core.

XLA spreads a single product over the cores, but not a convolution, nor the passes in
between. Clients are independent of each other, so a core each keeps all of them busy.
"""

import collections
import os

import jax

from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.errors import InputError, first_line


def start_devices(wanted: int = 0) -> None:
    """Lets JAX have one CPU device a core, or as many as wanted.

    JAX takes the number once, before it is first used: afterwards, and where JAX's own
    setting `jax_num_cpu_devices` was made, nothing is changed.
    """
    if jax.config.values["jax_num_cpu_devices"] > 0:
        return
    try:
        jax.config.update("jax_num_cpu_devices", max(wanted, available_cores()))
    except RuntimeError:  # JAX is in use already
        return


def require_backend() -> None:
    """Refuses a platform that JAX cannot start, a GPU where there is none, say."""
    try:
        jax.devices()
    except Exception as reason:  # of many kinds, some without a word
        first = first_line(reason, "it is not there")
        wanted = jax.config.values["jax_platforms"]
        raise InputError(
            f"JAX cannot use the platform {wanted!r} ({first}): choose another one, or "
            "leave JAX_PLATFORMS empty for what there is."
        ) from None


def available_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def chosen_devices(settings: RunConfig) -> tuple[jax.Device, ...]:
    """The devices of a run: `perf.devices` of each process; by itself all it can use.

    On a CPU that is no more than it has channels: a lone task is better off alone,
    because XLA lets it use the cores of devices that are not in use. Every process has
    one at least.
    """
    count, devices = settings.perf.devices, tuple(jax.devices())
    if count > jax.local_device_count():
        raise InputError(
            f"perf.devices asks for {count} devices, but there are "
            f"{jax.local_device_count()}."
        )
    most = count or len(devices)
    if not count and devices[0].platform == "cpu":
        most = -(-settings.wireless.num_channels // jax.process_count())
    taken: collections.Counter[int] = collections.Counter()
    chosen = []
    for device in devices:
        taken[device.process_index] += 1
        if taken[device.process_index] <= most:
            chosen.append(device)
    return tuple(chosen)
