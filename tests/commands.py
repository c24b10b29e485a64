"""Running the command-line programs as a user does."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent


def run_program(name, *flags):
    """`python -m name flags`, from the project's folder."""
    return subprocess.run(
        [sys.executable, "-m", name, *flags], cwd=ROOT, capture_output=True, text=True
    )


def assert_refused(done, message):
    """Bad input: one sentence, exit code 2, no traceback."""
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
