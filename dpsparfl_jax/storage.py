"""Files that are written whole or not at all, and folders held by one process."""

import contextlib
import os
import pathlib
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

from dpsparfl_jax.errors import InputError, StorageError

# What zipfile and NumPy's header parser raise on damaged npz files.
UNREADABLE = (
    KeyError,
    ValueError,
    OSError,
    EOFError,
    MemoryError,  # a header that promises more than there is room for
    NotImplementedError,
    OverflowError,
    RuntimeError,
    SyntaxError,
    TypeError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
PART = ".part"  # ending of a file that is not whole yet


@contextlib.contextmanager
def writing(path: pathlib.Path) -> Iterator[None]:
    """Turns a failure to write into one sentence."""
    try:
        yield
    except OSError as reason:
        raise StorageError(
            f"cannot write {path} ({reason.strerror or reason}): make room or choose "
            "another folder; what was written before is kept."
        ) from None


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A file beside `path` to write to; it takes the place of `path` at the end.

    No reader ever sees half of it, and if writing fails the old file stays. Errors come
    through as they are: `writing` makes sentences of them.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}{PART}")
    try:
        yield part
        with open(part, "rb") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_whole(path: pathlib.Path, text: str) -> None:
    """Writes a text file so that no reader ever sees half of it."""
    with writing(path), replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def refuse_held(file: pathlib.Path) -> None:
    """Refuses the folder of a lock that another process holds right now."""
    import fcntl

    if not file.is_file():
        return
    with writing(file), open(file) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _held(file) from None


def _held(file: pathlib.Path) -> InputError:
    return InputError(
        f"another process is writing to {file.parent}: wait for it, or choose another "
        "folder."
    )


class FolderLock:
    """Keeps other processes out of a folder; it goes with the process that holds it."""

    def __init__(self, file: pathlib.Path) -> None:
        """Takes hold of the folder of `file`, or says who has it."""
        import fcntl  # only where folders are written: not every system has it

        with writing(file):
            self._file: IO[str] = open(file, "w")
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._file.close()
                raise _held(file) from None
            except OSError:
                self._file.close()
                raise

    def release(self) -> None:
        """Lets others have the folder."""
        self._file.close()
