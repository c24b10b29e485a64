"""The accuracies that claims compare, by the protocol's statistic and by the others."""

import pathlib

import numpy as np
import pandas as pd

from dpsparfl_jax.records.comparisons import interval
from dpsparfl_jax.storage import write_whole

from ..tables import markdown
from . import claim_data, protocol
from .claim_data import Tables
from .claims import CLAIMS, Claim
from .statistics import Effect, holm, p_of_no_effect

JUDGED = "settled_accuracy"
STATISTICS = {  # column of the tables of runs: how it is called
    JUDGED: "settled (judged)",
    "equal_time_accuracy": "at equal time",
    "best_accuracy": "best on the way",
    "accuracy": "at the end",
}
_NOTE = (
    "Mean differences in points over the seeds that are trained, with 95% Student-t "
    "intervals. Only the first column is judged, and no interval is corrected for the "
    "number of comparisons. Lambda* is chosen by each column's own statistic. The last "
    "column has p-values of the first one, by itself and after Holm's correction over "
    "all rows: verdicts are corrected within a claim alone."
)


def write(folder: pathlib.Path) -> None:
    """Writes differences.md beside the tables that it is made from."""
    write_whole(folder / "differences.md", as_markdown(claim_data.read(folder)))


def as_markdown(tables: Tables) -> str:
    """A row for every comparison of accuracies, and how to read it."""
    judged = {claim.name: _trained(claim, tables) for claim in CLAIMS}
    p_values = [
        p_of_no_effect(values) if values.count() > 1 else 1.0
        for family in judged.values()
        for values in family.values()
    ]
    cells = iter(zip(p_values, holm(p_values), strict=True))
    others = [_by(measure, tables) for measure in STATISTICS if measure != JUDGED]
    rows = []
    for claim in CLAIMS:
        columns = [judged[claim.name], *(_trained(claim, each) for each in others)]
        for number, label in enumerate(judged[claim.name]):
            words = "" if number else f"{claim.words} ({claim.paper})"
            told = (_cell(of_statistic.get(label)) for of_statistic in columns)
            by_itself, corrected = next(cells)
            rows.append((words, label, *told, f"{by_itself:.2g}; {corrected:.2g}"))
    head = ("claim", "comparison", *STATISTICS.values(), "p by itself; of all rows")
    return f"{markdown(head, rows)}\n\n{_NOTE}\n"


def _by(measure: str, tables: Tables) -> Tables:
    """Tables in which runs are compared by another statistic."""
    runs = tables.runs.assign(**{JUDGED: tables.runs[measure]})
    return tables._replace(runs=runs)


def _trained(claim: Claim, tables: Tables) -> dict[str, pd.Series]:
    """What the claim compares in trained runs, by label; not what is only told."""
    return {
        one.label: one.values
        for one in claim.family(tables)
        if isinstance(one, Effect)
        and not one.told
        and one.seeds_asked == protocol.TRAINED_SEEDS
        and one.seeds
    }


def _cell(values: pd.Series | None) -> str:
    if values is None:
        return ""
    mean, low, high = interval(values)
    return f"{mean:+.2f}" + (
        f" ({low:+.2f} to {high:+.2f})" if np.isfinite(low) else ""
    )
