"""What `run` and `sweep` share: training points, stopping kindly, the final table."""

import pathlib
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType

import jax
from tqdm import tqdm

from dpsparfl_jax import records
from dpsparfl_jax.config import PerfConfig
from dpsparfl_jax.errors import InputError, StorageError
from dpsparfl_jax.recording import campaign
from dpsparfl_jax.recording.points import Hooks, Point
from dpsparfl_jax.records import rows
from dpsparfl_jax.report import files
from experiments.grid import GridPoint

_FAILED = 1


class Stopper:
    """The first Ctrl-C or SIGTERM asks to stop, the second one stops at once."""

    def __init__(self) -> None:
        """Takes over both signals."""
        self.signal = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        # The next one ends the process even while it compiles; all that was recorded
        # is flushed, or replaced as a whole.
        signal.signal(number, signal.SIG_DFL)
        self.signal = number
        tqdm.write(
            "Stopping after the rounds under way (again: at once).", file=sys.stderr
        )

    def release(self) -> None:
        """Gives both signals back: Ctrl-C interrupts again."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def asked(self) -> bool:
        """Whether to stop."""
        return bool(self.signal)


def keep_compiled_programs(perf: PerfConfig) -> None:
    """Lets JAX keep compiled programs on disk, beside the epsilon curves."""
    if perf.cache_dir:
        folder = pathlib.Path(perf.cache_dir).expanduser() / "programs"
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def execute(
    points: Sequence[GridPoint],
    *,
    out: pathlib.Path,
    nested: bool,
    resume: bool,
    report: bool = True,
) -> int:
    """Trains and records points, prints a table, writes a report; gives the exit code.

    `nested` points have a folder each in `out`. A single point that cannot run is bad
    input; of several, the others still run, and those that failed are listed at the
    end.
    """
    stopper = Stopper()
    possible = [
        Point(point.name, point.settings, out / point.name if nested else out)
        for point in points
        if point.settings is not None
    ]
    failed = {point.name: point.problem for point in points if not point.settings}
    try:
        outcome = train(possible, stopper, resume=resume)
        failed |= outcome.failed
        if len(failed) == len(points):
            refuse_common_reason(failed)
        if outcome.skipped:
            print(f"Finished before: {', '.join(outcome.skipped)}.")
        found = [
            records.load_run(point.folder, point.name)
            for point in possible
            if (point.folder / records.MANIFEST).is_file()
        ]
        if found:
            print(table(found))
        if report and any(len(run.rounds) for run in found):
            print(f"Report: {files.write_report(found, out)}")
    finally:
        for name, reason in failed.items():
            print(f"FAILED {name}: {reason}", file=sys.stderr)
    if outcome.stopped:
        how = "" if resume else " with --resume"
        print(
            f"Stopped: {', '.join(outcome.stopped)}; the same command{how} goes on.",
            file=sys.stderr,
        )
        return 128 + stopper.signal
    return _FAILED if failed else 0


def refuse_common_reason(failed: dict[str, str]) -> None:
    """All runs failed: what they fail for, if it is the same, is bad input."""
    if len(set(failed.values())) == 1:
        (reason,) = set(failed.values())
        failed.clear()
        raise InputError(reason)


def train(
    points: Sequence[Point], stopper: Stopper, *, resume: bool
) -> campaign.Outcome:
    """Trains and records points, with a bar; stops where the user asks for it."""
    if not points:
        return campaign.Outcome([], [], {}, [])
    keep_compiled_programs(points[0].settings.perf)
    hooks = Hooks(time.time, tqdm.write, stopper.asked)
    try:
        return campaign.run_points(points, hooks, resume=resume)
    except StorageError as reason:
        raise InputError(f"{reason} --resume continues from it.") from None


def table(runs: Sequence[records.RecordedRun]) -> str:
    """The final table: one line a run."""
    width = max([len(run.name) for run in runs], default=0) + 2
    head = (
        "rounds  accuracy    delay s   energy J  epsilon max  fairness  s/round  "
        "planning"
    )
    lines = [f"{'run':<{width}}{head}"]
    for run in runs:
        if not run.done:
            rounds = len(run.rounds)
            lines.append(f"{run.name:<{width}}{rounds:6d}  unfinished")
            continue
        told = rows.summarise(
            run.rounds.to_dict("records"), run.clients.to_dict("records")
        )
        epsilon = told["epsilon_max"]
        seconds = run.rounds["device_s"].sum()
        usual = run.rounds["device_s"].median()  # without compilation
        planning = run.manifest["planning_s"]
        fair = told["fairness"]
        lines.append(
            f"{run.name:<{width}}{told['rounds']:6d}  {told['accuracy']:8.3f}  "
            f"{told['delay_s']:9.1f}  {told['energy_j']:9.1f}  "
            + (f"{'infinite':>11}" if epsilon is None else f"{epsilon:11.3f}")
            + (f"{'-':>10}" if fair is None else f"{fair:10.3f}")
            + f"  {usual:7.2f}"
            f"  {planning / (planning + seconds):8.1%}"
        )
    return "\n".join(lines)
