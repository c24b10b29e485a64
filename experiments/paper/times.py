"""How long the runs of the study trained, from what is kept of them."""

import pathlib

from dpsparfl_jax.storage import write_whole

from ..tables import markdown
from . import accuracies, trained

_CHOOSING = {
    "clip_fashion": "clip norm, Fashion-MNIST",
    "clip_mnist": "clip norm, MNIST",
    "clip_cifar": "clip norm, CIFAR-10, nearest",
}
_NOTE = (
    "Hours of real time in which rounds were trained and evaluated, compilation "
    "included, summed over runs; the machine may have done other work beside it. Runs "
    "that settings share are counted once; studies outside the protocol are not in it."
)
_HOUR = 3600.0  # s


def write(folder: pathlib.Path) -> None:
    """Writes times.md beside the tables."""
    write_whole(folder / "times.md", as_markdown(folder))


def as_markdown(folder: pathlib.Path) -> str:
    """A row for every setting of the protocol, one for all, and how to read them."""
    names = _CHOOSING | {key: name for key, (name, _) in accuracies.SETTINGS.items()}
    rows, total = [], (0, 0.0, 0.0)
    for sweep, name in names.items():
        kept = trained.read(trained.path_of(folder, sweep)).values()
        if kept:
            rounds, seconds = (
                sum(one.facts[fact] or 0.0 for one in kept)
                for fact in ("trained_rounds", "train_wall_s")
            )
            own = (len(kept), rounds, seconds)
            rows.append(_row(name, *own))
            total = (total[0] + own[0], total[1] + own[1], total[2] + own[2])
    head = ("setting", "runs", "rounds", "hours")
    return f"{markdown(head, [*rows, _row('all', *total)])}\n\n{_NOTE}\n"


def _row(name: str, runs: int, rounds: float, seconds: float) -> tuple[str, ...]:
    return (name, str(runs), f"{rounds:,.0f}", f"{seconds / _HOUR:.1f}")
