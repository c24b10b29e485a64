"""The clients of every run, with bars that show how much of a budget is spent."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from dpsparfl_jax.records import RecordedRun
from dpsparfl_jax.records.columns import CLIENT_COLUMNS, finite
from dpsparfl_jax.report.traces import plain

MOST_LINES = 4000  # of all runs of a page
_BUDGET = "budget"
# Heading and digits after the point; "%": a share.
_COLUMNS: dict[str, tuple[str, int | str]] = {
    "client": ("client", 0),
    _BUDGET: ("epsilon spent of its budget", 3),
    "participations": ("rounds taken part", 0),
    "afforded": ("rounds that the budget affords", 0),
    "share": ("share of rounds", "%"),
    "rate": ("share that it should have", "%"),
    "keep_rate_mean": ("mean share of coordinates kept", "%"),
    "energy_j": ("energy (J)", 2),
    "train_examples": ("training images", 0),
    "test_accuracy": ("accuracy on its own test images", "%"),
}
assert {*_COLUMNS} - {_BUDGET} <= {*CLIENT_COLUMNS}


def table_of(runs: Sequence[RecordedRun]) -> dict[str, Any]:
    """What the page's script needs; no runs if none has a table of clients."""
    told = [run for run in runs if len(run.clients)]
    most = MOST_LINES // max(len(told), 1)
    return {
        "heads": [head for head, _ in _COLUMNS.values()],
        "forms": [form for _, form in _COLUMNS.values()],
        "budget": [*_COLUMNS].index(_BUDGET),
        "runs": [_of_run(run, most) for run in told],
    }


def _of_run(run: RecordedRun, most: int) -> dict[str, Any]:
    shown = run.clients.head(most)
    left = len(run.clients) - len(shown)
    words = f"The first {len(shown):,} clients; clients.csv of the run has all."
    return {
        "name": run.name,
        "rows": [_row(row, run.private) for row in shown.to_dict("records")],
        "left_out": words if left else "",
        "without": "no limit" if run.private else "not private",
    }


def _row(row: dict[Any, Any], private: bool) -> list[Any]:
    cells: list[Any] = []
    for name in _COLUMNS:
        if name == _BUDGET:
            pair: list[Any] = [row.get("epsilon_spent"), row.get("epsilon_asked")]
            known = private and not any(map(pd.isna, pair))
            cells.append(plain(map(float, pair)) if known else [None, None])
        else:
            value = None if pd.isna(row.get(name)) else finite(row[name])
            cells.append(None if value is None else plain([value])[0])
    return cells
