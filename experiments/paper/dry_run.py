"""What figures would train: runs, rounds, examples and hours, before they are begun."""

import pathlib
from collections.abc import Mapping
from typing import NamedTuple

from dpsparfl_jax.config import RunConfig

from . import plans as plans_lib
from . import sweeps
from . import trained as trained_lib
from .catalogue import Figure
from .sweep_types import Changes
from .sweeps import SweepRun

_HOUR = 3600.0  # s


class Work(NamedTuple):
    """What is left to train."""

    runs: int = 0
    rounds: int = 0
    examples: float = 0.0

    def plus(self, other: "Work") -> "Work":
        """Both together."""
        return Work(
            self.runs + other.runs,
            self.rounds + other.rounds,
            self.examples + other.examples,
        )


def work_left(
    figures: Mapping[str, Figure], folder: pathlib.Path, *, scale: str, changes: Changes
) -> dict[str, Work]:
    """What every figure has to train; runs that figures share count for the first.

    Schedules say how long runs are. They are planned where `folder` has none, and kept
    there. Finished runs do not count.
    """
    wanted = _unfinished(figures, folder, scale, changes)
    measured = _unmeasured(figures, folder, scale, changes)
    plans = folder / "runs" / "plans"
    every = [run for runs in wanted.values() for run in runs] + measured
    plans_lib.plan_all((run.planned for run in every), plans)
    left = {}
    for name, runs in wanted.items():
        work = Work()
        for run in runs:
            assert run.trained is not None
            work = work.plus(_of_run(run.trained, run.planned, plans))
        left[name] = work
    for run in measured:
        work = _of_run(run.planned, run.planned, plans)
        left["bound"] = left["bound"].plus(_with_gradients(work, run, scale))
    return left


def _unfinished(
    figures: Mapping[str, Figure], folder: pathlib.Path, scale: str, changes: Changes
) -> dict[str, list[SweepRun]]:
    """Runs that are still to be trained, by the first figure that needs them."""
    seen: set[str] = set()
    left: dict[str, list[SweepRun]] = {}
    for name, figure in figures.items():
        left[name] = []
        for sweep in figure.sweeps:
            runs = sweeps.runs_of(sweep, scale, changes)
            found = trained_lib.find(runs, folder)
            for run in runs:
                if run.trained is None or run.home in seen:
                    continue
                seen.add(run.home)
                if run.home not in found:
                    left[name].append(run)
    return left


def _unmeasured(
    figures: Mapping[str, Figure], folder: pathlib.Path, scale: str, changes: Changes
) -> list[SweepRun]:
    """Runs of Theorem 1, which are trained apart."""
    if "bound" not in figures:
        return []
    seeds = sweeps.worlds_of("bound", scale).trained
    return [
        run
        for run in sweeps.runs_of("bound", scale, changes)
        if run.seed in seeds and not trained_lib.gradients_path(folder, run).is_file()
    ]


def _of_run(trained: RunConfig, planned: RunConfig, plans: pathlib.Path) -> Work:
    schedule = plans_lib.plan_once(planned, plans)
    rounds = min(trained.length.rounds or schedule.num_rounds, schedule.num_rounds)
    training = trained.training
    each = float(training.local_steps) * float(training.batch_size)
    return Work(1, rounds, each * int(schedule.sends[:rounds].sum()))


def _with_gradients(work: Work, run: SweepRun, scale: str) -> Work:
    """With the images whose gradients are measured on the way."""
    size, data = sweeps.SCALES[scale], run.planned.data
    rounds = sweeps.measured_rounds(work.rounds, scale)
    images = data.num_clients * (size.measured_images or data.train_examples)
    share = rounds[-1] / max(work.rounds, 1)
    examples = work.examples * share + images * len(rounds)
    return Work(1, rounds[-1], examples)


def as_text(left: Mapping[str, Work], examples_per_s: float) -> str:
    """A table with a line for every figure, and one for all of them."""
    total = Work()
    for work in left.values():
        total = total.plus(work)
    lines = [f"{'figure':<20}{'runs':>6}{'rounds':>9}{'examples':>14}{'hours':>9}"]
    for name, work in (*left.items(), ("all", total)):
        hours = work.examples / examples_per_s / _HOUR
        lines.append(
            f"{name:<20}{work.runs:>6}{work.rounds:>9}{work.examples:>14,.0f}"
            f"{hours:>9.2f}"
        )
    note = (
        f"Hours at {examples_per_s:g} examples/s, without evaluations and compilation. "
        "Runs that figures share count for the first of them; finished ones do not."
    )
    return "\n".join([*lines, note, ""])
