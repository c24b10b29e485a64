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
from .statistics import Effect

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
    "number of comparisons. Lambda* is chosen by each column's own statistic. Equal "
    "time is blank where not all series of a sweep were trained."
)


def write(folder: pathlib.Path) -> None:
    """Writes differences.md beside the tables that it is made from."""
    write_whole(folder / "differences.md", as_markdown(claim_data.read(folder)))


def as_markdown(tables: Tables) -> str:
    """A row for every comparison of accuracies, and how to read it."""
    rows = [row for claim in CLAIMS for row in _rows(claim, tables)]
    head = ("claim", "comparison", *STATISTICS.values())
    return f"{markdown(head, rows)}\n\n{_NOTE}\n"


def _rows(claim: Claim, tables: Tables) -> list[tuple[str, ...]]:
    """The claim's comparisons that are trained, below its words."""
    columns = [_trained(claim, _by(measure, tables)) for measure in STATISTICS]
    return [
        (
            "" if number else f"{claim.words} ({claim.paper})",
            label,
            *(_cell(of_statistic.get(label)) for of_statistic in columns),
        )
        for number, label in enumerate(columns[0])
    ]


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
