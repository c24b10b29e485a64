"""Running the command-line programs as a user does, or within this process."""

import contextlib
import io
import pathlib
import runpy
import signal
import subprocess
import sys
import types

import jax
from absl import app, flags, logging

ROOT = pathlib.Path(__file__).parent.parent


def run_program(name, *arguments):
    """`python -m name arguments`, from the project's folder: takes seconds to start."""
    return subprocess.run(
        [sys.executable, "-m", name, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def call_program(name, *arguments):
    """What `run_program` does, in this process: no start, and programs are shared.

    The module is run afresh as `__main__` with flags of its own. Whatever a program
    changes for good in its process is put back.
    """
    out, err = io.StringIO(), io.StringIO()
    with (
        _own_flags(),
        _kept_process_state(),
        contextlib.chdir(ROOT),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        sys.argv = [name, *map(str, arguments)]
        app.run = _run_main
        try:
            runpy.run_module(name, run_name="__main__", alter_sys=True)
            code = 0
        except SystemExit as end:
            code = end.code or 0
    return types.SimpleNamespace(
        returncode=code, stdout=out.getvalue(), stderr=err.getvalue()
    )


def _run_main(main, argv=None, flags_parser=None):
    """`absl.app.run` without what it does to the process."""
    main(flags_parser(sys.argv))


@contextlib.contextmanager
def _own_flags():
    """absl's own flags only; those that imported modules have defined come back."""
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


def _copied(part):
    """Two levels of containers; the flags themselves are shared."""
    if not isinstance(part, dict):
        return part
    return {
        key: list(value) if isinstance(value, list) else value
        for key, value in part.items()
    }


@contextlib.contextmanager
def _kept_process_state():
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


def assert_refused(done, message):
    """Bad input: one sentence, exit code 2, no traceback."""
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
