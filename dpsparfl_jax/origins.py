"""Where code that is not the package's own comes from: which file, which content.

A run that a policy or model of one's own made can be told from a run that a later
version of that code would make, because what is registered is looked at when it is
registered: afterwards its file may already be another one.
"""

import contextlib
import contextvars
import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple


class Origin(NamedTuple):
    """What is known about a registered entry's code; empty where nothing is."""

    plugin: str = ""  # name of the file, or the module, that was being loaded
    file_sha256: str = ""  # of that whole file
    source_sha256: str = ""  # of the entry's own source


_loading: contextvars.ContextVar[Origin | None] = contextvars.ContextVar(
    "loading", default=None
)


@contextlib.contextmanager
def loading(plugin: str, content: bytes | None) -> Iterator[None]:
    """What is registered within comes from this plugin, whose file has this content."""
    token = _loading.set(Origin(plugin, digest(content) if content else ""))
    try:
        yield
    finally:
        _loading.reset(token)


def origin_of(entry: Any) -> Origin:
    """Where an entry that is being registered comes from."""
    return (_loading.get() or Origin())._replace(source_sha256=_source_digest(entry))


def _source_digest(entry: Any) -> str:
    """A hash of an entry's source; empty if there is none, as for what `exec` made."""
    import inspect  # not needed where nothing of one's own is registered

    with contextlib.suppress(OSError, TypeError, SyntaxError):
        return digest(inspect.getsource(entry).encode())
    # Cells of a notebook are known as the source of functions, but not of classes.
    methods = filter(inspect.isfunction, getattr(entry, "__dict__", {}).values())
    with contextlib.suppress(OSError, TypeError, SyntaxError):
        sources = [inspect.getsource(method) for method in methods]
        return digest("".join(sources).encode()) if sources else ""
    return ""


def digest(content: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()
