"""The only loop over runs: outline, group, plan ahead, load, train, isolate failures.

Whoever wants runs (Python, a command, a sweep) gives `drive` a list of `Run`s and a
sink for each. Runs that share shapes train in one compiled program; the next ones are
planned by a thread meanwhile; a run that fails does not stop the others.

Several processes may drive the same runs together (`processes.py`): all go through this
loop alike, and settle with each other what might differ.
"""

import contextlib
import dataclasses
import itertools
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from dpsparfl_jax import preflight
from dpsparfl_jax.errors import (
    DivergedError,
    InputError,
    StorageError,
    first_line,
)
from dpsparfl_jax.privacy.clip_norm import ClipNorm
from dpsparfl_jax.records.columns import Row
from dpsparfl_jax.records.rows import RoundRows
from dpsparfl_jax.runner import grouping, processes
from dpsparfl_jax.runner.batch import IN_FLIGHT, Batch
from dpsparfl_jax.runner.checkpoint import digest
from dpsparfl_jax.runner.devices import start_devices
from dpsparfl_jax.runner.divergence import DivergenceWatch
from dpsparfl_jax.runner.prefetch import prefetch
from dpsparfl_jax.runner.progress import Progress
from dpsparfl_jax.runner.run import (
    Described,
    Images,
    Run,
    digest_owners,
    load_images,
)
from dpsparfl_jax.runner.sinks import Beginning, RoundRecord, Sink
from dpsparfl_jax.types import RoundOutput

_PLANNED_AHEAD = 32  # runs


class Hooks(NamedTuple):
    """What the caller lends: the library reads no clock and prints nothing."""

    say: Callable[[str], None]  # hears what is going on
    warn: Callable[[str], None]  # hears what a user must not overlook, once each
    clock: Callable[[], float] | None = None  # seconds since 1970
    stop: Callable[[], bool] = lambda: False
    progress: bool = True  # a bar on a terminal, lines now and then elsewhere
    row: Callable[[Run, Row], None] = lambda run, row: None  # hears every round
    finished: Callable[[Sequence[str]], None] = lambda names: None  # as runs end


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of the runs, by name."""

    finished: list[str] = dataclasses.field(default_factory=list)
    skipped: list[str] = dataclasses.field(default_factory=list)  # finished before
    failed: dict[str, Exception] = dataclasses.field(default_factory=dict)
    stopped: list[str] = dataclasses.field(default_factory=list)  # on request


class _Job(NamedTuple):
    """A run and where its rounds go; a `problem` if it could not be planned."""

    run: Run
    sink: Sink
    problem: Exception | None = None


def drive(runs: Sequence[Run], sinks: Sequence[Sink], hooks: Hooks) -> Outcome:
    """Trains all runs to their ends, or until asked to stop.

    Args:
        runs: what to train; names must differ.
        sinks: where the rounds of each run go. A run whose sink is done is skipped.
        hooks: how the caller listens, and stops.

    Returns:
        What became of every run. Failures are kept there; only a full or read-only disk
        (StorageError) ends everything at once.
    """
    outcome = Outcome()
    for _ in rounds(runs, sinks, hooks, outcome):
        pass
    return outcome


def rounds(
    runs: Sequence[Run], sinks: Sequence[Sink], hooks: Hooks, outcome: Outcome
) -> Iterator[tuple[Run, Row]]:
    """As `drive`, giving every round as it comes; `outcome` is filled on the way."""
    stop = processes.current().agreed(hooks.stop)
    hooks = hooks._replace(warn=_once(hooks.warn), stop=stop)
    start_devices(max((run.settings.perf.devices for run in runs), default=0))
    jobs = _outline(runs, sinks, outcome)
    numbers = grouping.group_runs([job.run for job in jobs])
    _announce_work([job.run for job in jobs], len(numbers), outcome, hooks)
    progress = Progress(
        {job.run.name: job.run.settings.length.rounds for job in jobs},
        say=hooks.say,
        clock=hooks.clock,
        shown=hooks.progress,
    )
    in_order = (jobs[number] for group in numbers for number in group)
    planned = (_plan(job, hooks, progress) for job in in_order)
    # The next batches are planned while this one trains.
    with progress, contextlib.closing(prefetch(planned, _PLANNED_AHEAD)) as plans:
        images: dict[Any, Images] = {}
        for group in numbers:
            progress.doing("planning")
            ready = list(itertools.islice(plans, len(group)))
            if hooks.stop():
                outcome.stopped.extend(job.run.name for job in ready)
                continue
            settings = ready[0].run.settings
            missing: dict[str, Exception] = {}
            try:
                if settings.data.image_set not in images:  # the set before is let go
                    progress.doing("loading images")
                    images = {settings.data.image_set: load_images(settings)}
                    source = images[settings.data.image_set].source
                    hooks.say(f"Images: {source}.")
            except Exception as reason:
                missing = {job.run.name: reason for job in ready}
            missing = processes.current().settle(missing)
            outcome.failed.update(missing)
            if not missing:
                loaded = images[settings.data.image_set]
                yield from _run_group(ready, loaded, hooks, progress, outcome)
            progress.drop(outcome.failed)


def _once(warn: Callable[[str], None]) -> Callable[[str], None]:
    """The same, but every sentence only the first time."""
    given: set[str] = set()

    def warn_once(sentence: str) -> None:
        if sentence not in given:
            given.add(sentence)
            warn(sentence)

    return warn_once


def _outline(
    runs: Sequence[Run], sinks: Sequence[Sink], outcome: Outcome
) -> list[_Job]:
    """The runs that are not done yet and can be, with their shapes."""
    described: Described = {}
    jobs = []
    problems: dict[str, Exception] = {}
    for run, sink in zip(runs, sinks, strict=True):
        if sink.is_done:
            outcome.skipped.append(run.name)
            continue
        try:
            preflight.check(run.settings)
            job = _Job(run.outlined(described), sink)
            grouping.batch_key(job.run)  # refuses devices that are not there
            grouping.check_memory(job.run)
            jobs.append(job)
        except Exception as reason:
            problems[run.name] = reason
    problems = processes.current().settle(problems)
    outcome.failed.update(problems)
    return [job for job in jobs if job.run.name not in problems]


def _plan(job: _Job, hooks: Hooks, progress: Progress) -> _Job:
    try:
        schedule = job.sink.saved_schedule()
        clock = hooks.clock or (lambda: 0.0)
        planned = job._replace(run=job.run.planned(schedule, clock))
        planned.run.require_sending()
    except Exception as reason:
        return job._replace(problem=reason)
    progress.plan(planned.run.name, planned.run.schedule.num_rounds)
    return planned


def _run_group(
    jobs: Sequence[_Job],
    images: Images,
    hooks: Hooks,
    progress: Progress,
    outcome: Outcome,
) -> Iterator[tuple[Run, Row]]:
    """Runs that share a program; if it fails as a whole, one by one."""
    opened: list[_Job] = []
    broken: Exception | None = None
    try:
        opened = _open(jobs, images, outcome)
        if opened:
            yield from _train(opened, hooks, progress)
    except StorageError:
        raise
    except Exception as reason:  # too little memory, say
        processes.current().require_all_failed(reason)
        broken = _without_frames(reason)
    finally:
        _close(opened)
    left = [job for job in opened if not job.sink.is_done]
    finished = [job.run.name for job in opened if job.sink.is_done]
    outcome.finished.extend(finished)
    hooks.finished(finished)
    if broken is None:
        outcome.stopped.extend(job.run.name for job in left)
    elif len(opened) == 1 or isinstance(broken, DivergedError):
        outcome.failed.update({job.run.name: broken for job in left})
    else:
        hooks.say(
            f"{len(left)} runs failed together ({describe_failure(broken)}): one by "
            "one now."
        )
        for job in left:
            yield from _run_group([job], images, hooks, progress, outcome)


def _open(jobs: Sequence[_Job], images: Images, outcome: Outcome) -> list[_Job]:
    """Deals images and opens sinks; those that cannot are left out."""
    opened: list[_Job] = []
    problems: dict[str, Exception] = {}
    try:
        for job in jobs:
            try:
                if job.problem is not None:
                    raise job.problem
                ready = job._replace(run=job.run.with_images(images))
                try:
                    ready.sink.open(ready.run)
                except BaseException:
                    ready.sink.close()
                    raise
                opened.append(ready)
            except StorageError:
                raise
            except Exception as reason:
                problems[job.run.name] = reason
        problems = processes.current().settle(problems)
    except BaseException:
        _close(opened)
        raise
    outcome.failed.update(problems)
    _close([job for job in opened if job.run.name in problems])
    return [job for job in opened if job.run.name not in problems]


def _close(jobs: Sequence[_Job]) -> None:
    """Closes all sinks, also where one of them fails."""
    with contextlib.ExitStack() as closing:
        for job in jobs:
            closing.callback(job.sink.close)


def _without_frames(reason: Exception) -> Exception:
    """The exception without the batch that it happened in: memory may be short."""
    chain: BaseException | None = reason
    while chain is not None:
        traceback.clear_frames(chain.__traceback__)
        chain = chain.__cause__ or chain.__context__
    return reason


def _train(
    jobs: Sequence[_Job], hooks: Hooks, progress: Progress
) -> Iterator[tuple[Run, Row]]:
    """Trains runs that share a program, and hands every round to its sink."""
    _announce([job.run for job in jobs], hooks)
    them = f"{len(jobs)} run{'s' * (len(jobs) > 1)}"
    progress.doing(f"preparing {them}")
    batch = Batch([job.run for job in jobs])
    beginnings = [
        job.sink.begin(clip, first)
        for job, clip, first in zip(jobs, batch.clip_norms, batch.initial, strict=True)
    ]
    _require_same_beginnings(jobs, batch.clip_norms, beginnings)
    _announce_clip_norms(batch.clip_norms, hooks)
    if batch.images == "streamed":
        hooks.say(
            "Images are sent to the devices round by round, as clients need them."
        )
    if hooks.stop():
        return
    tables = [
        RoundRows(job.run.schedule, private_only=job.run.settings.records.private_only)
        for job in jobs
    ]
    every = [job.sink.snapshot_every for job in jobs]
    first_rounds = [beginning.rounds for beginning in beginnings]
    trained = batch.train(
        [beginning.state for beginning in beginnings],
        first_rounds,
        snapshot_every=min((each for each in every if each), default=0),
        stop=hooks.stop,
        clock=hooks.clock,
    )
    del beginnings  # models may be large
    divergence = DivergenceWatch([job.run for job in jobs], hooks.warn)
    names = [job.run.name for job in jobs]
    # The first round is compiled, and others are done while its results are awaited.
    progress.begin(dict(zip(names, first_rounds, strict=True)), untimed=1 + IN_FLIGHT)
    progress.doing(f"compiling for {them}")
    for outputs in trained:
        for output in outputs:
            job = jobs[output.run]
            record = _record(job.run, tables[output.run], output)
            job.sink.add(record)
            divergence.note(output.run, record.row)
            hooks.row(job.run, record.row)
            progress.note(job.run.name, record.row)
            yield job.run, record.row
        progress.step(len(outputs), f"training {them}")


def _require_same_beginnings(
    jobs: Sequence[_Job], clips: Sequence[ClipNorm], beginnings: Sequence[Beginning]
) -> None:
    """Refuses to train unless all processes are about to train the same runs.

    Tasks follow from settings, schedule, images, owners and clip norm; the rest is the
    state from which each run goes on.
    """
    together = processes.current()
    if together.count == 1:
        return
    wanted = [
        (
            dataclasses.asdict(job.run.schedule),
            job.run.data.images.digest,
            digest_owners(job.run.data.clients),
            clip.value,
            beginning,
        )
        for job, clip, beginning in zip(jobs, clips, beginnings, strict=True)
    ]
    what = "images, plans, clip norms or initial parameters"
    together.require_same(what, digest(wanted))


def _record(run: Run, table: RoundRows, output: RoundOutput) -> RoundRecord:
    clients = None if output.right is None else run.client_table(output.right)
    return RoundRecord(table.row(output), output.state, clients)


def _announce_work(
    runs: Sequence[Run], groups: int, outcome: Outcome, hooks: Hooks
) -> None:
    """One line: what will be done."""
    limits = sorted({run.settings.length.rounds for run in runs})
    if not runs:
        return
    length = " or ".join(
        f"for at most {most} rounds" if most else "until the budgets end"
        for most in dict.fromkeys((limits[0], limits[-1]))
    )
    before = f" {len(outcome.skipped)} are finished." if outcome.skipped else ""
    hooks.say(
        f"To train: {len(runs)} run{'s' * (len(runs) > 1)} in {groups} "
        f"program{'s' * (groups > 1)}, {length}.{before}"
    )


def _announce(runs: Sequence[Run], hooks: Hooks) -> None:
    first = runs[0]
    if first.plan.affordability not in first.plan.warnings:
        hooks.say(first.plan.affordability)
    if len(runs) > 1:
        hooks.say(
            f"(So {first.name}; the manifests of the {len(runs) - 1} others say what "
            "theirs afford.)"
        )
    for warning in (w for run in runs for w in run.plan.warnings):
        hooks.warn(warning)
    planned = sum(run.schedule.num_rounds for run in runs)
    seconds = sum(run.plan.seconds for run in runs)
    hooks.say(
        f"Planned {planned} rounds of {len(runs)} run(s) in {seconds:.1f} s: "
        f"{first.outline.model.parameters:,} parameters, "
        f"{len(first.outline.sizes)} clients."
    )


def _announce_clip_norms(clips: Sequence[ClipNorm], hooks: Hooks) -> None:
    for statement in dict.fromkeys(clip.statement for clip in clips):
        values = [clip.value for clip in clips if clip.statement == statement]
        least, most = f"{min(values):.3g}", f"{max(values):.3g}"
        value = least if least == most else f"{least} to {most}"
        hooks.say(f"Clip norm {value}: {statement}.")
    for warning in (w for clip in clips for w in clip.warnings):
        hooks.warn(warning)


def describe_failure(reason: Exception) -> str:
    """One line: ours as they are, others (a user's policy, say) with their type."""
    if isinstance(reason, InputError):
        return str(reason)
    first = first_line(reason, "no message")
    if isinstance(reason, MemoryError) or "RESOURCE_EXHAUSTED" in first:
        return (
            f"there is too little memory to train this ({first}): lower "
            "training.batch_size or perf.batch_memory_mb, or choose a smaller model."
        )
    return f"{type(reason).__name__}: {first}"
