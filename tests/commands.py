"""Running the command-line programs as a user does, or within this process."""

import subprocess
import sys

from benchmarks.calling import ROOT, call_program

__all__ = ["ROOT", "assert_refused", "call_program", "run_program"]


def run_program(name, *arguments):
    """`python -m name arguments`, from the project's folder: takes seconds to start."""
    return subprocess.run(
        [sys.executable, "-m", name, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def assert_refused(done, message):
    """Bad input: one sentence, exit code 2, no traceback."""
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
