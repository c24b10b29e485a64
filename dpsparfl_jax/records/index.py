"""What is known about the finished runs of a sweep, in one file beside their folders.

    index.jsonl     one line a finished run: settings, summary, thinned curves

It is a cache: folders are the truth. A line counts while the run's DONE is the file
that it was made from; a run without such a line, or with a damaged one, is read from
its folder. So the file can be deleted at any time. Each line is added by one write to
the end, which is why several processes may add to it at once without waiting for each
other; where that goes wrong a line is damaged, which its checksum tells.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dpsparfl_jax import config, config_values, own_code
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.records.columns import Row, finite, summary_columns
from dpsparfl_jax.records.folder import (
    CHECKPOINTS,
    DONE,
    MANIFEST,
    OWN_CODE,
    is_private,
    names_of,
    read_manifest,
    read_tables,
)
from dpsparfl_jax.records.rows import summarise

INDEX = "index.jsonl"
FEW = 24  # run folders in a folder: so many are quickly read, and get no index by that
CURVES = (
    *("round", "accuracy", "accuracy_averaged", "loss", "cumulative_delay_s"),
    *("cumulative_energy_j", "epsilon_max", "epsilon_mean", "keep_rate_mean"),
    *("delay_queue", "fairness_queue_mean", "live_clients"),
)
_FORMAT = 2  # of lines; others are made anew
_MOST_POINTS = 48  # of a curve, and both of its ends
_DIGITS = 6  # of the numbers of a curve


@dataclasses.dataclass(frozen=True)
class IndexedRun:
    """A run as tables of many runs need it; a small part of a `RecordedRun`.

    Attributes:
        name: what tells it apart from the runs it was found with.
        path: its folder.
        manifest: settings, planned rounds, code of one's own, whether the clip norm is
            private.
        summary: what `rows.summarise` says of it.
        done: whether it is complete.
        digest: a hash of the settings that move results; empty if unknown.
        curve_text: its thinned curves, as JSON.
    """

    name: str
    path: pathlib.Path
    manifest: dict[str, Any]
    summary: Row
    done: bool
    digest: str
    curve_text: str

    @property
    def private(self) -> bool:
        """Whether its epsilons cover all that the run does with records."""
        return is_private(self.manifest)

    @property
    def curves(self) -> dict[str, list[Any]]:
        """Columns of `CURVES` that have numbers, at some of the evaluated rounds."""
        return json.loads(self.curve_text)


def read_run(folder: pathlib.Path, name: str = "") -> IndexedRun:
    """Reads a run's folder; refuses a damaged one."""
    tables, manifest = read_tables(folder), read_manifest(folder)
    rounds = tables.rounds
    columns = ["participations", "rate"]  # that a summary is made of
    clients = tables.clients.reindex(columns=columns).itertuples(index=False)
    served = [dict(zip(columns, client, strict=True)) for client in clients]
    nothing = {**dict.fromkeys(summary_columns()), "fairness": None, "rounds": 0}
    return IndexedRun(
        name or folder.name,
        folder,
        {
            "config": manifest["config"],
            "clip_norm": {
                "private": manifest.get("clip_norm", {}).get("private", True)
            },
            "planned_rounds": manifest.get("planned_rounds"),
            OWN_CODE: manifest.get(OWN_CODE, []),
        },
        summarise(rounds, served) if rounds else nothing,
        bool(tables.facts),
        _digest(manifest["config"]),
        json.dumps(thin(rounds), separators=(",", ":")),
    )


def _digest(content: dict[str, Any]) -> str:
    try:
        return config_values.digest(config_values.from_dict(content))
    except InputError:
        return ""


def thin(rounds: Sequence[Row]) -> dict[str, list[float | None]]:
    """A run's curves at its first and last evaluated rounds and some between.

    Every evaluated round, or every second, fourth, eighth and so on: so runs of
    different lengths have rounds in common.
    """
    told = [row for row in rounds if row.get("accuracy") is not None] or list(rounds)
    step = 1
    while len(told) // step > _MOST_POINTS:
        step *= 2
    last = len(told) - 1
    kept = [
        row
        for number, row in enumerate(told)
        if number in (0, last) or not (number + 1) % step
    ]
    curves = {name: [_short(row.get(name)) for row in kept] for name in CURVES}
    return {
        name: values
        for name, values in curves.items()
        if any(value is not None for value in values)
    }


def _short(value: Any) -> float | None:
    number = finite(value)
    if number is None:
        return None
    short = float(f"{number:.{_DIGITS}g}")
    return int(short) if short.is_integer() else short


class Index:
    """The lines of one folder, read once; looked up and added to by name."""

    def __init__(self, folder: pathlib.Path) -> None:
        """Reads all good lines; the last one of a name counts."""
        self.folder = folder
        self.exists = (folder / INDEX).is_file()
        self._lines: dict[str, Row] = {}
        if self.exists:
            with contextlib.suppress(OSError):
                for line in (folder / INDEX).read_bytes().split(b"\n"):
                    if (content := _parse(line)) is not None:
                        self._lines[content["name"]] = content

    def find(self, name: str, shown: str = "") -> IndexedRun | None:
        """The finished run in the folder `name`, if its line is current."""
        line = self._lines.get(name)
        if line is None or _stamp(self.folder, name) != line["done"]:
            return None
        return IndexedRun(
            shown or name,
            self.folder / name,
            {
                "config": _with_defaults(line["settings"]),
                "clip_norm": {"private": line["clip_is_private"]},
                "planned_rounds": line["planned_rounds"],
                OWN_CODE: line.get(OWN_CODE, []),
            },
            line["summary"],
            True,
            line["digest"],
            line["curves"],
        )

    def has_finished(self, name: str, settings: config.RunConfig) -> bool:
        """Whether the folder `name` is known to hold this very run, finished."""
        line = self._lines.get(name)
        return (
            line is not None
            and line["digest"] == config_values.digest(settings)
            and _stamp(self.folder, name) == line["done"]
            and not own_code.changes(line.get(OWN_CODE), own_code.of(settings))
        )

    def read(self, name: str, shown: str = "", *, keep: bool = True) -> IndexedRun:
        """The run in the folder `name`: from its line, or else from the folder.

        A finished one that had no line gets one, if it is to `keep` it.
        """
        known = self.find(name, shown)
        if known is not None:
            return known
        stamp = _stamp(self.folder, name)  # before reading: it may change meanwhile
        run = read_run(self.folder / name, shown or name)
        if keep and run.done and stamp is not None:
            self._add(name, stamp, run)
        return run

    def _add(self, name: str, stamp: list[int], run: IndexedRun) -> None:
        """Appends a line; a folder that cannot be written has no index."""
        content = {
            "format": _FORMAT,
            "name": name,
            "done": stamp,
            "digest": run.digest,
            "defaults": _defaults_digest(),
            "settings": _changes(run.manifest["config"]),
            "clip_is_private": run.manifest["clip_norm"]["private"],
            "planned_rounds": run.manifest["planned_rounds"],
            OWN_CODE: run.manifest[OWN_CODE],
            "summary": run.summary,
            "curves": run.curve_text,
        }
        body = json.dumps(content, separators=(",", ":"))[1:].encode()
        with contextlib.suppress(OSError):
            _append(self.folder / INDEX, _head(body) + body + b"\n")
            self.exists = True


def _append(path: pathlib.Path, line: bytes) -> None:
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        size = os.fstat(file).st_size
        cut_off = size and os.pread(file, 1, size - 1) != b"\n"
        os.write(file, b"\n" + line if cut_off else line)
    finally:
        os.close(file)


def _head(body: bytes) -> bytes:
    """How a line begins: with a checksum of the rest."""
    return b'{"check":"%08x",' % zlib.crc32(body)


_HEAD_LENGTH = len(_head(b""))


def _parse(line: bytes) -> Row | None:
    """A line's content; None if it is damaged, or from another version."""
    if line[:_HEAD_LENGTH] != _head(line[_HEAD_LENGTH:]):
        return None
    try:
        content = json.loads(line)
    except ValueError:  # a line that was cut off right after its checksum, say
        return None
    ours = (content.get("format"), content.get("defaults"))
    return content if ours == (_FORMAT, _defaults_digest()) else None


def _stamp(folder: pathlib.Path, name: str) -> list[int] | None:
    """Time and size of a run's DONE: another file is another end of the run."""
    try:
        found = os.stat(f"{folder}{os.sep}{name}{os.sep}{DONE}")
    except OSError:
        return None
    return [found.st_mtime_ns, found.st_size]


@functools.cache
def _defaults() -> dict[str, Any]:
    return config_values.as_dict(config.RunConfig())


@functools.cache
def _defaults_digest() -> str:
    """Lines hold what differs from the defaults: those of other defaults are old."""
    text = json.dumps(_defaults(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _changes(content: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are not the defaults, by section and name."""
    changes: dict[str, Any] = {}
    for section, values in content.items():
        usual = _defaults().get(section, {})
        if not isinstance(values, dict) or not isinstance(usual, dict):
            changes[section] = values
            continue
        other = {n: v for n, v in values.items() if n not in usual or usual[n] != v}
        if other:
            changes[section] = other
    return changes


def _with_defaults(changes: Mapping[str, Any]) -> dict[str, Any]:
    """All settings; sections that are as usual are shared, and not to be changed."""
    content = dict(_defaults())
    for section, values in changes.items():
        usual = content.get(section)
        if isinstance(values, dict) and isinstance(usual, dict):
            values = {**usual, **values}
        content[section] = values
    return content


class _Indexes(dict[pathlib.Path, Index]):
    """The index of every folder that is looked at, read once."""

    def __missing__(self, folder: pathlib.Path) -> Index:
        self[folder] = Index(folder)
        return self[folder]


class FoundRuns:
    """Folders of runs in some folders and below, in order of their paths.

    Attributes:
        paths: the folder of every run.
        names: what each of them is called, as `find_runs` does.
    """

    def __init__(self, folders: Iterable[str | os.PathLike[str]]) -> None:
        """Looks for runs; refuses a folder without any."""
        self._indexes = _Indexes()
        paths: list[pathlib.Path] = []
        for folder in map(pathlib.Path, folders):
            below = self._look(folder.resolve())
            if not below:
                raise InputError(f"there is no recorded run in {folder}.")
            paths += sorted(below)
        self.paths = list(dict.fromkeys(paths))
        self.names = names_of(self.paths)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.paths)

    def _look(self, folder: pathlib.Path) -> list[pathlib.Path]:
        """Run folders here and below; those that an index knows are not opened."""
        found: list[pathlib.Path] = []
        below: list[str] = []
        index = self._indexes[folder]
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name == MANIFEST and entry.is_file():
                    found.append(folder)
                elif entry.is_dir(follow_symlinks=False):
                    below.append(entry.name)
        if found:  # it is a run itself, and runs keep no runs there
            below = [name for name in below if name != CHECKPOINTS]
        for name in below:
            if index.find(name) is not None:
                found.append(folder / name)
            else:
                found += self._look(folder / name)
        return found

    def read(
        self,
        damaged: Callable[[str], None] | None = None,
        watch: Callable[[Sequence[int]], Iterable[int]] = iter,
    ) -> list[IndexedRun]:
        """All runs, from indexes where these are current.

        Folders with many runs get an index on the way, if they can be written.

        Args:
            damaged: hears of each run that cannot be read, which is then left out.
            watch: goes around the numbers of the runs, for a bar.

        Raises:
            InputError: if a run is damaged and nobody hears of it, or if all are.
        """
        counts = Counter(path.parent for path in self.paths)
        runs: list[IndexedRun] = []
        for number in watch(range(len(self))):
            path = self.paths[number]
            index = self._indexes[path.parent]
            keep = index.exists or counts[path.parent] > FEW
            try:
                runs.append(index.read(path.name, self.names[number], keep=keep))
            except InputError as reason:
                last = number == len(self) - 1 and not runs
                if damaged is None or last:
                    raise
                damaged(str(reason))
        return runs
