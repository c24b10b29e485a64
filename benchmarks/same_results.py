"""Do two commits give the same results, to the bit?

    python -m benchmarks.same_results --old=COMMIT --data.dir=DIR --json results.json

runs the same commands in a checkout of an earlier commit and in this one: the
quickstart (four policies), three rounds on Fashion-MNIST, a run that is killed and
resumed, and a sweep of six points. Compared are every column that both record (but for
wall times), clients, schedules and parameters. What differs is printed with the largest
relative difference; where that is near 1e-15, only a formula was rounded otherwise.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
from absl import flags
from tqdm import tqdm

from benchmarks import timing
from benchmarks.run_facts import ROOT
from dpsparfl_jax.errors import InputError
from experiments import cli

_OLD = flags.DEFINE_string("old", None, "commit to compare with", required=True)
_DATA = flags.DEFINE_string("data.dir", "", "folder with fashion_mnist.npz; needed")
_JSON = flags.DEFINE_string("json", "", "write the results to this file")
_KEEP = flags.DEFINE_string("keep", "", "folder for the records; empty keeps none")

# Flags as version 0.1 had them; later versions take them as aliases.
QUICKSTART = ("experiments.run",)
KILLED = (
    *("experiments.run", "--schedule.policy=dp_sparfl", "--run.rounds=30"),
    "--perf.checkpoint_every=3",
)
SWEEP = (
    *("experiments.sweep", "--run.rounds=6"),
    "--grid=schedule.tradeoff=5,50;training.clip_norm=2,4,8",
)
# Parameters are read by the code that wrote them: where it is has changed.
_PARAMETERS = """
import hashlib, sys
import jax, numpy as np
try:
    from dpsparfl_jax.recording.checkpoint import load_params
except ImportError:
    from dpsparfl_jax import load_params
for folder in sys.argv[1:]:
    total = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(load_params(folder)):
        total.update(f"{jax.tree_util.keystr(path)} {leaf.dtype} {leaf.shape}".encode())
        total.update(np.ascontiguousarray(leaf).tobytes())
    print(total.hexdigest())
"""


def launch(checkout: pathlib.Path, *command: str) -> subprocess.Popen[str]:
    """A module of that checkout, started in it."""
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(checkout: pathlib.Path, *command: str) -> None:
    """Runs it to its end."""
    process = launch(checkout, *command)
    _, errors = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed in {checkout}: {errors}")


def record(checkout: pathlib.Path, folder: pathlib.Path, data: str) -> None:
    """Makes all runs with the code of a checkout."""
    fashion = ("experiments.run", "--preset=paper_fashion", f"--data.dir={data}")
    short = ("--run.rounds=3", "--run.eval_every=1")
    finish(checkout, *QUICKSTART, f"--out={folder / 'quickstart'}")
    finish(checkout, *fashion, *short, f"--out={folder / 'fashion'}")
    finish(checkout, *SWEEP, f"--out={folder / 'sweep'}")
    killed = folder / "killed"
    process = launch(checkout, *KILLED, f"--out={killed}")
    while len(_rows(killed)) < 8 and process.poll() is None:
        time.sleep(0.05)
    process.kill()
    process.communicate()
    finish(checkout, *KILLED, f"--out={killed}", "--resume")


def _rows(folder: pathlib.Path) -> list[dict[str, Any]]:
    try:
        lines = (folder / "rounds.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines if line.endswith("}")]


def parameters(checkout: pathlib.Path, folders: list[pathlib.Path]) -> dict[str, str]:
    """A hash of the last model in every folder."""
    done = subprocess.run(
        [sys.executable, "-c", _PARAMETERS, *map(str, folders)],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(zip(map(str, folders), done.stdout.split(), strict=True))


def differences(old: pathlib.Path, new: pathlib.Path) -> dict[str, float]:
    """What the records of a run, all but its parameters, do not share, and how far.

    Values are the largest relative difference; infinite where they are no numbers, or
    not as many.
    """
    then, now = _rows(old), _rows(new)
    wrong = {} if len(then) == len(now) else {"number of rounds": np.inf}
    for before, after in zip(then, now, strict=False):
        for name in sorted(set(before) & set(after) - {"host_s", "device_s"}):
            if before[name] != after[name]:
                apart = _relative_difference(before[name], after[name])
                wrong[name] = max(wrong.get(name, 0.0), apart)
    with np.load(old / "schedule.npz") as a, np.load(new / "schedule.npz") as b:
        for name in a:
            if not np.array_equal(a[name], b[name]):
                apart = _relative_difference(a[name], b[name])
                wrong[name] = max(wrong.get(name, 0.0), apart)
    if not wrong:  # else its numbers move with those above
        if (old / "clients.csv").read_text() != (new / "clients.csv").read_text():
            wrong["clients.csv"] = np.inf
    return wrong


def _relative_difference(before: Any, after: Any) -> float:
    """Of two numbers, or of two lists of numbers place by place."""
    try:
        a, b = np.asarray(before, np.float64), np.asarray(after, np.float64)
    except (TypeError, ValueError):
        return np.inf
    if a.shape != b.shape:
        return np.inf
    with np.errstate(invalid="ignore"):
        apart = np.abs(a - b) / np.maximum(np.abs(a), np.finfo(np.float64).tiny)
    return float(np.max(np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, apart)))


def compare(scratch: pathlib.Path, old: str, data: str) -> list[dict[str, Any]]:
    """Runs both commits; one row a run."""
    checkout = scratch / "checkout"
    subprocess.run(["git", "clone", "-q", ROOT, checkout], check=True)
    subprocess.run(["git", "checkout", "-q", old], cwd=checkout, check=True)
    places = {"old": checkout, "new": ROOT}
    for name, place in tqdm(places.items(), desc="commits", disable=None):
        record(place, scratch / name, data)
    hashes: dict[str, str] = {}
    folders = sorted(path.parent for path in (scratch / "old").rglob("manifest.json"))
    names = [str(folder.relative_to(scratch / "old")) for folder in folders]
    for which, place in places.items():
        hashes |= parameters(place, [scratch / which / name for name in names])
    rows = []
    for name in names:
        then, now = scratch / "old" / name, scratch / "new" / name
        wrong = differences(then, now)
        if hashes[str(then)] != hashes[str(now)]:
            wrong["parameters"] = np.inf
        rows.append({"run": name, "rounds": len(_rows(now)), "differ": wrong})
    return rows


def main() -> int:
    """Compares, prints, writes."""
    cli.check_output("json", _JSON.value)
    if not _DATA.value:
        raise InputError("name the folder with fashion_mnist.npz: --data.dir=DIR.")
    data = str(pathlib.Path(_DATA.value).resolve())
    with tempfile.TemporaryDirectory() as temporary:
        scratch = pathlib.Path(_KEEP.value or temporary).resolve()
        rows = compare(scratch, _OLD.value, data)
    for row in rows:
        parts = [f"{name} ({apart:.0e})" for name, apart in row["differ"].items()]
        verdict = f"DIFFERS in {', '.join(parts)}" if parts else "equal"
        print(f"{row['run']:<36}{row['rounds']:4d} rounds: {verdict}")
    equal = sum(not row["differ"] for row in rows)
    print(f"{equal} of {len(rows)} runs are equal to the bit to {_OLD.value}.")
    if _JSON.value:
        content = {"machine": timing.machine(), "old": _OLD.value, "rows": rows}
        pathlib.Path(_JSON.value).write_text(json.dumps(content, indent=1) + "\n")
    return int(equal < len(rows))


if __name__ == "__main__":
    cli.run(main)
