"""The server's state on disk, by Orbax: whole or not at all, and checked when read.

Beside every checkpoint lies a checksum of its files. It is compared before Orbax opens
them: reading damaged arrays fails in threads of its storage, some of them too late for
anybody to hear.

The server's state and the number of rounds behind it are all the state a run has:
schedules are planned ahead, and random numbers are named by round and client.
"""

import errno
import hashlib
import logging
import os
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from dpsparfl_jax.errors import InputError, StorageError, first_line
from dpsparfl_jax.records import CHECKPOINTS
from dpsparfl_jax.runner import processes
from dpsparfl_jax.storage import write_whole
from dpsparfl_jax.types import Params, ServerState

FOLDER = CHECKPOINTS
_KEPT = 2  # the newest, and one to fall back to
_PARAMS, _OPTIMIZER, _AVERAGE, _FACTS = "params", "optimizer", "average", "facts"
_CHECKSUM = ".sha256"  # ending of the file beside a checkpoint
_ROOM = ".room"  # a file that lies there for a moment, to see whether there is room


class Restored(NamedTuple):
    """A checkpoint that was found good."""

    rounds: int  # that are behind it; 0: from the start
    params: Params | None
    optimizer: list[Any]  # leaves of the optimizers' states: server's, then clients'
    average: Params | None
    complaints: list[str]  # checkpoints that were passed over, and why


def digest(tree: Any) -> str:
    """A hash of names, shapes, types and every bit."""
    total = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = np.asarray(leaf)
        label = f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}"
        total.update(label.encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, folder: pathlib.Path, *, read_only: bool = False) -> None:
        """Opens (and makes) `folder/checkpoints`; a reader disturbs no writer."""
        self.path = folder.resolve() / FOLDER
        options = ocp.CheckpointManagerOptions(
            max_to_keep=None if read_only else _KEPT,
            save_interval_steps=0 if read_only else 1,
            create=False,
            enable_async_checkpointing=False,
            cleanup_tmp_directories=not read_only,
            read_only=read_only,
            multiprocessing_options=_this_process_only(),
        )
        logger = logging.getLogger("absl")
        level = logger.level
        try:
            if read_only:  # Orbax warns of what was asked for
                logger.setLevel(logging.ERROR)
            else:
                self.path.mkdir(parents=True, exist_ok=True)
            self._manager = ocp.CheckpointManager(self.path, options=options)
        except (OSError, ValueError, RuntimeError) as reason:
            raise self._failure(reason) from None
        finally:
            logger.setLevel(level)

    def save(
        self, rounds: int, state: ServerState, beside: Mapping[str, str] | None = None
    ) -> None:
        """Keeps the server's state after so many rounds, and hashes of other files."""
        items: dict[str, Any] = {_PARAMS: ocp.args.StandardSave(state.params)}
        optimizer = jax.tree.leaves((state.optimizer, state.clients))
        if optimizer:  # plain addition has no state, and Orbax saves no empty tree
            items[_OPTIMIZER] = ocp.args.StandardSave(_numbered(optimizer))
        average = None if _same(state.average, state.params) else state.average
        if average is not None:  # else the parameters say it all
            items[_AVERAGE] = ocp.args.StandardSave(average)
        content = _digest_all(state.params, optimizer, average)
        facts = {"rounds": rounds, "digest": content, "beside": dict(beside or {})}
        items[_FACTS] = ocp.args.JsonSave(facts)
        try:
            self._check_room(_bytes_of((state.params, optimizer, average)))
        except OSError as reason:
            raise self._failure(reason) from None
        # Threads of the storage log what is raised here, some of them a moment later:
        # after a failure they stay silent.
        logger = logging.getLogger("absl")
        level = logger.level
        logger.setLevel(logging.CRITICAL)
        try:
            self._manager.save(rounds, args=ocp.args.Composite(**items), force=True)
            write_whole(self._checksum(rounds), _digest_files(self.path / str(rounds)))
            self._forget_checksums()
        except (OSError, ValueError, RuntimeError) as reason:
            raise self._failure(reason) from None
        logger.setLevel(level)

    def _check_room(self, size: int) -> None:
        """Raises OSError if so many bytes do not fit: Orbax itself fails at length."""
        if not hasattr(os, "posix_fallocate"):
            return
        path = self.path / _ROOM
        room = os.open(path, os.O_CREAT | os.O_WRONLY)
        try:
            os.posix_fallocate(room, 0, max(size, 1))
        except OSError as reason:
            if reason.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
        finally:
            os.close(room)
            path.unlink()

    def forget_after(self, rounds: int) -> None:
        """Removes checkpoints that lie ahead: they will be made again."""
        for step in self._manager.all_steps():
            if step > rounds:
                self._manager.delete(step)
        self._forget_checksums()

    def _checksum(self, rounds: int) -> pathlib.Path:
        return self.path / f"{rounds}{_CHECKSUM}"

    def _forget_checksums(self) -> None:
        kept = set(map(self._checksum, self._manager.all_steps()))
        for file in set(self.path.glob(f"*{_CHECKSUM}")) - kept:
            file.unlink()

    def restore(
        self,
        like: ServerState | None,
        most: int,
        misfit: Callable[[int, Mapping[str, str]], str] = lambda rounds, beside: "",
    ) -> Restored:
        """The newest good checkpoint after at most `most` rounds.

        `like` has the shapes that are expected, if they are known; `misfit` says what
        other files lack, given the number of rounds and the hashes saved beside.
        """
        complaints = []
        for rounds in sorted(self._manager.all_steps(), reverse=True):
            if rounds > most:
                complaints.append(
                    f"checkpoint {rounds} is ahead of the {most} recorded rounds"
                )
                continue
            try:
                params, optimizer, average, beside = self._read(rounds, like)
            except Exception as reason:  # Orbax raises what its storage raises
                first = first_line(reason, type(reason).__name__)
                complaints.append(f"checkpoint {rounds} is damaged ({first[:120]})")
                continue
            complaint = misfit(rounds, beside)
            if not complaint:
                return Restored(rounds, params, optimizer, average, complaints)
            complaints.append(complaint)
        return Restored(0, None, [], None, complaints)

    def _read(
        self, rounds: int, like: ServerState | None
    ) -> tuple[Params, list[Any], Params, Mapping[str, str]]:
        checksum = self._checksum(rounds)  # missing if killed just before it
        if checksum.is_file():
            if checksum.read_text() != _digest_files(self.path / str(rounds)):
                raise ValueError("its files do not match their checksum")
        items = {_PARAMS: ocp.args.StandardRestore(), _FACTS: ocp.args.JsonRestore()}
        for name in (_OPTIMIZER, _AVERAGE):
            if (self.path / str(rounds) / name).is_dir():
                items[name] = ocp.args.StandardRestore()
        read: Any = self._manager.restore(rounds, args=ocp.args.Composite(**items))
        params = jax.tree.map(np.asarray, read[_PARAMS])
        numbered = read[_OPTIMIZER] if _OPTIMIZER in items else {}
        optimizer = [np.asarray(numbered[name]) for name in sorted(numbered)]
        average = None
        if _AVERAGE in items:
            average = jax.tree.map(np.asarray, read[_AVERAGE])
        content = _digest_all(params, optimizer, average)
        facts = {"rounds": rounds, "digest": content}
        average = params if average is None else average
        beside = read[_FACTS].pop("beside", {})  # versions before 0.3 had none
        if read[_FACTS] != facts:
            raise ValueError("its contents do not match their checksum")
        if like is not None:
            leaves = jax.tree.leaves((like.optimizer, like.clients))
            expected = like.params, leaves, like.params
            if _shapes((params, optimizer, average)) != _shapes(expected):
                raise ValueError("it belongs to a model or server of other shapes")
        return params, optimizer, average, beside

    def close(self) -> None:
        """Ends Orbax's threads."""
        self._manager.close()

    def _failure(self, reason: Exception) -> StorageError:
        first = first_line(reason, type(reason).__name__)
        # The storage wraps the system's words into names of its own files.
        known = [text for text in map(os.strerror, errno.errorcode) if text in first]
        what = max(known, key=len, default=first[:160])
        return StorageError(
            f"cannot write a checkpoint to {self.path} ({what}): make room or "
            "choose another folder; what was written before is kept."
        )


def _this_process_only() -> ocp.options.MultiprocessingOptions:
    """Among several processes Orbax would wait for the others, which write nothing."""
    together = processes.current()
    if together.count == 1:
        return ocp.options.MultiprocessingOptions()
    return ocp.options.MultiprocessingOptions(
        primary_host=together.index, active_processes={together.index}
    )


def _bytes_of(tree: Any) -> int:
    """Of all arrays of a tree."""
    return sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(tree))


def _digest_files(folder: pathlib.Path) -> str:
    total = hashlib.sha256()
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        content = file.read_bytes()
        total.update(f"{file.relative_to(folder)} {len(content)} ".encode() + content)
    return total.hexdigest()


def _numbered(leaves: list[Any]) -> dict[str, Any]:
    """Leaves by a name that sorts in their order: Orbax keeps no types of ours."""
    return {f"{number:04d}": leaf for number, leaf in enumerate(leaves)}


def _digest_all(params: Params, optimizer: list[Any], average: Params | None) -> str:
    if average is not None:
        return digest((params, optimizer, average))
    return digest((params, optimizer)) if optimizer else digest(params)


def _same(one: Params, other: Params) -> bool:
    return all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(other)))


def _shapes(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: (np.shape(leaf), str(leaf.dtype)), tree)


def load_params(folder: str | pathlib.Path, *, averaged: bool = False) -> Params:
    """The last good model of a recorded run.

    Args:
        folder: a run's folder, as `simulate(settings, out=folder)` and the commands
            write it.
        averaged: whether to give the average of models (`server.averaging`) instead of
            the last one; without averaging both are the same.

    Returns:
        The server's parameters as Flax made them: a nested dict of arrays.

    Raises:
        InputError: if there is no checkpoint, or none that is whole.

    Examples:
        >>> import dpsparfl_jax as fl
        >>> params = fl.load_params("runs/first")  # doctest: +SKIP
        >>> params["Dense_0"]["kernel"].shape  # doctest: +SKIP
        (784, 10)
    """
    path = pathlib.Path(folder)
    if not (path / FOLDER).is_dir():
        raise InputError(f"there are no checkpoints in {path}.")
    checkpoints = Checkpoints(path, read_only=True)
    try:
        restored = checkpoints.restore(None, most=sys.maxsize)
    finally:
        checkpoints.close()
    if restored.params is None:
        reason = "; ".join(restored.complaints) or "it has none"
        raise InputError(f"no checkpoint of {path} can be used: {reason}.")
    return restored.average if averaged else restored.params
