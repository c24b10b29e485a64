"""Schedules and data in, trained runs out: a batch of runs in one program.

The only room that holds both hands: schedules go to the device ahead of time, metrics
come back late, and nothing waits in between. Every number that differs between the runs
of a batch is data; a run that ends earlier idles, at no cost where tasks go one by one.
"""

import collections
import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax import memory
from dpsparfl_jax.client_values import client_values
from dpsparfl_jax.config_values import noise_seed
from dpsparfl_jax.data import packing
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy.clip_norm import ClipNorm
from dpsparfl_jax.runner import image_feed, processes, programs, tasks
from dpsparfl_jax.runner.choose_clip_norm import choose_clip_norm
from dpsparfl_jax.runner.prefetch import prefetch
from dpsparfl_jax.runner.run import Run
from dpsparfl_jax.runner.server_rates import rate_factors, server_rates
from dpsparfl_jax.sparsifiers import make_sparsifier
from dpsparfl_jax.training import cohort, keys
from dpsparfl_jax.training.diagnostics import Diagnostics
from dpsparfl_jax.training.local import Records
from dpsparfl_jax.types import (
    Array,
    ClientTables,
    EvalRows,
    Evaluation,
    ImageSet,
    Params,
    RoundOutput,
    RunConstants,
    ServerRates,
    ServerState,
    Tasks,
)

IN_FLIGHT = 2  # rounds that are dispatched before the results of one are awaited

Clock = Callable[[], float]


class _Progress(NamedTuple):
    """Where a batch is: everything here is on the devices."""

    state: ServerState  # leaves [R, ...]
    test: ImageSet  # images to evaluate on
    root_keys: Array
    eval_rows: Array


class _Coming(NamedTuple):
    """A round that can be dispatched: records are on the devices, the rest is not."""

    is_first: bool
    rounds: NDArray[np.int64]  # [R] round of each run, also of those that have ended
    records: Records
    tasks: Tasks
    row_of_slot: NDArray[np.intp]  # [slots of all runs]


class _Inflight(NamedTuple):
    """A dispatched round: numbers that are still on the device."""

    rounds: NDArray[np.int64]  # [R] round of each run, also of those that have ended
    running: NDArray[np.intp]  # numbers of the runs that trained
    ends: NDArray[np.intp]  # those for which it was the last round
    evaluated: NDArray[np.bool_]  # [R]
    row_of_slot: NDArray[np.intp]  # [slots of all runs]
    diagnostics: Diagnostics
    evaluation: Evaluation | None
    averaged: Evaluation | None  # of the averages of models
    snapshots: dict[int, ServerState]
    host_s: float | None


class _Watch:
    """Seconds between looks, or nothing at all without a clock."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._last = clock() if clock else 0.0

    def now(self) -> float:
        return self._clock() if self._clock else 0.0

    def since(self, began: float) -> float | None:
        return self._clock() - began if self._clock else None

    def lap(self) -> float | None:
        """Since the last lap."""
        if self._clock is None:
            return None
        before, self._last = self._last, self._clock()
        return self._last - before


class Batch:
    """Runs that share a program; `train` yields their rounds as they come back."""

    def __init__(self, runs: Sequence[Run]) -> None:
        """Compiles nothing yet; chooses clip norms and lays out all tasks."""
        first = runs[0]
        self.runs = runs
        self.images = processes.current().from_first(
            lambda: image_feed.choose_place(first)
        )
        self.on_validation = first.settings.length.eval_on == "validation"
        self.program = programs.get_program(
            programs.program_key(first.settings, first.outline)
        )
        sets = first.data.images.sets
        self.tables = packing.pack_clients(
            [run.data.clients.train for run in runs], len(sets.train.labels)
        )
        self.clip_norms = [self._clip_norm(number) for number in range(len(runs))]
        self.tasks = [
            lay_out(run, number, self.tables, clip.value)
            for number, (run, clip) in enumerate(
                zip(runs, self.clip_norms, strict=True)
            )
        ]
        self.server_rates = [
            server_rates(run.settings.server, rows.weight * rows.active)
            for run, rows in zip(runs, self.tasks, strict=True)
        ]
        self.averages = np.array(
            [run.settings.server.averaging != "none" for run in runs]
        )
        self.lengths = np.array([run.schedule.num_rounds for run in runs])
        self.eval_rows = np.stack(
            [np.concatenate(run.data.clients.test) for run in runs]
        ).astype(np.int32)
        self.eval_every = np.array([run.settings.length.eval_every for run in runs])
        channels = [run.settings.wireless.num_channels for run in runs]
        self.first_slot = np.concatenate([[0], np.cumsum(channels)])

    @property
    def initial(self) -> list[ServerState]:
        """What runs start from; made anew each time, for models may be large."""
        return [self._initial(run) for run in self.runs]

    def _initial(self, run: Run) -> ServerState:
        return programs.initial_state(
            self.program, run.settings.seed, len(run.outline.sizes)
        )

    def _clip_norm(self, number: int) -> ClipNorm:
        run = self.runs[number]
        able = np.flatnonzero(run.plan.ledger.live)
        sets = run.data.images.sets
        return choose_clip_norm(
            run.settings,
            lambda images: self.program.norms(self._initial(run).params, images),
            sets.train,
            sets.test,
            [run.data.clients.train[client] for client in able],
        )

    def train(
        self,
        states: Sequence[ServerState] | None = None,
        first_rounds: Sequence[int] | None = None,
        *,
        snapshot_every: int = 0,
        stop: Callable[[], bool] = lambda: False,
        clock: Clock | None = None,
    ) -> Iterator[list[RoundOutput]]:
        """Trains all runs to their ends; an item holds one round of every live run.

        `states` and `first_rounds` continue runs from where they were. Snapshots of the
        server's state come after every `snapshot_every` rounds (0: none), after a run's
        last round, and when `stop` says so, which ends the iteration early.
        """
        starts = np.array(first_rounds or [0] * len(self.runs), np.int64)
        progress = self._place(states or self.initial)
        del states  # may be large
        waiting: collections.deque[_Inflight] = collections.deque()
        watch = _Watch(clock)
        with contextlib.closing(self._coming(starts)) as coming:
            for step, ready in enumerate(coming):
                due = bool(snapshot_every) and (step + 1) % snapshot_every == 0
                halted = stop()
                progress, sent = self._dispatch(progress, ready, due or halted, watch)
                waiting.append(sent)
                if halted:
                    break
                while len(waiting) > IN_FLIGHT:
                    yield self._fetch(waiting.popleft(), watch)
            while waiting:
                yield self._fetch(waiting.popleft(), watch)

    def _coming(self, starts: NDArray[np.int64]) -> Generator[_Coming, None, None]:
        """All rounds in turn; those of streamed images are made ready by a thread."""
        steps = range(int(np.max(self.lengths - starts, initial=0)))
        feed = self._make_feed(self._tasks_at(starts + step)[0] for step in steps)

        def ready() -> Generator[_Coming, None, None]:
            for step in steps:
                rows, row_of_slot = self._tasks_at(starts + step)
                records, addressed = feed.of_round(rows)
                rounds = starts + step
                yield _Coming(step == 0, rounds, records, addressed, row_of_slot)

        if self.images == "resident":
            return ready()
        return prefetch(ready(), image_feed.ROUNDS_AHEAD)

    def _make_feed(self, every: Iterable[Tasks]) -> image_feed.Feed:
        """Where the records of these rounds come from."""
        train, mesh = self.runs[0].data.images.sets.train, self.program.mesh
        if self.images == "resident":
            return image_feed.ResidentImages(train, self.tables, mesh)
        count = int(self.first_slot[-1])
        shares = self.program.tasks_of_devices(count)
        used = [
            image_feed.lay_out(shares, image_feed.active_sizes(rows)).used.max()
            for rows in every
        ]
        most = int(max(used, default=0))
        return image_feed.StreamedImages(train, self.tables, mesh, shares, most)

    def _put(self, tree: Any) -> Any:
        return cohort.replicate(tree, self.program.mesh)

    def _place(self, states: Sequence[ServerState]) -> _Progress:
        """Moves all but the records to the devices."""
        roots = keys.root_key_words([noise_seed(run.settings) for run in self.runs])
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *states)
        judged_by, rows = self._judged_by()
        return _Progress(*self._put((stacked, judged_by, roots, rows)))

    def _judged_by(self) -> tuple[ImageSet, NDArray[np.int32]]:
        """The images of evaluations, and which of them each run takes: [R, E]."""
        sets = self.runs[0].data.images.sets
        if not self.on_validation:
            return sets.test, self.eval_rows
        used, places = np.unique(self.eval_rows, return_inverse=True)
        images = ImageSet(*(array[used] for array in sets.train))
        return images, places.reshape(self.eval_rows.shape).astype(np.int32)

    def _dispatch(
        self, progress: _Progress, ready: _Coming, snapshot: bool, watch: _Watch
    ) -> tuple[_Progress, _Inflight]:
        """Sends one round of every run that is not at its end; waits for nothing."""
        began = watch.now()
        rounds = ready.rounds
        running = np.flatnonzero(rounds < self.lengths)
        ends = running[rounds[running] + 1 == self.lengths[running]]
        state, diagnostics = self.program.step(
            progress.state,
            ready.records,
            RunConstants(progress.root_keys, self._put(self._rates_at(rounds))),
            self._put(ready.tasks),
        )
        if ready.is_first:  # the program was compiled, and begins to fill the memory
            memory.give_back()
        evaluated = np.zeros(len(self.runs), bool)
        evaluated[running] = (rounds[running] + 1) % self.eval_every[running] == 0
        evaluated[ends] = True
        evaluation = self._evaluate(progress, state.params, evaluated)
        averaged = self._evaluate(progress, state.average, evaluated & self.averages)
        snapshots = {
            int(run): self.program.take(state, self._put(np.int32(run)))
            for run in (running if snapshot else ends)
        }
        sent = _Inflight(
            rounds,
            running,
            ends,
            evaluated,
            ready.row_of_slot,
            diagnostics,
            evaluation,
            averaged,
            snapshots,
            watch.since(began),
        )
        return progress._replace(state=state), sent

    def _evaluate(
        self, progress: _Progress, params: Params, wanted: NDArray[np.bool_]
    ) -> Evaluation | None:
        """Dispatches the evaluation of these models of some runs."""
        if not wanted.any():
            return None
        chosen = EvalRows(progress.eval_rows, self._put(wanted))
        return self.program.evaluate(params, progress.test, chosen)

    def _rates_at(self, rounds: NDArray[np.int64]) -> ServerRates:
        """The server's rates for one round of each run."""
        rows = [
            ServerRates(*(column[min(number, len(column) - 1)] for column in rates))
            for rates, number in zip(self.server_rates, rounds, strict=True)
        ]
        return ServerRates(*(np.array(column) for column in zip(*rows, strict=True)))

    def _tasks_at(self, rounds: NDArray[np.int64]) -> tuple[Tasks, NDArray[np.intp]]:
        """Rows of all runs for one round each, and the row of every slot of theirs.

        A slot is a channel of a run, idle where nobody sends or the run has ended.
        """
        slots = []
        for tasks_of_run, number, length in zip(
            self.tasks, rounds, self.lengths, strict=True
        ):
            at = min(number, length - 1)
            row = Tasks(*(column[at] for column in tasks_of_run))
            slots.append(row._replace(active=row.active & (number < length)))
        rows = Tasks(*(np.concatenate(columns) for columns in zip(*slots, strict=True)))
        # Devices are dealt rows in turn: idle ones go last, or one may get them all.
        order = np.argsort(~rows.active, kind="stable")
        return Tasks(*(column[order] for column in rows)), np.argsort(order)

    def _fetch(self, sent: _Inflight, watch: _Watch) -> list[RoundOutput]:
        """Waits for a round and brings it to the host."""
        diagnostics = jax.device_get(sent.diagnostics)
        snapshots = jax.device_get(sent.snapshots)
        evaluation, averaged = jax.device_get((sent.evaluation, sent.averaged))
        device_s = watch.lap()
        share = max(1, len(sent.running))
        outputs = []
        for run in map(int, sent.running):
            own = slice(self.first_slot[run], self.first_slot[run + 1])
            rows = sent.row_of_slot[own]
            evaluated = bool(sent.evaluated[run])
            beside = evaluated and bool(self.averages[run])
            outputs.append(
                RoundOutput(
                    run,
                    int(sent.rounds[run]),
                    Diagnostics(*(column[rows] for column in diagnostics)),
                    float(evaluation.accuracy[run]) if evaluated else None,
                    float(evaluation.loss[run]) if evaluated else None,
                    evaluation.right[run] if run in sent.ends else None,
                    snapshots.get(run),
                    None if sent.host_s is None else sent.host_s / share,
                    None if device_s is None else device_s / share,
                    float(averaged.accuracy[run]) if beside else None,
                    float(averaged.loss[run]) if beside else None,
                )
            )
        return outputs


def lay_out(run: Run, number: int, tables: ClientTables, clip_norm: float) -> Tasks:
    """All tasks of a run, columns [T, N]; idle slots hold harmless numbers."""
    schedule, settings = run.schedule, run.settings
    sends = schedule.sends
    shape = sends.shape
    if not sends.size:
        raise InputError(f"nothing is planned: {schedule.reason}.")
    rounds = np.broadcast_to(np.arange(shape[0])[:, None], shape).reshape(-1)
    privacy, training = settings.privacy, settings.training
    client = np.where(sends, schedule.client, 0).reshape(-1)
    keep = np.where(sends, schedule.keep_rate, 1.0).reshape(-1)
    sparsifier = make_sparsifier(training.sparsifier)
    noise = weight = None
    if privacy.noise:
        clients = len(schedule.budget)
        noise = client_values(privacy, "noise_multiplier", settings.seed, clients)
        noise = noise[client]
        if settings.server.weights == "inverse_noise":
            bound = tasks.clip_bound(clip_norm, keep, training.clipping, sparsifier)
            weight = (training.batch_size / (noise * bound)) ** 2
    rates = training.learning_rate * rate_factors(
        training.rate_schedule, training.rate_end, shape[0]
    )
    columns = tasks.make_tasks(
        tables,
        run=number,
        client=client,
        round_index=rounds,
        active=schedule.arrived.reshape(-1),  # nobody gets to see what was dropped
        keep_rate=keep,
        clip_norm=clip_norm,
        noise_multiplier=noise,
        learning_rate=rates[rounds],
        batch_size=training.batch_size,
        capacity=run.outline.capacity,
        overflow_probability=privacy.overflow_probability,
        clipping=training.clipping,
        sparsifier=sparsifier,
        momentum=training.momentum,
        weight=weight,
        scale=1 / keep if settings.server.rescale else 1.0,
    )
    return Tasks(*(column.reshape(shape) for column in columns))
