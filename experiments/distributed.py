"""Several processes that train the same runs together: flags, beginning and end.

These flags are no settings: they say where processes meet, differ from one process to
the next, and move no result. Without them nothing of this is loaded, and nobody is
contacted.
"""

import ctypes
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from absl import flags

from dpsparfl_jax.errors import InputError, LostProcessError, first_line

from . import cli, interrupting

LOST = int(signal.SIGABRT)  # exit code of a process that others have left: 6
_BY_HAND = ("coordinator", "num_processes", "process_id")
_MOMENT_S = 2  # more than JAX needs to end a process when another one is lost


def define_flags() -> None:
    """Defines `--distributed.NAME`; no flag, no second process."""
    flags.DEFINE_string(
        "distributed.coordinator",
        None,
        "HOST:PORT at which process 0 lets the others meet; it listens there only",
    )
    flags.DEFINE_integer(
        "distributed.num_processes",
        None,
        "processes that train together; each is started with the same command",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "distributed.process_id",
        None,
        "which of them this one is, from 0; process 0 writes the records",
        lower_bound=0,
    )
    flags.DEFINE_bool(
        "distributed.auto",
        False,
        "ask the cluster (Slurm, Open MPI, a TPU pod, Kubernetes) for the three above, "
        "as jax.distributed.initialize does; process 0 then listens on all addresses, "
        "unless --distributed.bind says otherwise",
    )
    flags.DEFINE_string(
        "distributed.bind",
        None,
        "ADDRESS:PORT on which process 0 listens, if it is not the coordinator's",
    )
    flags.DEFINE_integer(
        "distributed.wait_s",
        300,
        "seconds that processes wait for each other to start",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "distributed.heartbeat_s",
        10,
        "seconds of silence after which a process counts as lost, and ends all others "
        f"(with exit code {LOST})",
        lower_bound=2,
    )


def _flag(name: str) -> Any:
    return flags.FLAGS[f"distributed.{name}"].value


def wanted() -> bool:
    """Whether this process is one of several; refuses flags that do not fit."""
    given = [_flag(name) is not None for name in _BY_HAND]
    if _flag("auto"):
        if any(given):
            raise InputError(
                "--distributed.auto asks the cluster: leave out coordinator, "
                "num_processes and process_id, or give these three instead."
            )
    elif not all(given):
        if any(given) or _flag("bind") is not None:
            raise InputError(
                "--distributed.coordinator, --distributed.num_processes and "
                "--distributed.process_id go together: give all three."
            )
        return False
    elif _flag("process_id") >= _flag("num_processes"):
        raise InputError(
            f"--distributed.process_id={_flag('process_id')} is not below "
            f"--distributed.num_processes={_flag('num_processes')}."
        )
    for name in ("coordinator", "bind"):
        _check_address(name, _flag(name))
    return True


def writes() -> bool:
    """Whether this process writes records and speaks; once they are joined."""
    if not wanted():
        return True
    from dpsparfl_jax.runner import processes

    return processes.current().first


def _check_address(name: str, address: str | None) -> None:
    if address is None:
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(
            f"--distributed.{name}={address} is no HOST:PORT, as in 127.0.0.1:45123."
        )


def run(work: Callable[[], int], how: str) -> int:
    """Does `work`, together with other processes if flags say so; its exit code.

    Processes that have done or failed alike end together. One that fails alone prints
    why and ends, which ends the others: `how` tells a user how to go on.
    """
    if not wanted():
        return work()
    if _flag("process_id") == 0:
        _check_free(_flag("bind") or _flag("coordinator"))
    _give_last_words(how)
    _join()
    from dpsparfl_jax.runner import processes

    together = processes.current()
    later = ""
    try:
        code = work()
        together.from_first(lambda: None)  # it may still be at its report
    except InputError as reason:
        code = cli.BAD_INPUT
        _say(cli.as_refusal(reason), together.index)
    except KeyboardInterrupt:
        code = interrupting.CODE
        _say(interrupting.WORD, together.index)
    except LostProcessError as reason:
        code, later = LOST, f"Ended, because {reason} So have the others: {how}."
    except Exception:
        code, later = 1, traceback.format_exc()
    if not together.meets_at_the_end(_flag("heartbeat_s") + _MOMENT_S):
        # If somebody is lost, that is the reason, and JAX ends this process by now.
        time.sleep(_MOMENT_S)
        _say(later, together.index)
        # JAX's own end would wait for the others, who are still at work.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    _say(later, together.index)
    return code


def _check_free(address: str) -> None:
    """Refuses an address at which nobody can listen here: JAX may crash on it."""
    host, _, port = address.rpartition(":")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(place)
    except OSError as reason:
        raise InputError(
            f"process 0 cannot listen at {address} ({reason.strerror}): choose a free "
            "address of this machine, or name one with --distributed.bind."
        ) from None


def _say(sentence: str, index: int) -> None:
    if sentence:
        prefix = f"process {index}: " if index else ""
        print(f"{prefix}{sentence}", file=sys.stderr)


def _give_last_words(how: str) -> None:
    """Has JAX's last words, should it come to that, replaced by a sentence.

    C++ libraries write to file descriptor 2, so a small process reads that; what Python
    prints goes to stderr as before. Aborting then ends with an exit code that can be
    told, and without leaving a core file behind.
    """
    stderr = os.dup(2)
    program = str(pathlib.Path(__file__).with_name("last_words.py"))
    listener = subprocess.Popen(
        [sys.executable, "-S", program, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        start_new_session=True,
    )
    assert listener.stdin is not None
    os.dup2(listener.stdin.fileno(), 2)
    listener.stdin.close()
    listener.returncode = 0  # it outlives this process: nobody waits for it
    sys.stderr = open(stderr, "w", buffering=1, errors="backslashreplace")
    library = ctypes.CDLL(None)
    library.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    # The C library's own `_exit` handles the signal, whose number is its argument.
    library.signal(LOST, ctypes.cast(library._exit, ctypes.c_void_p))


def _join() -> None:
    """Meets the other processes; refuses in one sentence if they do not come."""
    import jax

    jax.config.update("jax_enable_preemption_service", False)  # signals are ours
    where = _flag("coordinator") or "the coordinator that the cluster names"
    try:
        jax.distributed.initialize(
            _flag("coordinator"),
            _flag("num_processes"),
            _flag("process_id"),
            cluster_detection_method=None if _flag("auto") else "deactivate",
            initialization_timeout=_flag("wait_s"),
            heartbeat_timeout_seconds=_flag("heartbeat_s"),
            shutdown_timeout_seconds=_flag("heartbeat_s"),
            coordinator_bind_address=_flag("bind") or _flag("coordinator"),
        )
    except Exception as reason:  # of JAX's own kinds
        first = first_line(reason, "it did not say why")
        raise InputError(
            f"the processes did not meet at {where} ({first[:200]}): is the address "
            "right and free, and were all of them started?"
        ) from None
