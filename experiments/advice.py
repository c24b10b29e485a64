"""Advice on settings in words and numbers; `experiments.budget --advise` gives it."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from dpsparfl_jax import config
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.options import RANGE
from dpsparfl_jax.privacy import advise, budgets
from dpsparfl_jax.privacy.curves import CurveStore

_QUANTILES = 40  # that stand for a range of epsilons
_HEAD = (
    f"{'sigma':>7}{'batch':>7}{'steps':>7}{'participations':>20}{'rounds':>8}"
    f"{'examples':>10}{'signal':>8}"
)


@dataclasses.dataclass(frozen=True)
class Advice:
    """What was asked and what was found."""

    clients: advise.Clients
    limits: advise.Limits
    frontier: list[advise.Spending]
    best: advise.Spending  # within the limits
    present: advise.Spending  # of the settings that the user has


def budgets_of(text: str) -> NDArray[np.float64]:
    """Epsilons from "2,5,10", in equal shares, or from a range as in "2..10"."""
    bounds = RANGE.fullmatch(text.strip())
    if bounds is not None:
        low, high = map(float, bounds.groups())
        return budgets.spread_budgets(low, high, _QUANTILES)
    values = budgets.parse_budgets(text)
    return budgets.given_budgets(values, len(values))


def seek(
    clients: advise.Clients,
    limits: advise.Limits,
    present: advise.Setting,
    grid: Sequence[advise.Setting],
    store: CurveStore,
) -> Advice:
    """The frontier of the grid, with a bar, and what the present setting gives."""

    def bar(items: Sequence[Any], what: str) -> Any:
        return tqdm(items, desc=what, disable=None, leave=False)

    rows = advise.frontier(clients, store, limits, grid, bar)
    best = advise.best_within(rows, limits)
    if best is None:
        raise InputError(
            "no setting that advice looks at lets anybody take part within these "
            "limits: allow more examples, more rounds or more epsilon."
        )
    return Advice(clients, limits, rows, best, advise.spend(present, clients, store))


def table(given: Advice) -> str:
    """The frontier, a line a setting, and below it the present setting."""
    marks = {id(given.best): "  <- best within the limits"}
    lines = [_HEAD, *(_line(row) + marks.get(id(row), "") for row in given.frontier)]
    return "\n".join([*lines, _line(given.present) + "  present settings"])


def sentence(given: Advice) -> str:
    """Which flags to pass, and what they gain."""
    gain = "nobody can take part with the present settings"
    if given.present.signal > 0:
        factor = given.best.signal / given.present.signal
        gain = f"{factor:.3g} times the signal of the present settings"
        if given.present.examples > given.limits.examples:
            gain += ", which cost more than the limit"
    return f"For the largest signal within the limits pass {flags_of(given)} ({gain})."


def flags_of(given: Advice) -> str:
    """The best setting as flags of `experiments.run`."""
    noise, batch, steps = given.best.setting
    most = int(np.max(given.best.participations))
    values = {
        "privacy.noise_multiplier": f"{noise:g}",
        "training.batch_size": f"{batch:g}",
        "training.local_steps": f"{steps}",
    }
    if most > config.RunConfig().privacy.max_participations:
        values["privacy.max_participations"] = f"{most}"
    return " ".join(f"--{name}={value}" for name, value in values.items())


def numbers(given: Advice) -> dict[str, Any]:
    """All of it as plain values, for JSON; no limit is null."""
    limits = dataclasses.asdict(given.limits)
    return {
        "limits": {k: v if np.isfinite(v) else None for k, v in limits.items()},
        "epsilons": given.clients.budgets.tolist(),
        "frontier": [_values(row) for row in given.frontier],
        "best": _values(given.best),
        "present": _values(given.present),
        "flags": flags_of(given),
    }


def _line(row: advise.Spending) -> str:
    noise, batch, steps = row.setting
    counts = row.participations
    spread = f"{np.mean(counts):.1f} ({np.min(counts)}-{np.max(counts)})"
    return (
        f"{noise:7g}{batch:7g}{steps:7d}{spread:>20}{row.rounds:8d}"
        f"{row.examples:10.3g}{row.signal:8.1f}"
    )


def _values(row: advise.Spending) -> dict[str, Any]:
    return {
        **row.setting._asdict(),
        "participations_mean": float(np.mean(row.participations)),
        "participations_least": int(np.min(row.participations)),
        "participations_most": int(np.max(row.participations)),
        "rounds": row.rounds,
        "examples": row.examples,
        "signal": row.signal,
    }
