"""Ways to disturb a run or a sweep, and whether it ends as if nothing had happened."""

import hashlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tqdm import tqdm

from benchmarks import run_facts
from dpsparfl_jax import records

SMALL = (
    "--preset=quickstart",
    "--schedule.policy=dp_sparfl",
    "--length.rounds=30",
    "--perf.checkpoint_every=3",
)
GRID = ("--grid=schedule.tradeoff=5,50;seed=0,1", "--length.rounds=12")
REFUSED = 2
_FULL_KB = 100  # files grow no larger on the full disk


class Work(NamedTuple):
    """A command that writes into a folder."""

    program: str
    settings: tuple[str, ...]
    resume: tuple[str, ...] = ()  # flags that go on with what is there

    def command(self, folder: pathlib.Path, *more: str) -> list[str]:
        """With its folder."""
        program = [sys.executable, "-m", self.program, f"--out={folder}"]
        return [*program, *self.settings, *more]

    def start(self, folder: pathlib.Path, *more: str) -> subprocess.Popen[str]:
        """Starts it."""
        return subprocess.Popen(
            self.command(folder, *more),
            cwd=run_facts.ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(
        self, folder: pathlib.Path, *more: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs it to its end."""
        return subprocess.run(
            self.command(folder, *more),
            cwd=run_facts.ROOT,
            capture_output=True,
            text=True,
        )


class Trial(NamedTuple):
    """One disturbance and how it ended."""

    fault: str
    what: str
    good: bool
    ending: str


def facts_of(folder: pathlib.Path) -> dict[str, Any]:
    """Of every run in a folder."""
    return {
        str(manifest.parent.relative_to(folder)): run_facts.facts(manifest.parent)
        for manifest in sorted(folder.rglob(records.MANIFEST))
    }


def contents(folder: pathlib.Path) -> dict[str, str]:
    """A hash of every file, but for the lock."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != records.LOCK
    }


class Undisturbed(NamedTuple):
    """A work, its folder without disturbance, and how long that took."""

    work: Work
    folder: pathlib.Path
    life_s: float

    def judge(
        self, fault: str, what: str, folder: pathlib.Path, done: Any, before: Any = None
    ) -> Trial:
        """Whether a disturbed folder ended equal, or was refused unchanged."""
        if done.returncode == REFUSED and before is not None:
            sentence = done.stderr.strip()
            kept = contents(folder)
            lost = [name for name in before if kept.get(name) != before[name]]
            good = not lost and "Traceback" not in sentence and len(sentence) < 600
            ending = f"lost {lost}" if lost else f"refused: {sentence[:200]}"
            return Trial(fault, what, good, ending)
        if done.returncode:
            return Trial(fault, what, False, f"failed: {done.stderr[-300:]}")
        expected, got = facts_of(self.folder), facts_of(folder)
        wrong = [name for name in expected if got.get(name) != expected[name]]
        ending = f"differs: {wrong}" if wrong else "equal"
        return Trial(fault, what, not wrong, ending)


def undisturbed(work: Work, folder: pathlib.Path, *, warm: bool) -> Undisturbed:
    """Makes it and takes the time; made twice, the second time has `warm` caches."""
    for name in ("warm", "whole") if warm else ("whole",):
        began = time.perf_counter()
        done = work.finish(folder / name)
        life = time.perf_counter() - began
        if done.returncode:
            raise RuntimeError(f"the undisturbed run failed: {done.stderr}")
    return Undisturbed(work, folder / "whole", life)


def kill(whole: Undisturbed, folder: pathlib.Path, seconds: float) -> Trial:
    """Kills it after a while, and resumes it."""
    process = whole.work.start(folder, *whole.work.resume)
    try:
        process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    rows = sum(
        len(records.read_rounds(manifest.parent))
        for manifest in folder.rglob(records.MANIFEST)
    )
    done = whole.work.finish(folder, *whole.work.resume)
    what = f"{whole.work.program} after {seconds:.1f} s, {rows} rounds recorded"
    return whole.judge("killed", what, folder, done)


def fill_disk(whole: Undisturbed, folder: pathlib.Path) -> Iterator[Trial]:
    """Writes fail on the way; resumed where they do not."""
    command = whole.work.command(folder, "--perf.cache_dir=")
    limited = ["bash", "-c", f'ulimit -f {_FULL_KB} && exec "$@"', "limited", *command]
    done = subprocess.run(limited, cwd=run_facts.ROOT, capture_output=True, text=True)
    told = done.returncode == REFUSED and "Traceback" not in done.stderr
    yield Trial("full disk", whole.work.program, told, done.stderr.strip()[-200:])
    done = whole.work.finish(folder, *whole.work.resume)
    yield whole.judge("full disk, resumed", whole.work.program, folder, done)


def share_folder(whole: Undisturbed, folder: pathlib.Path) -> Iterator[Trial]:
    """A second process in the folder of the first."""
    first = whole.work.start(folder)
    while not list(folder.rglob(records.ROUNDS)) and first.poll() is None:
        time.sleep(0.05)
    second = whole.work.finish(folder, *whole.work.resume)
    told = second.returncode != 0 and "Traceback" not in second.stderr
    yield Trial("second process", "the second", told, second.stderr.strip()[-200:])
    _, errors = first.communicate()
    done = subprocess.CompletedProcess([], first.returncode, "", errors)
    yield whole.judge("second process", "the first", folder, done)


def forbid_writing(whole: Undisturbed, scratch: pathlib.Path) -> Trial:
    """A folder that cannot be written to; for an administrator, one of the kernel."""
    folder = scratch / "closed"
    if os.geteuid() == 0:
        folder = pathlib.Path("/proc/closed")
    else:
        folder.mkdir(mode=0o555)
    done = whole.work.finish(folder / "run")
    told = done.returncode == REFUSED and "Traceback" not in done.stderr
    return Trial("no writing", whole.work.program, told, done.stderr.strip()[-200:])


def damage(
    whole: Undisturbed, scratch: pathlib.Path, chance: random.Random
) -> Iterator[Trial]:
    """Every file of a run that was killed just before DONE, damaged in two ways."""
    names = [name for name in contents(whole.folder) if name != records.DONE]
    for name in names:
        for way in ("cut off", "one bit turned"):
            folder = scratch / f"{name.replace('/', '_')}_{way.replace(' ', '_')}"
            shutil.copytree(whole.folder, folder)
            (folder / records.DONE).unlink()
            spoil(folder / name, way, chance)
            before = contents(folder)
            done = whole.work.finish(folder, *whole.work.resume)
            yield whole.judge("damaged file", f"{name}, {way}", folder, done, before)
            shutil.rmtree(folder)


def spoil(path: pathlib.Path, way: str, chance: random.Random) -> None:
    """Damages a file; an empty one cannot be."""
    content = bytearray(path.read_bytes())
    if not content:
        return
    place = chance.randrange(len(content))
    if way == "cut off":
        content = content[:place]
    else:
        content[place] ^= 1 << chance.randrange(8)
    path.write_bytes(bytes(content))


def measure(
    kills: int,
    seed: int,
    run: Sequence[str] = SMALL,
    sweep: Sequence[str] = (*SMALL, *GRID),
    faults: bool = True,
) -> dict[str, Any]:
    """All disturbances; `faults` are those other than kills."""
    chance = random.Random(seed)
    works = (
        Work("experiments.run", tuple(run), ("--resume",)),
        Work("experiments.sweep", tuple(sweep)),
    )
    made: list[Trial] = []
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        whole = [
            undisturbed(work, scratch / work.program, warm=faults)
            for work in works[: min(kills, 2)]
        ]
        for number in tqdm(range(kills), desc="kills", disable=None):
            each = whole[number % len(whole)]
            folder = scratch / f"killed_{number}"
            made.append(kill(each, folder, chance.uniform(0, each.life_s)))
            shutil.rmtree(folder)
        if faults:
            made += fill_disk(whole[0], scratch / "full")
            made += share_folder(whole[0], scratch / "shared")
            made.append(forbid_writing(whole[0], scratch))
            damaged = damage(whole[0], scratch, chance)
            made += tqdm(damaged, desc="damaged files", disable=None)
    lives = {each.work.program: each.life_s for each in whole}
    told = [
        trial._replace(ending=trial.ending.replace(name, "FOLDER")) for trial in made
    ]
    return {"life_s": lives, "trials": [trial._asdict() for trial in told]}
