"""What panels show, as rows of series, seed, x and y."""

from collections.abc import Callable, Sequence

import pandas as pd

from .bound import BoundRow
from .catalogue import Figure
from .run_tables import Tables
from .sweeps import SweepRun

COLUMNS = ["panel", "series", "seed", "x", "y"]
Draw = Callable[[Tables], pd.DataFrame]
BOUND = ", bound"  # ends the name of a series that bounds another
_HOUR = 3600.0  # s


def _rows(table: pd.DataFrame, x: str, y: str, over: float = 1.0) -> pd.DataFrame:
    if x not in table or y not in table:
        return pd.DataFrame(columns=COLUMNS[1:])
    shown = table[["series", "seed", x, y]].set_axis(COLUMNS[1:], axis=1)
    return shown.assign(y=shown["y"] / over).dropna()


def _over_rounds(column: str, over: float = 1.0) -> Draw:
    def draw(tables: Tables) -> pd.DataFrame:
        planned = tables.rounds[~tables.rounds["once"].astype(bool)]
        return _rows(planned, "round", column, over)

    return draw


def _accuracy(tables: Tables) -> pd.DataFrame:
    return _rows(tables.evaluations, "round", "accuracy")


def _accuracy_time(tables: Tables) -> pd.DataFrame:
    evaluations = tables.evaluations
    hours = evaluations.assign(hours=evaluations["cumulative_delay_s"] / _HOUR)
    return _rows(hours, "hours", "accuracy")


def _by_series(column: str) -> Draw:
    """A number a run; series stand one below the other, so that x means nothing."""

    def draw(tables: Tables) -> pd.DataFrame:
        runs = tables.runs[~tables.runs["once"].astype(bool)]
        return _rows(runs.assign(nothing=0.0), "nothing", column)

    return draw


def _queue_norm(tables: Tables) -> pd.DataFrame:
    """All queues of a run as one number, and Theorem 3's bound of it."""
    measured = _over_rounds("queue_norm")(tables)
    bound = _over_rounds("queue_norm_bound")(tables)
    return pd.concat([measured, bound.assign(series=bound["series"] + BOUND)])


DRAWS: dict[str, Draw] = {
    "accuracy": _accuracy,
    "accuracy_time": _accuracy_time,
    "accuracy_averaged": lambda tables: _rows(
        tables.evaluations, "round", "accuracy_averaged"
    ),
    "settled": _by_series("settled_accuracy"),
    "last": _by_series("accuracy"),
    "best": _by_series("best_accuracy"),
    "settled_over": lambda tables: _rows(tables.runs, "value", "settled_accuracy"),
    "tuning": lambda tables: _rows(tables.runs, "value", "tuning_accuracy"),
    "delay": _over_rounds("cumulative_delay_s", _HOUR),
    "running_delay": _over_rounds("running_delay_s"),
    "keep_rate": _over_rounds("running_keep_rate"),
    "objective": _over_rounds("running_objective"),
    "delay_queue": _over_rounds("delay_queue"),
    "fairness_queue": _over_rounds("fairness_queue"),
    "queue_norm": _queue_norm,
    "late": lambda tables: _rows(tables.runs, "value", "late"),
    "wasted": lambda tables: _rows(tables.runs, "value", "epsilon_wasted"),
    "energy_broken": lambda tables: _rows(tables.runs, "value", "energy_broken"),
    "kept": lambda tables: _rows(tables.runs, "value", "keep_rate"),
    "mean_delay": lambda tables: _rows(tables.runs, "value", "mean_delay_s"),
    "round_delay": lambda tables: _rows(tables.runs, "value", "mean_delay_s"),
    "participation": lambda tables: _rows(tables.clients, "rate", "share"),
    "afforded": lambda tables: _rows(tables.clients, "epsilon", "afforded"),
}
PERCENT = (  # shares, shown in %
    *("accuracy", "accuracy_time", "accuracy_averaged", "settled", "settled_over"),
    *("tuning", "late", "wasted", "energy_broken", "last", "best"),
)
DOTS = ("participation", "afforded")  # one dot a client, no line
ROWS = ("settled", "last", "best")  # one row a series
POINTS = (  # over chosen values of a setting
    *("settled_over", "tuning", "late", "wasted", "energy_broken", "kept"),
    *("mean_delay", "round_delay"),
)


def curves(figure: Figure, tables: dict[str, Tables]) -> pd.DataFrame:
    """All that a figure shows."""
    parts = [
        DRAWS[panel.draw](tables[panel.sweep]).assign(panel=panel.name)
        for panel in figure.panels
        if panel.draw in DRAWS
    ]
    table = pd.concat(parts, ignore_index=True)[COLUMNS]
    return table.astype({"seed": int, "x": float, "y": float})


def of_bound(rows: Sequence[BoundRow], run: SweepRun) -> pd.DataFrame:
    """The bound, its terms, and what it bounds."""
    shown = {
        "measured, mean so far": "mean_squared_norm",
        "bound": "bound",
        "its start": "start",
        "its divergence": "divergence",
        "its sparsification": "sparsification",
        "its noise": "noise",
    }
    points = []
    for row in rows:
        # If eta L tau is too large, the terms prove nothing.
        name = {} if row.holds else {"bound": "sum (no bound)"}
        points += [
            ("bound", name.get(told, told), run.seed, row.rounds, getattr(row, field))
            for told, field in shown.items()
        ]
    return pd.DataFrame(points, columns=COLUMNS)
