"""Running a command within this process: no start, and compiled programs are shared."""

import contextlib
import io
import pathlib
import runpy
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
from absl import app, flags, logging

ROOT = pathlib.Path(__file__).parent.parent


class Done(NamedTuple):
    """What a program left behind."""

    returncode: int
    stdout: str
    stderr: str


def call_program(name: str, *arguments: object, folder: pathlib.Path = ROOT) -> Done:
    """What `python -m name arguments` does in a folder: the project's, unless given.

    The module is run afresh as `__main__` with flags of its own. Whatever a program
    changes for good in its process is put back.
    """
    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    with (
        _own_flags(),
        _kept_process_state(),
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        sys.argv = [name, *map(str, arguments)]
        app.run = _run_main  # type: ignore[assignment]
        try:
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            code = end.code or 0
    return Done(code, out.getvalue(), err.getvalue())


def _run_main(
    main: Callable[[Any], Any],
    argv: Sequence[str] | None = None,
    flags_parser: Callable[[Any], Any] = flags.FLAGS,
) -> None:
    """`absl.app.run` without what it does to the process."""
    main(flags_parser(sys.argv))


@contextlib.contextmanager
def _own_flags() -> Iterator[None]:
    """Only absl's own flags; those that imported modules have defined come back."""
    known = vars(flags.FLAGS)
    saved = {name: _copied(part) for name, part in known.items()}
    foreign = [
        flag.name
        for module, defined in flags.FLAGS.flags_by_module_dict().items()
        if not module.startswith("absl")
        for flag in defined
    ]
    flags.FLAGS.remove_flag_values(set(foreign))
    try:
        yield
    finally:
        known.clear()
        known.update(saved)


def _copied(part: Any) -> Any:
    """Two levels of containers; the flags themselves are shared."""
    if not isinstance(part, dict):
        return part
    return {
        key: list(value) if isinstance(value, list) else value
        for key, value in part.items()
    }


@contextlib.contextmanager
def _kept_process_state() -> Iterator[None]:
    argv, run, verbosity = sys.argv, app.run, logging.get_verbosity()
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    options = {name: getattr(jax.config, name) for name in names}
    try:
        yield
    finally:
        sys.argv, app.run = argv, run
        logging.set_verbosity(verbosity)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for name, value in options.items():
            jax.config.update(name, value)
