"""Batches as tasks of a Ray cluster: one that runs already, or one of this machine."""

import logging
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from dpsparfl_jax.errors import InputError, first_line
from dpsparfl_jax.runner.devices import available_cores

from .batches import Batch, Result
from .watch import Job, Lost
from .work import python_path, train_batch

_STORE_BYTES = 100_000_000  # next to nothing is sent through Ray: records are files


class RayEngine:
    """Hands batches to Ray.

    Without an address Ray is started on this machine, listens on loopback only, and
    ends with this process. Workers keep their compiled programs from batch to batch.
    """

    batches_each = 2
    at_once = 0  # Ray queues what does not fit

    def __init__(
        self,
        *,
        address: str = "",
        workers: int = 0,
        cores: int = 1,
        gpus: float = 0,
        resources: Mapping[str, float] | None = None,
    ) -> None:
        """Joins a cluster, or starts one."""
        self.cores = cores
        if address:
            _check_answers(address)
        self._ray = _load_ray(alone=not address)
        self._start(address, workers or max(1, available_cores() // cores))
        needs = {"CPU": float(cores), "GPU": gpus, **(resources or {})}
        # A running cluster may grow: whoever says how many workers must know.
        self.workers = workers if address and workers else self._places(needs)
        self._task = self._ray.remote(
            num_cpus=cores, num_gpus=gpus, resources=resources or None, max_retries=0
        )(train_batch)

    def _start(self, address: str, workers: int) -> None:
        options: dict[str, Any] = {
            "address": address or "local",
            "log_to_driver": False,
            "logging_level": logging.ERROR,
            "runtime_env": {"env_vars": {"PYTHONPATH": python_path()}},
        }
        if not address:
            options |= {
                "num_cpus": workers * self.cores,
                "include_dashboard": False,
                "object_store_memory": _STORE_BYTES,
            }
        try:
            self._ray.init(**options)
        except (ConnectionError, ValueError, RuntimeError, OSError) as reason:
            first = first_line(reason, "it did not say why")
            where = f"the Ray cluster at {address}" if address else "Ray"
            raise InputError(
                f"{where} cannot be used ({first[:200]}): is it running, and its "
                "version the same as here?"
            ) from None

    def _places(self, needs: Mapping[str, float]) -> int:
        """How many batches fit into the cluster at the same time."""
        there = self._ray.cluster_resources()
        for name, count in needs.items():
            if count > there.get(name, 0):
                self.close()
                raise InputError(
                    f"a batch needs {count:g} {name}, but the whole Ray cluster has "
                    f"{there.get(name, 0):g}: lower what --ray asks for."
                )
        return min(int(there[name] // count) for name, count in needs.items() if count)

    def submit(self, batches: Sequence[Batch]) -> Sequence[Job]:
        """Hands over batches; Ray starts them as there is room."""
        return [_RayJob(self._ray, self._task.remote(batch)) for batch in batches]

    def close(self) -> None:
        """Leaves the cluster, or ends the one that was started."""
        self._ray.shutdown()


class _RayJob:
    def __init__(self, ray: Any, reference: Any) -> None:
        self._ray, self._reference = ray, reference

    def poll(self) -> Result | None:
        """The result, if the task has ended."""
        ready, _ = self._ray.wait([self._reference], timeout=0)
        if not ready:
            return None
        try:
            # A plain tuple may have come from a process that loaded this file anew.
            return Result(*self._ray.get(self._reference))
        except self._ray.exceptions.RayError as reason:
            why = first_line(reason, type(reason).__name__)
            raise Lost(why[:200]) from None

    def cancel(self) -> None:
        """Takes the task back."""
        self._ray.cancel(self._reference)


def _check_answers(address: str) -> None:
    """Refuses an address at which nobody listens: Ray would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdecimal():  # auto, say: Ray looks for it by itself
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, OverflowError) as reason:
        raise InputError(
            f"nobody answers at --ray.address={address} ({reason}): is the cluster "
            "running, and can it be reached from here?"
        ) from None


def _load_ray(*, alone: bool) -> Any:
    """Ray, told not to report its use to anybody and, if `alone`, to stay here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if alone:
        # Ray reads this once: without clusters it listens on loopback only.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        # Its workers would give way to every other program of the machine.
        os.environ.setdefault("RAY_worker_niceness", "0")
    try:
        import ray
    except ImportError:
        raise InputError(
            "--engine=ray needs Ray: pip install 'dpsparfl_jax[ray]'."
        ) from None
    return ray
