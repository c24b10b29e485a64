"""Does every bad input get one sentence, exit code 2 and no traceback; is nothing lost?

    python -m benchmarks.bad_inputs

tries all of `bad_input_cases`, one after another in this process, prints how many were
tried and handled, and what became of the others, and writes results as JSON.
"""

import contextlib
import hashlib
import json
import pathlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from types import FrameType
from typing import NamedTuple

from absl import app, flags
from tqdm import tqdm

from benchmarks import bad_input_cases
from benchmarks.bad_case import SMALL, Case, write_toy
from benchmarks.calling import ROOT, Done, call_program
from dpsparfl_jax.registry import POLICIES

_JSON = flags.DEFINE_string(
    "json", str(ROOT / "benchmarks/results/bad_inputs.json"), "file for the numbers"
)
_PATIENCE_S = 60  # after which an answer is none


class TooLongError(BaseException):
    """No answer yet; no program takes it for a failure of its own."""


class Outcome(NamedTuple):
    """What a bad input got."""

    case: str
    problem: str  # empty if it was handled
    sentence: str
    seconds: float


class Workshop:
    """Folders for cases: one that all share, a finished run, and one for each."""

    def __init__(self, folder: pathlib.Path) -> None:
        """Makes the image set that cases use; the run is made when it is needed."""
        self.folder = folder
        self.shared = folder / "shared"
        self.shared.mkdir()
        write_toy(self.shared)
        self._count = 0

    def room(self, case: Case) -> pathlib.Path:
        """The folder of a case, with what it has prepared."""
        self._count += 1
        root = self.folder / f"case{self._count}"
        root.mkdir()
        if case.needs_run:
            shutil.copytree(self._finished_run(), root / "run")
        if case.prepare is not None:
            case.prepare(root)
        return root

    def _finished_run(self) -> pathlib.Path:
        target = self.folder / "run"
        if not target.is_dir():
            flags = [flag.format(shared=self.shared) for flag in SMALL]
            done = call_program("experiments.run", f"--out={target}", *flags)
            assert done.returncode == 0, done.stderr
        return target


def attempt(case: Case, workshop: Workshop) -> Outcome:
    """Gives a program its bad input, and looks at the answer."""
    root = workshop.room(case)
    before = _contents(root) | _contents(workshop.shared)
    arguments = [
        argument.replace("{root}", str(root)).replace("{shared}", str(workshop.shared))
        for argument in case.arguments
    ]
    began = time.perf_counter()
    try:
        with _patience(), _forgetting_plugins():
            done = call_program(f"experiments.{case.program}", *arguments)
        problem, sentence = _problem(done), done.stderr.strip()
    except TooLongError:
        problem, sentence = f"no answer within {_PATIENCE_S} s", ""
    except Exception as reason:
        problem, sentence = "a traceback", f"{type(reason).__name__}: {reason}"
    seconds = time.perf_counter() - began
    after = _contents(root) | _contents(workshop.shared)
    lost = [path for path, digest in before.items() if after.get(path) != digest]
    if lost and not problem:
        problem = f"files are gone or changed: {', '.join(lost)}"
    shutil.rmtree(root)
    shown = sentence.replace(str(root), "ROOT").replace(str(workshop.shared), "SHARED")
    return Outcome(case.name, problem, shown[:240], round(seconds, 2))


def _problem(done: Done) -> str:
    lines = done.stderr.strip().splitlines()
    if done.returncode != 2:
        return f"exit code {done.returncode}"
    if "Traceback" in done.stderr or "Error:" in done.stderr:
        return "a traceback, or the name of an exception"
    if len(lines) != 1:
        return f"{len(lines)} lines instead of one"
    return ""


def _contents(folder: pathlib.Path) -> dict[str, str]:
    """Hashes of files by their paths; curves that are kept may be added to."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


@contextlib.contextmanager
def _forgetting_plugins() -> Iterator[None]:
    """What a plugin registers as a policy is forgotten: the next case is another."""
    before = POLICIES.names()
    try:
        yield
    finally:
        for name in set(POLICIES.names()) - set(before):
            del POLICIES._entries[name]


@contextlib.contextmanager
def _patience() -> Iterator[None]:
    def give_up(number: int, frame: FrameType | None) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(_PATIENCE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def main(argv: list[str]) -> None:
    """Tries all cases."""
    target, began = pathlib.Path(_JSON.value), time.perf_counter()
    cases = bad_input_cases.all_cases()
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(pathlib.Path(folder))
        outcomes = [attempt(case, workshop) for case in tqdm(cases, disable=None)]
    failed = [outcome for outcome in outcomes if outcome.problem]
    for outcome in failed:
        print(f"{outcome.case}: {outcome.problem} ({outcome.sentence})")
    handled = len(outcomes) - len(failed)
    print(f"tried {len(outcomes)}, handled {handled}")
    numbers = {
        "tried": len(outcomes),
        "handled": handled,
        "seconds": round(time.perf_counter() - began),
        "slowest": max(outcomes, key=lambda one: one.seconds)._asdict(),
        "not handled": [outcome._asdict() for outcome in failed],
        "sentences": {outcome.case: outcome.sentence for outcome in outcomes},
    }
    target.write_text(json.dumps(numbers, indent=1) + "\n")
    sys.exit(bool(failed))


if __name__ == "__main__":
    app.run(main)
