r"""What a finished sweep of very many runs costs to list, to start again, to report.

    python -m benchmarks.large_sweeps --points=10000 --json=results.json

trains one small run and makes a finished sweep of its files: a folder for every point,
with the point's settings, and numbers that are moved a little. Then `dpsparfl list`,
`sweep` and `report` are started as a user starts them, each first without an index and
then with one. Times are of the processor, and beside them of the clock, which are
longer where others use the machine.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

from absl import flags
from tqdm import tqdm

from benchmarks import timing
from benchmarks.bad_case import SMALL, write_toy
from benchmarks.calling import ROOT
from dpsparfl_jax import config_values, records
from dpsparfl_jax.errors import InputError
from experiments import cli, grid

_JSON = flags.DEFINE_string("json", "", "write the results to this file")
_POINTS = flags.DEFINE_integer("points", 10_000, "runs; a multiple of 500")
_KEEP = flags.DEFINE_string("keep", "", "make the sweep in this folder and keep it")
_AXES = {
    "privacy.epsilon_hi": tuple(range(6, 11)),
    "schedule.tradeoff": (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
    "training.clip_norm": tuple(range(1, 11)),
}
_SETTINGS = 500  # that the axes above make
_ROUNDS = 100
_of_the_report = shutil.ignore_patterns("*.png", "*.html", "runs.csv", "rounds.csv")


def grid_text(points: int) -> str:
    """The grid of so many runs."""
    axes = {**_AXES, "seed": tuple(range(points // _SETTINGS))}
    return ";".join(f"{name}={','.join(map(str, v))}" for name, v in axes.items())


def make_sweep(shared: pathlib.Path, out: pathlib.Path, points: int) -> list[str]:
    """Writes a finished sweep; returns the flags of the command that would make it."""
    write_toy(shared)
    common = [flag.format(shared=shared) for flag in SMALL]
    common += [f"--length.rounds={_ROUNDS}", "--privacy.epsilon_lo=5"]
    common += ["--privacy.noise_multiplier=9", "--perf.checkpoint_every=1000"]
    first = shared / "first"
    _call("run", f"--out={first}", "--preset=paper_mnist", *common)
    manifest = records.read_manifest(first)
    base = config_values.from_dict(manifest["config"])
    rounds = records.read_rounds(first)
    wanted = grid.expand(base, grid.parse(grid_text(points)))
    if wanted.problems:
        raise InputError(next(iter(wanted.problems.values())))
    for number, (name, settings) in enumerate(
        tqdm(wanted.settings.items(), desc="runs made", disable=None)
    ):
        folder = out / name
        shutil.copytree(first, folder, ignore=_of_the_report, copy_function=os.link)
        content = {**manifest, "name": name, "config": config_values.as_dict(settings)}
        better = settings.schedule.tradeoff**0.1 * settings.training.clip_norm**0.2
        share = (better + 0.1 * settings.seed % 0.3) / 4
        lines = [json.dumps(_moved(row, share, number)) + "\n" for row in rounds]
        _replace(folder / records.MANIFEST, json.dumps(content, indent=1))
        _replace(folder / records.ROUNDS, "".join(lines))
        _replace(folder / records.DONE, (first / records.DONE).read_text())
    return [*common, "--preset=paper_mnist", f"--grid={grid_text(points)}"]


def _replace(path: pathlib.Path, text: str) -> None:
    """Writes a file that is a link to the first run's so far."""
    path.unlink()
    path.write_text(text)


def _moved(row: Mapping[str, Any], share: float, number: int) -> dict[str, Any]:
    """A round with other numbers: a curve that rises to `share`, other delays."""
    moved, part = dict(row), 1 - 0.97 ** row["round"]
    if row["accuracy"] is not None:
        moved["accuracy"] = min(0.1 + share * part + 1e-3 * (number % 7), 1.0)
        moved["loss"] = 2.3 - moved["accuracy"]
    for name in ("round_delay_s", "cumulative_delay_s", "cumulative_energy_j"):
        moved[name] = row[name] * (1 + share + 0.01 * (number % 5))
    return moved


def _call(program: str, *arguments: str) -> dict[str, Any]:
    """Runs a command; its times, memory and what it printed."""
    command = [sys.executable, "-m", f"experiments.{program}", *arguments]
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:
        child = subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - began
        said.seek(0)
        text = said.read()
    if child.returncode:
        raise InputError(f"{' '.join(command)[:200]} failed: {text[-2000:]}")
    return {
        "cpu_s": round(used.ru_utime + used.ru_stime, 2),
        "wall_s": round(wall, 2),
        "largest_memory_mb": used.ru_maxrss // 1024,
        "lines_printed": len(text.splitlines()),
    }


def measure(out: pathlib.Path, sweep_flags: list[str]) -> list[dict[str, Any]]:
    """Every command without an index and with one."""
    index = out / records.INDEX
    commands: dict[str, Callable[[], dict[str, Any]]] = {
        "list": lambda: _call("list_runs", str(out)),
        "report": lambda: _call("report", str(out)),
        "sweep again": lambda: _call("sweep", f"--out={out}", *sweep_flags),
    }
    rows = []
    for name, call in commands.items():
        for how in ("without an index", "with an index"):
            if how == "without an index":
                index.unlink(missing_ok=True)
            rows.append({"command": name, "how": how, **call()})
            print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    """Makes the sweep, measures, prints and writes JSON."""
    cli.check_output("json", _JSON.value)
    if _POINTS.value < _SETTINGS or _POINTS.value % _SETTINGS:
        raise InputError(f"--points={_POINTS.value} is no multiple of {_SETTINGS}.")
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(_KEEP.value or folder)
        (root / "shared").mkdir(parents=True, exist_ok=True)
        out = root / "sweep"
        sweep_flags = make_sweep(root / "shared", out, _POINTS.value)
        rows = measure(out, sweep_flags)
        sizes = {
            "index_mb": round((out / records.INDEX).stat().st_size / 1e6, 1),
            "page_mb": round((out / "report.html").stat().st_size / 1e6, 2),
            "runs_csv_mb": round((out / "runs.csv").stat().st_size / 1e6, 1),
            "rounds_csv_mb": round((out / "rounds.csv").stat().st_size / 1e6, 1),
        }
    print(json.dumps(sizes))
    if _JSON.value:
        content = {
            "machine": timing.machine(),
            "points": _POINTS.value,
            "rounds": _ROUNDS,
            "rows": rows,
            **sizes,
        }
        text = json.dumps(content, indent=1)
        pathlib.Path(_JSON.value).write_text(text + "\n")


if __name__ == "__main__":
    cli.run(main)
