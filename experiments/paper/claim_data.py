"""The tables of a finished study, read back and checked."""

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from dpsparfl_jax.errors import InputError

KEY = ["sweep", "series", "value", "seed"]
PLANNED = [
    "rounds",
    "participations",
    "delay_s",
    "common_delay_s",
    "mean_delay_s",
    "delay_target_s",
    "first_delay_s",
    "last_delay_s",
    "keep_rate",
    "participation_gap",
    "epsilon_margin",
]
# Tables without trained runs, and tables of earlier versions, lack some of these.
OPTIONAL = [
    "epsilon_wasted",
    "queue_ratio",
    "trained_rounds",
    "accuracy",
    "best_accuracy",
    "settled_accuracy",
    "equal_time_accuracy",
    "reach_s",
]
MEASURES = [*PLANNED, *OPTIONAL]
POINT = ["panel", "series", "seed", "x"]
_ACCURACIES = [name for name in OPTIONAL if name.endswith("accuracy")]


class Tables(NamedTuple):
    """All runs of a study (a row a run), and the drawn points of Theorem 1's bound."""

    runs: pd.DataFrame
    bound: pd.DataFrame

    def sweep(self, name: str) -> pd.DataFrame:
        """The runs of one sweep; none if it was not run."""
        return self.runs[self.runs["sweep"] == name]


def read(folder: pathlib.Path) -> Tables:
    """Reads all runs of a folder, and the points of Theorem 1's bound.

    Raises:
        InputError: No such folder, no tables in it, or a table that is not what it
            should be.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder.")
    paths = sorted(folder.glob("*_runs.csv"))
    if not paths:
        raise InputError(f"{folder} holds no table of runs (FIGURE_runs.csv).")
    bound, points = folder / "bound.csv", pd.DataFrame(columns=[*POINT, "y"])
    if bound.exists():
        points = _read_points(bound)
    return Tables(_pool([_read_runs(path) for path in paths], folder), points)


def wide(runs: pd.DataFrame, measure: str, by: str = "series") -> pd.DataFrame:
    """One measure with a row a seed and a column a series (or value)."""
    try:
        return runs.pivot(index="seed", columns=by, values=measure)
    except ValueError:
        sweep = runs["sweep"].iloc[0]
        raise InputError(
            f"sweep {sweep} has several runs of one {by} and seed."
        ) from None


def column(table: pd.DataFrame, name: str | float) -> pd.Series:
    """A column of a wide table; blank if it is missing."""
    if name in table:
        return table[name]
    return pd.Series(np.nan, index=table.index, dtype=float)


def _pool(tables: list[pd.DataFrame], folder: pathlib.Path) -> pd.DataFrame:
    """One row a run: figures may share runs, and then must tell the same of them."""
    groups = pd.concat(tables, ignore_index=True).groupby(KEY, dropna=False)
    unequal = groups[MEASURES].nunique().max(axis=1) > 1
    if unequal.any():
        sweep, series, *_ = unequal.idxmax()
        raise InputError(
            f"the tables in {folder} tell different numbers of one run of {sweep} "
            f"({series}): draw all figures again."
        )
    return groups[MEASURES].first().reset_index()


def _read_runs(path: pathlib.Path) -> pd.DataFrame:
    runs = _read(path, KEY, ["value", *PLANNED], OPTIONAL)
    _refuse_twice(path, runs, KEY)
    if not runs[_ACCURACIES].stack().dropna().between(0, 1).all():
        raise InputError(f"{path}: accuracies must be between 0 and 1.")
    return runs


def _read_points(path: pathlib.Path) -> pd.DataFrame:
    points = _read(path, ["panel", "series", "seed"], ["x", "y"]).dropna()
    _refuse_twice(path, points, POINT)
    return points


def _read(
    path: pathlib.Path,
    key: list[str],
    numbers: list[str],
    optional: Sequence[str] = (),
) -> pd.DataFrame:
    columns = list(dict.fromkeys([*key, *numbers]))
    try:
        table = pd.read_csv(path, dtype=str)
    except (OSError, ValueError) as reason:  # of pandas, too
        text = str(reason).splitlines()[0]
        raise InputError(f"{path} cannot be read as a table ({text}).") from None
    missing = [name for name in columns if name not in table]
    if missing:
        raise InputError(f"{path} has no column {', '.join(missing)}.")
    table = table.reindex(columns=[*columns, *optional])
    for name in ["seed", *numbers, *optional]:
        table[name] = _as_numbers(path, table[name])
    if table["seed"].isna().any():
        raise InputError(f"{path}: every row needs a seed.")
    return table


def _as_numbers(path: pathlib.Path, cells: pd.Series) -> pd.Series:
    numbers = pd.to_numeric(cells, errors="coerce").astype(float)
    wrong = cells[(numbers.isna() & cells.notna()) | np.isinf(numbers)]
    if len(wrong):
        raise InputError(
            f"{path}: {wrong.iloc[0]!r} in column {cells.name} is not a finite number."
        )
    return numbers


def _refuse_twice(path: pathlib.Path, table: pd.DataFrame, key: list[str]) -> None:
    twice = table[table.duplicated(key)]
    if len(twice):
        cells = ", ".join(f"{name} {twice.iloc[0][name]}" for name in key)
        raise InputError(f"{path} has two rows for {cells}.")
