"""One folder a run: what is written there, and frames read back from it.

    manifest.json   settings, seed, versions, device: written first
    schedule.npz    the whole plan
    rounds.jsonl    one object a round, appended as rounds come back
    checkpoints/    the server's model now and then, and at the end
    clients.csv     one row a client, after the last round
    DONE            written last: the run is complete

Files that are written at once are written whole or not at all. A folder belongs to one
process at a time.
"""

import contextlib
import csv
import dataclasses
import hashlib
import io
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any, NamedTuple

import pandas as pd

from dpsparfl_jax import config, config_values
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning import schedule as schedule_lib
from dpsparfl_jax.planning.schedule import Schedule
from dpsparfl_jax.records.columns import Row
from dpsparfl_jax.storage import PART, FolderLock, write_whole, writing

MANIFEST, ROUNDS, CLIENTS = "manifest.json", "rounds.jsonl", "clients.csv"
SCHEDULE, DONE, LOCK = "schedule.npz", "DONE", ".lock"
CHECKPOINTS = "checkpoints"
OWN_CODE = "own_code"  # in manifests: what users registered, and a run uses
_ADDED = {"server", "records"}  # sections that early manifests do not have


class RunFolder:
    """A run's folder while it is being written; `close` lets others have it."""

    def __init__(self, path: pathlib.Path) -> None:
        """Makes the folder and takes hold of it."""
        self.path = path
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        self._lock = FolderLock(path / LOCK)
        for part in path.glob(f"*{PART}"):  # left by a process that was killed
            with contextlib.suppress(OSError):
                part.unlink()
        self._rounds: IO[str] | None = None

    def start(self, manifest: dict[str, Any], schedule: Schedule) -> None:
        """Writes what is known before training."""
        self.keep_schedule(schedule)
        self.keep_manifest(manifest)

    def keep_manifest(self, manifest: dict[str, Any]) -> None:
        """Writes settings, versions and device."""
        write_whole(self.path / MANIFEST, json.dumps(manifest, indent=1) + "\n")

    def forget_end(self) -> None:
        """Removes what says that the run is complete: more rounds follow."""
        for name in (DONE, CLIENTS):
            with writing(self.path / name):
                (self.path / name).unlink(missing_ok=True)

    def keep_schedule(self, schedule: Schedule) -> None:
        """Writes the plan."""
        target = self.path / SCHEDULE
        with writing(target):
            schedule_lib.save(schedule, target)

    def set_damaged_rounds_aside(self) -> str:
        """Keeps a copy of rows that follow a damaged one; says where, if there are."""
        text = _rounds_text(self.path)
        whole = len(read_rounds(self.path))
        if text.count("\n") <= whole:  # at most a last line that was cut off
            return ""
        return f"line {whole + 1} of {ROUNDS} is damaged ({self.copy_rounds_aside()})"

    def copy_rounds_aside(self) -> str:
        """Keeps a copy of all rows, whatever they hold; says where."""
        aside = self.path / f"{ROUNDS}.damaged"
        write_whole(aside, _rounds_text(self.path))
        return f"all is kept in {aside.name}"

    def digest_rounds(self, count: int) -> str:
        """A hash of the first rows."""
        lines = _rounds_text(self.path).splitlines(keepends=True)[:count]
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def open_rounds(self, keep: int) -> None:
        """Opens the table of rounds after its first `keep` rows."""
        kept = read_rounds(self.path)[:keep]
        write_whole(self.path / ROUNDS, "".join(map(_line, kept)))
        with writing(self.path / ROUNDS):
            self._rounds = open(self.path / ROUNDS, "a", encoding="utf-8")

    def add_round(self, row: Row) -> None:
        """Appends one row; it outlives this process at once."""
        assert self._rounds is not None
        with writing(self.path / ROUNDS):
            self._rounds.write(_line(row))
            self._rounds.flush()

    def sync(self) -> None:
        """Makes sure that all rows outlive the machine."""
        assert self._rounds is not None
        with writing(self.path / ROUNDS):
            os.fsync(self._rounds.fileno())

    def write_clients(self, clients: Sequence[Row]) -> None:
        """Writes the table of clients."""
        text = io.StringIO()
        table = csv.DictWriter(text, fieldnames=list(clients[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(clients)
        write_whole(self.path / CLIENTS, text.getvalue())

    def digest_clients(self) -> str:
        """A hash of the table of clients; empty if there is none."""
        path = self.path / CLIENTS
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""

    def finish(self, facts: dict[str, Any]) -> None:
        """Writes DONE."""
        write_whole(self.path / DONE, json.dumps(facts) + "\n")

    def close(self) -> None:
        """Closes files and lets the folder go."""
        if self._rounds is not None:
            with contextlib.suppress(OSError):
                self._rounds.close()
        self._lock.release()


def _line(row: Row) -> str:
    return json.dumps(row, allow_nan=False) + "\n"


def read_rounds(path: pathlib.Path) -> list[Row]:
    """Rows up to the first that is not whole or not in order."""
    rows: list[Row] = []
    for line in _rounds_text(path).splitlines(keepends=True):
        try:
            row = json.loads(line)
        except ValueError:
            break
        whole = line.endswith("\n") and isinstance(row, dict)
        if not whole or row.get("round") != len(rows) + 1:
            break
        rows.append(row)
    return rows


def _rounds_text(path: pathlib.Path) -> str:
    try:
        return (path / ROUNDS).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def read_manifest(path: pathlib.Path) -> dict[str, Any]:
    """The manifest of a run, or a clear refusal."""
    try:
        content = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        content["config"] = config_values.modern_names(content["config"])
        for section in _ADDED - set(content["config"]):  # they had their defaults
            default = config_values.as_dict(config.RunConfig())[section]
            content["config"][section] = default
        # Before there was a choice, runs of one seed shared noise.
        content["config"]["privacy"].setdefault("noise_key", "paired")
        for section in (*config.SECTIONS, "seed"):
            content["config"][section]
    except (
        *(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError),
    ) as reason:
        raise InputError(
            f"{path / MANIFEST} is no manifest of a run, or a damaged one ({reason})."
        ) from None
    return content


def is_private(manifest: dict[str, Any]) -> bool:
    """Whether the epsilons of a run cover all that it does with records."""
    noise = manifest["config"].get("privacy", {}).get("noise", True)
    return bool(noise) and bool(manifest.get("clip_norm", {}).get("private", True))


def privacy_words(manifest: dict[str, Any]) -> str:
    """What the epsilons of a run mean: delta and accountant, or why they mean nothing.

    Examples:
        >>> privacy_words({"config": {"privacy": {"noise": False}}})
        'not private: no noise is added'
    """
    privacy = manifest["config"].get("privacy", {})
    if not privacy.get("noise", True):
        return "not private: no noise is added"
    if not is_private(manifest):
        return "not private: the clip norm is a median of raw gradients"
    return f"delta = {privacy.get('delta')}, {privacy.get('accountant')} accountant"


@dataclasses.dataclass(frozen=True)
class RecordedRun:
    """A run as its folder tells it; frames are empty where nothing is there yet.

    Attributes:
        name: what tells it apart from the runs it was found with.
        path: its folder.
        manifest: settings, versions, device, warnings: what `manifest.json` has.
        rounds: one row a round.
        clients: one row a client; empty until the run is complete.
        facts: how many rounds it had and why it ended; empty until it is complete.

    Examples:
        >>> import dpsparfl_jax as fl
        >>> for run in fl.find_runs(["runs"]):  # doctest: +SKIP
        ...     if run.done:
        ...         print(run.name, run.settings.seed, run.rounds["accuracy"].iloc[-1])
    """

    name: str
    path: pathlib.Path
    manifest: dict[str, Any]
    rounds: pd.DataFrame
    clients: pd.DataFrame
    facts: dict[str, Any]  # what DONE says; empty while the run is unfinished

    @property
    def done(self) -> bool:
        """Whether the run is complete."""
        return bool(self.facts)

    @property
    def private(self) -> bool:
        """Whether its epsilons cover all that the run does with records."""
        return is_private(self.manifest)

    @property
    def settings(self) -> config.RunConfig:
        """What it was run with."""
        return config_values.from_dict(self.manifest["config"])

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user must not overlook; version 0.1 wrote one sentence."""
        told = self.manifest.get("warnings", [self.manifest.get("warning", "")])
        return tuple(filter(None, told))

    @property
    def schedule(self) -> Schedule:
        """The plan, read anew."""
        return schedule_lib.load(self.path / SCHEDULE)


class Tables(NamedTuple):
    """What a run's folder holds beside its manifest."""

    rounds: list[Row]
    clients: pd.DataFrame
    facts: dict[str, Any]  # what DONE says; empty while the run is unfinished


def read_tables(folder: pathlib.Path) -> Tables:
    """Rounds, clients and DONE; refuses a finished run that has lost some of them."""
    rounds, facts = read_rounds(folder), _read_facts(folder / DONE)
    clients = _read_clients(folder / CLIENTS)
    least = facts.get("clients", 1)  # versions before 0.3 did not write it
    if facts and (len(rounds) != facts["rounds"] or len(clients) < least):
        raise InputError(
            f"{folder} holds a finished run of {facts['rounds']} rounds, but {ROUNDS} "
            f"has only {len(rounds)} that are whole, or {CLIENTS} is missing or cut "
            f"off: restore them, or delete {DONE} and resume the run."
        )
    return Tables(rounds, clients, facts)


def load_run(path: str | os.PathLike[str], name: str = "") -> RecordedRun:
    """Reads one run's folder."""
    folder = pathlib.Path(path)
    tables = read_tables(folder)
    return RecordedRun(
        name or folder.name,
        folder,
        read_manifest(folder),
        pd.DataFrame(tables.rounds),
        tables.clients,
        tables.facts,
    )


def _read_clients(path: pathlib.Path) -> pd.DataFrame:
    if not path.is_file():
        return pd.DataFrame()
    try:
        content = path.read_text(encoding="utf-8")
        if not content.endswith("\n"):
            raise ValueError("it ends within a line")
        table = pd.read_csv(io.StringIO(content))
        table["epsilon_spent"]
    except (OSError, ValueError, KeyError) as reason:
        raise InputError(
            f"{path} is no table of clients, or a damaged one ({reason})."
        ) from None
    return table


def _read_facts(path: pathlib.Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        return {"rounds": facts["rounds"], **facts}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as reason:
        raise InputError(
            f"{path} is damaged ({reason}): delete it and resume the run."
        ) from None


def find_runs(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    damaged: Callable[[str], None] | None = None,
) -> list[RecordedRun]:
    """Finds all recorded runs in these folders and below.

    Args:
        paths: a folder of a run, or one that has such folders in it; or several.
        damaged: hears of each run that cannot be read, which is then left out.

    Returns:
        The runs, finished or not, in order of their paths; a run's name is that of its
        folder, or its path below the common folder where two names are the same.

    Raises:
        InputError: if a folder holds no run, or a run in it is damaged and nobody
            hears of it, or all are.

    Examples:
        >>> import dpsparfl_jax as fl
        >>> settings = fl.RunConfig(
        ...     data=fl.DataConfig(num_clients=4, train_examples=100, test_examples=10),
        ...     model=fl.ModelConfig(name="logistic"),
        ...     training=fl.TrainingConfig(local_steps=2),
        ...     wireless=fl.WirelessConfig(num_channels=2, cycles_per_sample=1e6),
        ...     schedule=fl.ScheduleConfig(delay_target_s=1.0),
        ...     length=fl.LengthConfig(rounds=2),
        ... )
        >>> result = fl.simulate(settings, out="runs/first")
        >>> [(run.name, run.done, len(run.rounds)) for run in fl.find_runs(["runs"])]
        [('first', True, 2)]
    """
    folders: list[pathlib.Path] = []
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    for path in map(pathlib.Path, paths):
        below = sorted(file.parent for file in path.rglob(MANIFEST))
        if not below:
            raise InputError(f"there is no recorded run in {path}.")
        folders += [folder.resolve() for folder in below]
    folders = list(dict.fromkeys(folders))
    found = []
    for folder, name in zip(folders, names_of(folders), strict=True):
        try:
            found.append(load_run(folder, name))
        except InputError as reason:
            last = folder == folders[-1] and not found
            if damaged is None or last:
                raise
            damaged(str(reason))
    return found


def names_of(folders: Sequence[pathlib.Path]) -> list[str]:
    """What to call runs: by folder, or by path below the common one if names clash."""
    names = [folder.name for folder in folders]
    if len(set(names)) == len(names):
        return names
    root = os.path.commonpath(folders)
    return [os.path.relpath(folder, root) for folder in folders]
