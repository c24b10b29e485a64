"""Passes on what C++ libraries write to stderr, and says in a sentence what ended them.

When a process of several is lost, JAX's coordinator aborts all others with pages of
its own words. `distributed.py` lets this program read them. It is a process of its own,
because the one that writes them has no time left to speak; it loads nothing, ends with
the process that it listens to, and leaves Ctrl-C to it.
"""

import re
import sys

_COORDINATOR = re.compile(r"coordination_service|JAX distributed service")
_ENDED = "Terminating process because the JAX distributed service detected fatal errors"
_NOT_MET = "CoordinationService/RegisterTask"
_SILENT = re.compile(r"stopped sending heartbeats\):\s*(\d+)\s")
_FIRST_GONE = "Failed to send RPC to coordination service"


def describe(held: str, how: str) -> str:
    """What is to be read instead of JAX's last words; `how` says how to go on."""
    if _ENDED not in held:
        return held
    if _NOT_MET in held:
        return (
            "The processes did not meet within --distributed.wait_s: is the "
            "coordinator's address right, and were all of them started?\n"
        )
    silent = _SILENT.search(held)
    who = f"process {silent[1]}" if silent else "another process"
    if _FIRST_GONE in held:
        who = "process 0"
    return f"Ended, because {who} was lost: {how}.\n"


def main() -> None:
    """Listens until the end."""
    held = ""
    for line in sys.stdin:
        if held or _COORDINATOR.search(line):
            held += line
        else:
            sys.stderr.write(line)
            sys.stderr.flush()
    sys.stderr.write(describe(held, sys.argv[1]))


if __name__ == "__main__":
    main()
