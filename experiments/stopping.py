"""Stopping kindly: the first signal asks, the second one ends the process.

Whoever trains takes the signals over before JAX is loaded: an interruption in the
middle of that could end in one of JAX's own callbacks, which swallow it.
"""

import signal
import sys
from types import FrameType

from tqdm import tqdm


class Stopper:
    """The first Ctrl-C or SIGTERM asks to stop, the second one stops at once."""

    def __init__(self) -> None:
        """Takes over both signals."""
        self.signal = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        # The next one ends the process even while it compiles; all that was recorded
        # is flushed, or replaced as a whole.
        signal.signal(number, signal.SIG_DFL)
        self.signal = number
        tqdm.write(
            "Stopping after the rounds under way (again: at once).", file=sys.stderr
        )

    def release(self) -> None:
        """Gives both signals back: Ctrl-C interrupts again."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def asked(self) -> bool:
        """Whether to stop."""
        return bool(self.signal)
