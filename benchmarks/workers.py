"""Contenders in processes of their own, which wait until it is their turn.

Each process builds its contender once (`benchmarks.worker`), so that neither starting
nor compiling is timed, and no contender's settings are forced upon another.
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
from types import TracebackType
from typing import Any, Self

_ROOT = pathlib.Path(__file__).parent.parent
_SECONDS_TO_END = 20.0


class Workers:
    """Processes that work at the same time and answer with what they processed.

    Give them all their turn by calling this. It is a context: they end with it.
    """

    def __init__(self, task: dict[str, Any], processes: int = 1) -> None:
        """Starts them; `ready` waits until they can work."""
        command = [sys.executable, "-m", "benchmarks.worker", json.dumps(task)]
        self._processes = [
            subprocess.Popen(
                command,
                cwd=_ROOT,
                env=os.environ | {"PYTHONPATH": str(_ROOT)} | more,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for more in _environments(processes)
        ]

    def ready(self) -> None:
        """Waits until all can work; raises ImportError where a library is missing."""
        for process in self._processes:
            answer = _answer(process)
            if answer != "ready":
                raise ImportError(answer)

    def __call__(self) -> int:
        """One turn: all work at the same time, and the slowest is waited for."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return sum(int(_answer(process)) for process in self._processes)

    def __enter__(self) -> Self:
        """The same object."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends all processes."""
        for process in self._processes:
            assert process.stdin is not None
            try:
                process.stdin.close()
            except BrokenPipeError:
                pass
        for process in self._processes:
            try:
                process.wait(_SECONDS_TO_END)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    answer = process.stdout.readline().strip()
    if not answer:
        raise RuntimeError(f"a contender failed: {process.args!r}.")
    return answer


def _environments(processes: int) -> list[dict[str, str]]:
    """What each process finds: one thread and its place, where there are several.

    The names of the places are those that pfl reads.
    """
    if processes == 1:
        return [{}]
    addresses = ",".join(f"127.0.0.1:{_free_port()}" for _ in range(processes))
    return [
        {
            "OMP_NUM_THREADS": "1",
            "PFL_WORKER_ADDRESSES": addresses,
            "PFL_WORKER_RANK": str(rank),
        }
        for rank in range(processes)
    ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
