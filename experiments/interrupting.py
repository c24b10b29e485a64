"""Ctrl-C while a program is still being loaded: one word, exit code 130.

Loading takes the first second. An interruption in there would end in a traceback of
import machinery, or in one of its callbacks, which swallow it. Nothing has been done
yet, so the process can end on the spot. `cli.run` gives the signal back.
"""

import os
import signal
import sys
from types import FrameType

WORD, CODE = "Interrupted.", 130
_OURS = ("-m", "dpsparfl", "dpsparfl.exe")


def end_at_once() -> None:
    """Takes Ctrl-C over, if this process was started as one of our programs.

    `sys.argv[0]` is "-m" for as long as Python looks for the module that it was asked
    to run; nobody else who imports us gives up a signal.
    """
    if os.path.basename((sys.argv or [""])[0]) in _OURS:
        signal.signal(signal.SIGINT, _end)


def give_back() -> None:
    """Lets Ctrl-C raise KeyboardInterrupt again, if it was taken over."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, f"{WORD}\n".encode())
    os._exit(CODE)
