"""Schedules of the figures: planned once, several at a time, and kept."""

import concurrent.futures
import hashlib
import multiprocessing
import os
import pathlib
import signal
import threading
from collections.abc import Iterable

from tqdm import tqdm

import dpsparfl_jax as fl
from dpsparfl_jax import config_values
from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning import schedule as schedule_lib
from dpsparfl_jax.planning.schedule import Schedule
from dpsparfl_jax.runner.devices import available_cores
from dpsparfl_jax.runner.run import Run

_WORTH_A_PROCESS = 10  # schedules: one takes longer to start than to plan a few


def digest(settings: RunConfig) -> str:
    """Of everything that moves a result, and of our version."""
    text = f"{fl.__version__} {config_values.digest(settings)}"
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def plan_once(settings: RunConfig, plans: pathlib.Path) -> Schedule:
    """The schedule of a run, from `plans` if it was made before."""
    path = _path(settings, plans)
    if path.is_file():
        try:
            return schedule_lib.load(path)
        except InputError:
            path.unlink()  # cut off while it was written: planned anew
    schedule = Run("planned", settings).outlined().planned().schedule
    plans.mkdir(parents=True, exist_ok=True)
    schedule_lib.save(schedule, path)
    return schedule


def plan_all(
    wanted: Iterable[RunConfig], plans: pathlib.Path, processes: int | None = None
) -> None:
    """Makes all schedules that are not in `plans`, by as many processes as cores.

    A schedule depends on its settings alone, so it does not matter which process makes
    it. Few schedules are left to `plan_once`.
    """
    missing = {
        path: settings
        for settings in wanted
        if not (path := _path(settings, plans)).is_file()
    }
    if processes is None:
        processes = min(available_cores(), len(missing) // _WORTH_A_PROCESS)
    if processes < 2:
        return
    pool = concurrent.futures.ProcessPoolExecutor(
        processes,
        # JAX's threads do not survive a fork.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_helper,
    )
    try:
        made = [pool.submit(_plan, one, plans) for one in missing.values()]
        for each in tqdm(
            concurrent.futures.as_completed(made),
            total=len(made),
            desc="schedules",
            disable=None,
            leave=False,
        ):
            each.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _start_helper() -> None:
    """In each process: it ends when the one that waits for it ends, and only then."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of them
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Without this, a parent that was killed leaves processes that wait for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)  # schedules are written whole or not at all


def _plan(settings: RunConfig, plans: pathlib.Path) -> None:
    plan_once(settings, plans)  # a process has no use for what is in the file


def _path(settings: RunConfig, plans: pathlib.Path) -> pathlib.Path:
    return plans / f"{digest(settings)}.npz"
