r"""One contender in a process of its own; `benchmarks.workers` starts it.

    python -m benchmarks.worker '{"contender": "nonprivate", "model": "mnist_cnn",
        "batch": 16, "keep_rate": 0.3, "steps": 20, "rounds": 1}'

It answers "ready" once it has built the contender, then every line on its input with
the number of real examples that one turn of `rounds` rounds processed.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from benchmarks import engine, peers, pfl_peer, timing

Maker = Callable[[Any, int], timing.Contender]

MAKERS: dict[str, Maker] = {
    "nonprivate": engine.nonprivate,
    "textbook": lambda setting, steps: engine.textbook(setting, setting.capacity),
    "textbook_unpadded": lambda setting, steps: engine.textbook(setting, setting.batch),
    **peers.MAKERS,
    "pfl": pfl_peer.contender,
}


def main() -> None:
    """Builds the contender and serves it."""
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries may print

    def answer(text: object) -> None:
        print(text, file=answers, flush=True)

    task = json.loads(sys.argv[1])
    engine.use_devices(1)
    setting = engine.Setting(task["model"], task["batch"], task["keep_rate"])
    try:
        work = MAKERS[task["contender"]](setting, task["steps"])
    except ImportError as missing:
        answer(missing)
        return
    answer("ready")
    for _ in sys.stdin:
        answer(sum(work() for _ in range(task["rounds"])))


if __name__ == "__main__":
    main()
