"""The server's model on disk, by Orbax: whole or not at all, and checked when read.

Beside every checkpoint lies a checksum of its files. It is compared before Orbax opens
them: reading damaged arrays fails in threads of its storage, some of them too late for
anybody to hear.

The model and the number of rounds behind it are all the state a run has: schedules are
planned ahead, and random numbers are named by round and client.
"""

import hashlib
import logging
import pathlib
import sys
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from dpsparfl_jax.errors import InputError, StorageError
from dpsparfl_jax.records import write_whole
from dpsparfl_jax.types import Params

FOLDER = "checkpoints"
_KEPT = 2  # the newest, and one to fall back to
_PARAMS, _FACTS = "params", "facts"
_CHECKSUM = ".sha256"  # ending of the file beside a checkpoint


class Restored(NamedTuple):
    """A checkpoint that was found good."""

    rounds: int  # that are behind it; 0: from the start
    params: Params | None
    complaints: list[str]  # checkpoints that were passed over, and why


def digest(params: Params) -> str:
    """A hash of names, shapes, types and every bit."""
    total = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
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
            create=not read_only,
            enable_async_checkpointing=False,
            cleanup_tmp_directories=not read_only,
            read_only=read_only,
        )
        logger = logging.getLogger("absl")
        level = logger.level
        try:
            if read_only:  # Orbax warns of what was asked for
                logger.setLevel(logging.ERROR)
            self._manager = ocp.CheckpointManager(self.path, options=options)
        except (OSError, ValueError, RuntimeError) as reason:
            raise self._failure(reason) from None
        finally:
            logger.setLevel(level)

    def save(self, rounds: int, params: Params) -> None:
        """Keeps the model after so many rounds."""
        facts = {"rounds": rounds, "digest": digest(params)}
        items = ocp.args.Composite(
            params=ocp.args.StandardSave(params), facts=ocp.args.JsonSave(facts)
        )
        try:
            self._manager.save(rounds, args=items, force=True)
            write_whole(self._checksum(rounds), _digest_files(self.path / str(rounds)))
            self._forget_checksums()
        except (OSError, ValueError, RuntimeError) as reason:
            raise self._failure(reason) from None

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

    def restore(self, like: Params | None, most: int) -> Restored:
        """The newest good checkpoint after at most `most` rounds.

        `like` has the shapes that are expected, if they are known.
        """
        complaints = []
        for rounds in sorted(self._manager.all_steps(), reverse=True):
            if rounds > most:
                complaints.append(
                    f"checkpoint {rounds} is ahead of the {most} recorded rounds"
                )
                continue
            try:
                return Restored(rounds, self._read(rounds, like), complaints)
            except Exception as reason:  # Orbax raises what its storage raises
                first = str(reason).strip().splitlines() or [type(reason).__name__]
                complaints.append(f"checkpoint {rounds} is damaged ({first[0][:120]})")
        return Restored(0, None, complaints)

    def _read(self, rounds: int, like: Params | None) -> Params:
        known = self._checksum(rounds)  # missing if the run was killed just before it
        if known.is_file():
            if known.read_text() != _digest_files(self.path / str(rounds)):
                raise ValueError("its files do not match their checksum")
        items = ocp.args.Composite(
            params=ocp.args.StandardRestore(), facts=ocp.args.JsonRestore()
        )
        read: Any = self._manager.restore(rounds, args=items)
        params = jax.tree.map(np.asarray, read[_PARAMS])
        if read[_FACTS] != {"rounds": rounds, "digest": digest(params)}:
            raise ValueError("its contents do not match their checksum")
        if like is not None and _shapes(params) != _shapes(like):
            raise ValueError("it belongs to a model of other shapes")
        return params

    def close(self) -> None:
        """Ends Orbax's threads."""
        self._manager.close()

    def _failure(self, reason: Exception) -> StorageError:
        first = (str(reason).strip().splitlines() or [type(reason).__name__])[0]
        return StorageError(
            f"cannot write a checkpoint to {self.path} ({first[:160]}): make room or "
            "choose another --out; what was written before is kept."
        )


def _digest_files(folder: pathlib.Path) -> str:
    total = hashlib.sha256()
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        content = file.read_bytes()
        total.update(f"{file.relative_to(folder)} {len(content)} ".encode() + content)
    return total.hexdigest()


def _shapes(params: Params) -> Any:
    return jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), params)


def load_params(folder: str | pathlib.Path) -> Params:
    """The last good model of a recorded run."""
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
    return restored.params
