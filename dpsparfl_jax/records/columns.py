"""Every recorded column once: value, unit, TensorBoard tag, format, summary, sentence.

Rows of rounds are made from this table, TensorBoard events and summaries by it, and the
report, the console and the documents take their words from it. A column of your own:

    @dpsparfl_jax.register_column("busy", unit="channels", about="Channels in use.")
    def busy(view):
        return int(view.sends.sum())

It is then in every record, table and event file of the process that registered it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning.schedule import Schedule
from dpsparfl_jax.types import RoundOutput

Row = dict[str, Any]
Array = NDArray[Any]


class RoundView(NamedTuple):
    """What a column is computed from: one round of one run."""

    schedule: Schedule  # of the whole run: columns [T, N]
    t: int  # the round, from 0
    sends: Array  # [N] bool: the channels in use
    output: RoundOutput  # what came back from the device
    diagnostics: Mapping[str, Array]  # [K] of updates that arrived; none is private
    totals: Mapping[str, Array]  # [T] sums up to each round, and over all clients


class InSummary(NamedTuple):
    """A number of a run's summary that is made from a column."""

    name: str
    heading: str
    reducer: str  # one of REDUCERS


class Column(NamedTuple):
    """A column of the table of rounds."""

    name: str
    unit: str  # empty: a plain number
    about: str  # one sentence
    of: Callable[[RoundView], Any]
    tag: str = ""  # of TensorBoard; empty: not there
    format: str = "{:.4g}"
    summary: tuple[InSummary, ...] = ()
    raw: bool = False  # measured on clients' records: no epsilon covers it


def finite(value: Any) -> float | None:
    """A plain number, or None: JSON has no word for what is not finite."""
    return float(value) if value is not None and math.isfinite(value) else None


def mean(values: Array) -> float | None:
    """The mean as a plain number, None if there is nothing."""
    return finite(np.mean(values)) if len(values) else None


REDUCERS: dict[str, Callable[[list[Any]], Any]] = {  # of the values that are there
    "last": lambda values: values[-1] if values else None,
    "max": lambda values: max(values, default=None),
    "sum": sum,
}


def _planned(name: str) -> Callable[[RoundView], float | None]:
    return lambda view: finite(getattr(view.schedule, name)[view.t])


def _total(name: str) -> Callable[[RoundView], float | None]:
    return lambda view: finite(view.totals[name][view.t])


def _sent(name: str) -> Callable[[RoundView], list[Any]]:
    return lambda view: getattr(view.schedule, name)[view.t][view.sends].tolist()


def _slowest(name: str) -> Callable[[RoundView], float]:
    """Of the client that the round waits for."""

    def value(view: RoundView) -> float:
        slot = int(np.argmax(view.schedule.delay_s[view.t]))
        return float(getattr(view.schedule, name)[view.t, slot])

    return value


def _downlink(view: RoundView) -> float:
    plan, t = view.schedule, view.t
    slot = int(np.argmax(plan.delay_s[t]))
    training, upload = plan.training_s[t, slot], plan.upload_s[t, slot]
    return float(plan.delay_s[t, slot] - training - upload)


def _measured(name: str) -> Callable[[RoundView], float | None]:
    return lambda view: mean(view.diagnostics[name])


def _counted(name: str) -> Callable[[RoundView], int]:
    return lambda view: int(np.sum(view.diagnostics[name]))


_TABLE = (
    Column("round", "", "Number of the round, from 1.", lambda view: view.t + 1,
        format="{:.0f}", summary=(InSummary("rounds", "rounds", "last"),)),
    Column("accuracy", "", "Share of test images that the model tells right.",
        lambda view: finite(view.output.accuracy), "test/accuracy", "{:.2%}",
        (InSummary("accuracy", "accuracy", "last"),
         InSummary("best_accuracy", "best accuracy", "max"))),
    Column("loss", "", "Mean cross-entropy of the test images.",
        lambda view: finite(view.output.loss), "test/loss"),
    Column("accuracy_averaged", "", "Accuracy of the average of models, if there is "
        "one.", lambda view: finite(view.output.accuracy_averaged),
        "test/accuracy_averaged", "{:.2%}",
        (InSummary("accuracy_averaged", "accuracy, averaged", "last"),
         InSummary("best_accuracy_averaged", "best accuracy, averaged", "max"))),
    Column("loss_averaged", "", "Its mean cross-entropy.",
        lambda view: finite(view.output.loss_averaged), "test/loss_averaged"),
    Column("round_delay_s", "s", "Delay of the round: that of its slowest client.",
        _planned("round_delay_s"), "delay/round_s", "{:,.1f}"),
    Column("downlink_s", "s", "Part of that delay in which the model is received.",
        _downlink, format="{:,.1f}"),
    Column("training_s", "s", "Part of that delay in which the client trains.",
        _slowest("training_s"), format="{:,.1f}"),
    Column("upload_s", "s", "Part of that delay in which the update is sent.",
        _slowest("upload_s"), format="{:,.1f}"),
    Column("energy_j", "J", "Energy of all clients, for training and sending.",
        lambda view: float(view.totals["round_energy_j"][view.t]), format="{:,.4g}"),
    Column("bits", "bit", "Bits that all clients send.",
        lambda view: float(view.totals["round_bits"][view.t])),
    Column("cumulative_delay_s", "s", "Delay of all rounds so far.",
        _total("cumulative_delay_s"), "delay/cumulative_s", "{:,.1f}",
        (InSummary("delay_s", "delay", "last"),)),
    Column("cumulative_energy_j", "J", "Energy of all rounds so far.",
        _total("cumulative_energy_j"), "energy/cumulative_j", "{:,.1f}",
        (InSummary("energy_j", "energy", "last"),)),
    Column("cumulative_bits", "bit", "Bits of all rounds so far.",
        _total("cumulative_bits"), summary=(InSummary("bits", "sent", "last"),)),
    Column("clients", "", "Numbers of the clients that send, by channel.",
        _sent("client")),
    Column("channels", "", "The channels that are used.",
        lambda view: np.flatnonzero(view.sends).tolist()),
    Column("powers_w", "W", "Transmit power of each of them.", _sent("power_w")),
    Column("keep_rates", "", "Share of coordinates that each of them keeps.",
        _sent("keep_rate")),
    Column("delays_s", "s", "Delay of each of them.", _sent("delay_s")),
    Column("planned_delay_s", "s", "Delay that was planned for the round.",
        _planned("planned_delay_s"), format="{:,.1f}"),
    Column("late", "", "Uploads not done by the planned end of the round.",
        lambda view: int(np.sum(view.schedule.late[view.t])), format="{:.0f}",
        summary=(InSummary("late", "late", "sum"),)),
    Column("lost", "", "Updates that were dropped for that; their epsilon is spent.",
        lambda view: int(np.sum(view.sends & ~view.schedule.arrived[view.t])),
        format="{:.0f}", summary=(InSummary("lost", "lost", "sum"),)),
    Column("keep_rate_mean", "", "Mean keep rate of the clients that send.",
        lambda view: mean(view.schedule.keep_rate[view.t][view.sends]),
        "schedule/keep_rate_mean", "{:.3f}"),
    Column("delay_queue", "", "Delay queue before the decision, in its own unit.",
        _planned("delay_queue"), "schedule/delay_queue"),
    Column("fairness_queue_min", "", "Least fairness queue before the decision.",
        _total("fairness_queue_min")),
    Column("fairness_queue_mean", "", "Mean fairness queue before the decision.",
        _total("fairness_queue_mean")),
    Column("fairness_queue_max", "", "Largest fairness queue before the decision.",
        _total("fairness_queue_max"), "schedule/fairness_queue_max"),
    Column("objective", "", "Drift plus penalty of the decision.",
        _planned("value"), "schedule/objective"),
    Column("objective_lower_bound", "", "Certified lower bound of it, if there is one.",
        _planned("lower_bound")),
    Column("epsilon_max", "", "Largest epsilon that a client has spent.",
        _total("epsilon_max"), "privacy/epsilon_max", "{:.3f}",
        (InSummary("epsilon_max", "epsilon, max", "last"),)),
    Column("epsilon_mean", "", "Mean epsilon that clients have spent.",
        _total("epsilon_mean"), "privacy/epsilon_mean", "{:.3f}",
        (InSummary("epsilon_mean", "epsilon, mean", "last"),)),
    Column("epsilon_margin", "", "Least epsilon that a client has left.",
        _total("epsilon_margin")),
    Column("epsilon_left", "", "Mean epsilon that clients have left.",
        _total("epsilon_left"), format="{:.3f}",
        summary=(InSummary("epsilon_left", "epsilon left", "last"),)),
    Column("live_clients", "", "Clients that may still take part, before the round.",
        lambda view: int(view.totals["live_clients"][view.t]), "privacy/live_clients",
        "{:.0f}"),
    Column("train_loss", "", "Mean loss of the examples used (raw records).",
        _measured("loss"), "train/loss", raw=True),
    Column("clipped_fraction", "", "Share of examples above the bound (raw records).",
        _measured("clipped_fraction"), "train/clipped_fraction", "{:.2%}",
        raw=True),
    Column("median_norm", "", "Median masked gradient norm (raw records).",
        _measured("median_norm"), raw=True),
    Column("gradient_to_noise", "", "Norm of the first sum over that of its noise (raw "
        "records).", _measured("gradient_to_noise"), "train/gradient_to_noise",
        raw=True),
    Column("examples", "", "Examples used in all local steps.", _counted("examples"),
        format="{:,.0f}"),
    Column("overflow", "", "Examples that padded batches cut off.",
        _counted("overflow"), format="{:.0f}"),
    Column("nonfinite_examples", "", "Examples left out: their gradient is not finite "
        "(raw records).", _counted("nonfinite_examples"), format="{:.0f}", raw=True),
    Column("kept_coordinates", "", "Coordinates that the masks kept, of all clients.",
        _counted("kept"), format="{:,.0f}"),
    Column("diverged", "", "Updates that were dropped because they had diverged.",
        _counted("diverged"), format="{:.0f}",
        summary=(InSummary("diverged", "diverged", "sum"),)),
    Column("host_s", "s", "Real time of the host for this round and run.",
        lambda view: finite(view.output.host_s)),
    Column("device_s", "s", "Real time from the last round's results to these.",
        lambda view: finite(view.output.device_s)),
)  # fmt: skip
COLUMNS: dict[str, Column] = {column.name: column for column in _TABLE}
WALL_TIMES = ("host_s", "device_s")  # the only ones that differ between repetitions

# Columns of the table of clients: unit and sentence. `label_N` follow, one a class.
CLIENT_COLUMNS = {
    "client": ("", "Number of the client."),
    "train_examples": ("", "Training images that it owns."),
    "test_examples": ("", "Test images that it is judged by."),
    "epsilon_asked": ("", "Epsilon that it allows."),
    "epsilon_spent": ("", "Epsilon that it has spent after the last round."),
    "afforded": ("", "Participations that its epsilon affords."),
    "participations": ("", "Rounds in which it took part."),
    "rate": ("", "Share of rounds in which it should take part."),
    "share": ("", "Share of rounds in which it did."),
    "energy_j": ("J", "Energy that it spent on training and sending."),
    "keep_rate_mean": ("", "Mean share of coordinates that it kept."),
    "test_accuracy": ("", "Accuracy of the last model on its own test images."),
}


def register_column(
    name: str,
    *,
    unit: str,
    about: str,
    tag: str = "",
    format: str = "{:.4g}",
    summary: Sequence[InSummary] = (),
    raw: bool = False,
) -> Callable[[Callable[[RoundView], Any]], Callable[[RoundView], Any]]:
    """Decorator that adds a column to the table of rounds.

    Args:
        name: its name in rounds.jsonl; physical quantities end in their unit.
        unit: of its values, empty for plain numbers.
        about: one sentence for report and documents.
        tag: under which TensorBoard shows it; empty leaves it out there.
        format: how a value is printed.
        summary: numbers of the run's summary that are made from it.
        raw: whether it is measured on clients' records, so that no epsilon covers it;
            `records.private_only` then leaves it out. Give True for whatever you make
            from `view.diagnostics`, unless you know better.

    Returns:
        A decorator for a function of a `RoundView` that gives a plain number, a list of
        them, or None where there is nothing to tell.

    Raises:
        InputError: if the name is taken.
    """

    def add(of: Callable[[RoundView], Any]) -> Callable[[RoundView], Any]:
        if name in COLUMNS:
            raise InputError(f"there is already a column named {name!r}.")
        COLUMNS[name] = Column(name, unit, about, of, tag, format, tuple(summary), raw)
        return of

    return add


def label(name: str, heading: str = "") -> str:
    """A heading with the column's unit: "delay (s)"."""
    column = COLUMNS[name]
    words = heading or name.removesuffix(f"_{column.unit.lower()}").replace("_", " ")
    return f"{words} ({column.unit})" if column.unit else words


def summary_columns() -> dict[str, tuple[str, str]]:
    """Heading and format of every number of a summary that comes from columns."""
    return {
        part.name: (label(column.name, part.heading), column.format)
        for column in COLUMNS.values()
        for part in column.summary
    }
