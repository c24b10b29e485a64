"""Batches as jobs of Slurm, through submitit: one array, requeued when preempted."""

import logging
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from dpsparfl_jax.errors import InputError, first_line
from dpsparfl_jax.runner.devices import available_cores

from .batches import Batch, Result
from .watch import Job, Lost
from .work import python_path, train_batch

_LOGS = "logs"  # beside what workers tell


class SlurmEngine:
    """Hands batches to Slurm, or to processes of this machine to try it out.

    A job that Slurm preempts, or that reaches its time limit, is put back into the
    queue by itself and goes on from its checkpoints.
    """

    batches_each = 1  # a job compiles anew

    def __init__(
        self,
        *,
        workers: int,
        cores: int = 1,
        minutes: int = 60,
        timeouts: int = 10,
        here: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Looks whether jobs can be submitted; `options` are submitit's own."""
        self.workers = workers or (max(1, available_cores() // cores) if here else 8)
        self.cores = cores
        self.at_once = self.workers if here else 0  # Slurm queues what does not fit
        self._cluster = "local" if here else "slurm"
        self._timeouts, self._minutes = timeouts, minutes
        self._options = dict(options or {})
        self._submitit = _load_submitit()
        if not here and not self._submitit.SlurmExecutor.affinity() >= 0:
            raise InputError(
                "--engine=slurm finds no sbatch: launch it where Slurm is, or try it "
                "in processes of this machine with --slurm.here."
            )

    def submit(self, batches: Sequence[Batch]) -> Sequence[Job]:
        """Submits batches as one array of jobs."""
        folder = pathlib.Path(batches[0].launch, _LOGS)
        executor = self._submitit.AutoExecutor(
            folder=folder, cluster=self._cluster, **self._limits()
        )
        executor.update_parameters(
            name="dpsparfl", timeout_min=self._minutes, cpus_per_task=self.cores
        )
        if self._cluster == "slurm":
            self._options.setdefault("slurm_array_parallelism", self.workers)
        try:
            executor.update_parameters(**self._options)
            jobs = executor.map_array(_TrainBatch(), batches)
            return [_SlurmJob(job) for job in jobs]
        except (NameError, ValueError, TypeError) as reason:
            raise InputError(f"--slurm.options: {_first_line(reason)}.") from None
        except self._submitit.core.utils.FailedJobError as reason:
            raise InputError(
                f"Slurm refused the jobs ({_first_line(reason)}): see --slurm.options."
            ) from None

    def _limits(self) -> dict[str, int]:
        return {f"{self._cluster}_max_num_timeout": self._timeouts}

    def close(self) -> None:
        """Nothing is held: jobs that were submitted go on by themselves."""


class _SlurmJob:
    def __init__(self, job: Any) -> None:
        self._job = job

    def poll(self) -> Result | None:
        """The result, if the job has left one or has ended without."""
        if not self._job.done():
            return None
        try:
            # A plain tuple may have come from a process that loaded this file anew.
            return Result(*self._job.result())
        except Exception as reason:  # UncompletedJobError, or what a job raised
            raise Lost(f"job {self._job.job_id}, {_first_line(reason)}") from None

    def cancel(self) -> None:
        """Takes the job out of the queue."""
        self._job.cancel(check=False)


def _first_line(reason: Exception) -> str:
    return first_line(reason, type(reason).__name__)[:200].rstrip(".")


def _load_submitit() -> Any:
    try:
        import submitit
        import submitit.core.utils
    except ImportError:
        raise InputError(
            "--engine=slurm needs submitit: pip install 'dpsparfl_jax[slurm]'."
        ) from None
    # Not every cluster keeps accounts of jobs; results are files in any case.
    logging.getLogger("submitit").setLevel(logging.ERROR)
    os.environ["PYTHONPATH"] = python_path()  # which jobs inherit
    return submitit


class _TrainBatch:
    """`train_batch` as something that submitit puts back into the queue.

    Nothing needs to be saved for that: the same call goes on from the runs' folders.
    """

    def __call__(self, batch: Batch) -> Result:
        return train_batch(batch)

    def checkpoint(self, batch: Batch) -> Any:
        """What is submitted again when the job is preempted, or out of time."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, batch)
