"""The rounds of a run, to step through: who is busy with what until when."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning.schedule import Schedule
from dpsparfl_jax.records import RecordedRun
from dpsparfl_jax.report import charts
from dpsparfl_jax.report.traces import plain

FIELDS = (  # of a client that sends
    *("client", "channel", "downlink", "training", "upload", "keep", "late", "lost"),
)
MOST_SLOTS = 6_000  # of all runs of a page: some 40 letters each


def plan_of(run: RecordedRun) -> Schedule | None:
    """The schedule of a run as far as it was recorded; None if it cannot be read."""
    try:
        plan = run.schedule
    except (InputError, OSError):
        return None
    recorded = charts.numbers(run.rounds, "round_delay_s")
    planned = np.asarray(plan.round_delay_s, float)[: len(recorded)]
    same = len(planned) == len(recorded) and np.allclose(planned, recorded)
    return plan if same else None


def rounds_of(run: RecordedRun, plan: Schedule | None, most: int) -> dict[str, Any]:
    """Rounds with their senders, as the page's script takes them.

    Args:
        run: with at least one round.
        plan: its schedule; None: parts of delays are not known, their sums are.
        most: senders of all rounds that may be told of; more are thinned evenly.
    """
    count = len(run.rounds)
    senders = run.rounds["clients"].map(len).to_numpy()
    step = max(1, -(-int(np.sum(senders)) // max(most, 1)))
    kept = sorted({*range(0, count, step), count - 1})
    slots = _planned(plan, kept) if plan else [_recorded(run, t) for t in kept]
    ends = charts.numbers(run.rounds, "round_delay_s")
    planned = charts.numbers(run.rounds, "planned_delay_s")
    return {
        "name": run.name,
        "parts": plan is not None,
        "rounds": [t + 1 for t in kept],
        "ends": plain(ends[kept]),
        "planned": plain(planned[kept]),
        "longest": float(np.nanmax(np.append(ends, planned), initial=0.0)),
        "slots": slots,
    }


def _planned(plan: Schedule, kept: Sequence[int]) -> list[list[list[Any]]]:
    """All senders by channel; training and upload leave the downlink of a delay."""
    sends, lost = plan.sends, plan.sends & ~plan.arrived
    parts = np.stack(
        [
            plan.delay_s - plan.training_s - plan.upload_s,
            plan.training_s,
            plan.upload_s,
        ],
        axis=-1,
    )
    rounds = []
    for t in kept:
        rows = []
        for channel in np.flatnonzero(sends[t]):
            at = t, channel
            who = [int(plan.client[at]), int(channel)]
            kept_share = plain([plan.keep_rate[at]], 3)
            marks = [int(plan.late[at]), int(lost[at])]
            rows.append([*who, *plain(parts[at]), *kept_share, *marks])
        rounds.append(rows)
    return rounds


def _recorded(run: RecordedRun, t: int) -> list[list[Any]]:
    """The same from the records alone, which have the whole delay of each sender."""
    row = run.rounds.iloc[t]
    clients = row["clients"]
    channels = row.get("channels", range(len(clients)))
    delays, rates = plain(row["delays_s"]), plain(row["keep_rates"], 3)
    return [
        [client, channel, 0, 0, delay, rate, 0, 0]
        for client, channel, delay, rate in zip(
            clients, channels, delays, rates, strict=True
        )
    ]
