"""Has batches trained elsewhere, follows them, and gathers what became of the runs."""

import pathlib
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from tqdm import tqdm

from dpsparfl_jax import __version__, config_values
from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.errors import InputError, StorageError
from dpsparfl_jax.runner import drive
from dpsparfl_jax.runner.progress import EVERY_S
from dpsparfl_jax.storage import writing

from .. import ending, launch
from ..stopping import Stopper
from . import live_page, status
from .batches import Batch, Result, deal

_POLL_S = 0.3
_PAGE_S = 3.0  # between two versions of the page
_LAUNCHES = ".launches"  # in the sweep's folder: one folder a launch


class Lost(Exception):
    """A worker left no result: it was killed, say, or its machine went down."""


class Job(Protocol):
    """A batch on its way."""

    def poll(self) -> Result | None:
        """The result once it is there; raises `Lost` if there will be none."""

    def cancel(self) -> None:
        """Takes it back, if it has not begun; else this changes nothing."""


class Engine(Protocol):
    """Something that trains batches elsewhere."""

    workers: int  # batches that are trained at the same time, about
    batches_each: int  # that every worker is to have, about
    at_once: int  # jobs that it can take at the same time; 0 is any number
    cores: int  # of a worker; 0 are all of its machine

    def submit(self, batches: Sequence[Batch]) -> Sequence[Job]:
        """Hands over batches."""

    def close(self) -> None:
        """Lets go of what the engine holds."""


class Plan(NamedTuple):
    """What a launch is told by flags, beside the runs."""

    out: pathlib.Path
    notes: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    most: int = 0  # runs of one batch; 0 is no limit
    retries: int = 3  # of a batch whose worker was lost
    log: tuple[str, ...] = ()  # services that get the rounds too


def train(
    engine: Engine,
    plan: Plan,
    settings: Mapping[str, RunConfig],
    folders: Mapping[str, pathlib.Path],
    stopper: Stopper,
) -> drive.Outcome:
    """Trains and records runs by an engine; the same `Outcome` as in this process."""
    hooks = launch.console_hooks(stopper)
    index = ending.open_index(plan.out)
    sinks, refused = launch.open_sinks(settings, folders, index, hooks, resume=True)
    if settings and not sinks:
        raise next(iter(refused.values()))
    done = [name for name, sink in sinks.items() if sink.is_done]
    outcome = drive.Outcome(skipped=done, failed=dict(refused))
    wanted = {n: settings[n] for n, sink in sinks.items() if not sink.is_done}
    if not wanted:
        return outcome
    folder = _launch_folder(plan.out)
    batches = _make_batches(engine, plan, wanted, folder)
    tqdm.write(
        f"{len(wanted)} runs in {len(batches)} batch(es) for {engine.workers} "
        f"worker(s); {plan.out / live_page.PAGE} follows them."
    )
    watched = _Watched(engine, plan, batches, folder, stopper)
    watched.follow(outcome)
    if not outcome.failed and not outcome.stopped:
        shutil.rmtree(folder, ignore_errors=True)  # logs of what went well
    return outcome


def _launch_folder(out: pathlib.Path) -> pathlib.Path:
    """A new folder for what workers tell."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1000):
        folder = (out / _LAUNCHES / f"{stamp}-{number}").absolute()
        with writing(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            try:
                folder.mkdir()
            except FileExistsError:  # of another launch in this second
                continue
        return folder
    raise StorageError(f"{out / _LAUNCHES} is full: delete old launches in it.")


def _make_batches(
    engine: Engine, plan: Plan, wanted: Mapping[str, RunConfig], folder: pathlib.Path
) -> list[Batch]:
    dealt = deal(wanted, engine.workers, each=engine.batches_each, most=plan.most)
    return [
        Batch(
            number,
            {name: config_values.as_dict(wanted[name]) for name in names},
            str(plan.out.absolute()),
            str(folder),
            engine.cores,
            plan.plugins,
            plan.notes,
            str(pathlib.Path.cwd()),
            __version__,
            plan.log,
        )
        for number, names in enumerate(dealt)
    ]


class _Watched:
    """Batches that are trained elsewhere, until the last one has ended."""

    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        batches: Sequence[Batch],
        folder: pathlib.Path,
        stopper: Stopper,
    ) -> None:
        self._engine, self._plan, self._folder = engine, plan, folder
        self._stopper, self._batches = stopper, batches
        self._queue = list(batches)
        self._jobs: dict[int, Job] = {}
        self._losses = dict.fromkeys(range(len(batches)), 0)
        self._ended: dict[int, Result] = {}
        self._warned: set[str] = set()
        self._began = time.time()

    def follow(self, outcome: drive.Outcome) -> None:
        """Submits, waits, tries lost batches again; fills the outcome."""
        total = sum(len(batch.settings) for batch in self._batches)
        form = "{l_bar}{bar}| {n:.1f}/{total} runs [{elapsed}<{remaining}{postfix}]"
        told, page_s, line_s = False, 0.0, time.time()
        with tqdm(total=total, desc="sweep", bar_format=form, disable=None) as bar:
            while len(self._ended) < len(self._batches):
                self._submit()
                self._collect(outcome)
                states = self._states()
                if self._stopper.asked() and not told:
                    told = True
                    self._stop(outcome, states)
                bar.n = min(total, sum(one.runs for one in states))
                bar.set_postfix_str(_postfix(states))
                if time.time() - page_s > _PAGE_S:
                    page_s = time.time()
                    self._write_page(states)
                if bar.disable and time.time() - line_s > EVERY_S:
                    line_s = time.time()
                    print(f"{bar.n:.1f} of {total} runs{_postfix(states)}.", flush=True)
                time.sleep(_POLL_S)
        self._write_page(self._states())

    def _submit(self) -> None:
        room = self._engine.at_once or len(self._queue) + len(self._jobs)
        ready = self._queue[: max(0, room - len(self._jobs))]
        if ready:
            self._queue = self._queue[len(ready) :]
            jobs = self._engine.submit(ready)
            self._jobs |= {
                batch.number: job for batch, job in zip(ready, jobs, strict=True)
            }

    def _collect(self, outcome: drive.Outcome) -> None:
        for number, job in list(self._jobs.items()):
            try:
                result = job.poll()
            except Lost as reason:
                del self._jobs[number]
                result = self._retry(number, str(reason))
            if result is not None:
                self._jobs.pop(number, None)
                self._end(number, result, outcome)

    def _retry(self, number: int, reason: str) -> Result | None:
        """Queues a lost batch again; a result if that has been done often enough."""
        self._losses[number] += 1
        batch = self._batches[number]
        if self._stopper.asked():
            return Result([], [], list(batch.settings), {})
        if self._losses[number] > self._plan.retries:
            problem = f"its worker was lost {self._losses[number]} time(s) ({reason})."
            return Result([], [], [], dict.fromkeys(batch.settings, problem))
        tqdm.write(
            f"A worker of batch {number + 1} was lost ({reason}): another one goes on.",
            file=sys.stderr,
        )
        self._queue.append(batch)
        return None

    def _end(self, number: int, result: Result, outcome: drive.Outcome) -> None:
        self._ended[number] = result
        outcome.finished.extend(result.finished)
        outcome.skipped.extend(result.skipped)
        outcome.stopped.extend(result.stopped)
        for name, reason in result.failed.items():
            outcome.failed[name] = InputError(reason)

    def _stop(self, outcome: drive.Outcome, states: Sequence[status.Status]) -> None:
        """Asks workers to end, and takes back what has not begun."""
        with writing(self._folder):
            (self._folder / status.STOP).touch()
        waiting = [n for n in self._jobs if not states[n].attempt]
        for number in waiting:
            self._jobs.pop(number).cancel()
        for number in [*waiting, *(batch.number for batch in self._queue)]:
            names = list(self._batches[number].settings)
            self._end(number, Result([], [], names, {}), outcome)
        self._queue = []

    def _states(self) -> list[status.Status]:
        """How far all batches are; says warnings that are new."""
        states = [status.read(self._folder, b.number) for b in self._batches]
        for warning in (each for one in states for each in one.warnings):
            if warning not in self._warned:
                self._warned.add(warning)
                tqdm.write(warning)
        for number, result in self._ended.items():
            done = len(result.finished) + len(result.skipped)
            state = "failed" if result.failed else "finished"
            state = "stopped" if result.stopped else state
            states[number] = states[number]._replace(state=state, runs=float(done))
        return states

    def _write_page(self, states: Sequence[status.Status]) -> None:
        sizes = [len(batch.settings) for batch in self._batches]
        over = len(self._ended) == len(self._batches)
        live_page.write(
            self._plan.out, sizes, states, time.time() - self._began, over=over
        )


def _postfix(states: Sequence[status.Status]) -> str:
    working = sum(one.state in ("starting", "training") for one in states)
    rounds = sum(one.rounds for one in states)
    text = f", {rounds} rounds, {working} at work"
    seen = [one.accuracy for one in states if one.accuracy is not None]
    return f"{text}, accuracy up to {max(seen):.3f}" if seen else text
