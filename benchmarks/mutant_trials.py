"""Makes faults in a copy of the project, and looks whether tests notice."""

import concurrent.futures
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any

from tqdm import tqdm

from benchmarks.mutant_list import Mutant
from benchmarks.run_facts import ROOT
from dpsparfl_jax.errors import InputError

_NOT_COPIED = (".git", ".venv", "site", "*.egg-info", "__pycache__", ".*_cache")


def copy_project(folder: pathlib.Path) -> pathlib.Path:
    """A copy to make faults in."""
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*_NOT_COPIED))
    return folder


def spoiled(text: str, mutant: Mutant) -> str:
    """A file with the fault in it."""
    if text.count(mutant.right) != 1:
        raise InputError(
            f"{mutant.file} has {text.count(mutant.right)} places for the fault "
            f"{mutant.name!r}: mend benchmarks/mutant_list.py."
        )
    return text.replace(mutant.right, mutant.wrong)


def run_tests(project: pathlib.Path, tests: tuple[str, ...]) -> Any:
    """The fast tests in some files, up to the first that fails."""
    quick = ("-x", "-q", "-m", "not slow")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *quick, *(f"tests/{name}" for name in tests)],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project)},
        capture_output=True,
        text=True,
    )


def try_mutant(project: pathlib.Path, mutant: Mutant) -> dict[str, Any]:
    """Makes a fault, runs tests, takes it back."""
    path = project / "dpsparfl_jax" / mutant.file
    right = path.read_text(encoding="utf-8")
    began = time.perf_counter()
    path.write_text(spoiled(right, mutant), encoding="utf-8")
    try:
        done = run_tests(project, mutant.tests)
    finally:
        path.write_text(right, encoding="utf-8")
    if done.returncode not in (0, 1, 2):  # 2: the tests could not even be loaded
        raise RuntimeError(f"tests cannot be run: {done.stdout}{done.stderr}")
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    return {
        "name": mutant.name,
        "file": mutant.file,
        "killed": done.returncode != 0,
        "by": failed[0].split(" - ")[0].removeprefix("FAILED ") if failed else "",
        "code": done.returncode,
        "seconds": time.perf_counter() - began,
    }


def measure(mutants: tuple[Mutant, ...], workers: int) -> list[dict[str, Any]]:
    """All faults, a copy of the project for each worker."""
    with tempfile.TemporaryDirectory() as scratch:
        copies: queue.Queue[pathlib.Path] = queue.Queue()
        for number in range(workers):
            copies.put(copy_project(pathlib.Path(scratch, str(number))))

        def work(mutant: Mutant) -> dict[str, Any]:
            project = copies.get()
            try:
                return try_mutant(project, mutant)
            finally:
                copies.put(project)

        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            found = pool.map(work, mutants)
            return list(tqdm(found, total=len(mutants), desc="faults", disable=None))
