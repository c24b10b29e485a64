"""What becomes of a planned round in a channel that was not known exactly.

A plan is made with estimated gains, less a margin; the upload meets the true ones. At
its planned power a client then sends faster or slower than planned, or not at all for a
while (an outage). Who has not sent everything by the planned end of the round is late:

wait    it goes on until everything is sent; the round lasts longer
drop    the round ends as planned without it: its update is lost, its epsilon is spent
retry   what it sent is lost; it sends everything again, at the true rate

Everything here depends on the seed and the round, never on training.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dpsparfl_jax import rng, units
from dpsparfl_jax.config import ScheduleConfig, WirelessConfig
from dpsparfl_jax.errors import InputError

Array = NDArray[np.float64]
_ROUNDING = 1e-9  # relative: a client that is late by less is in time


class TrueChannel(NamedTuple):
    """What the plan does not know of a round: all [U, N], or of some edges."""

    gain_error: Array  # true gain / estimated gain
    outage: NDArray[np.bool_]  # nothing arrives in the time planned for the upload


class Uploads(NamedTuple):
    """How the uploads of a round went: all [K], as in the allocation."""

    delay_s: Array  # until it is done, or given up
    upload_s: Array  # time on the air
    upload_j: Array
    late: NDArray[np.bool_]  # not done by the planned end of the round
    arrived: NDArray[np.bool_]


def is_exact(radio: WirelessConfig, schedule: ScheduleConfig) -> bool:
    """Whether every round goes exactly as planned."""
    known = radio.gain_error_db == 0 and radio.outage == 0
    return known and margin_db(radio, schedule) == 0


def margin_db(radio: WirelessConfig, schedule: ScheduleConfig) -> float:
    """By how much a plan takes gains to be smaller than they are estimated, in dB.

    With `late_probability` p, the least margin at which an upload that has to be done
    by the deadline is late with probability at most p: the gain error is normal in dB.
    """
    if not schedule.late_probability:
        return schedule.margin_db
    if schedule.late_probability <= radio.outage:
        raise InputError(
            f"schedule.late_probability of {schedule.late_probability:g} cannot be had "
            f"with outages of probability {radio.outage:g}, which no margin prevents."
        )
    slow = (schedule.late_probability - radio.outage) / (1 - radio.outage)
    return max(0.0, radio.gain_error_db * float(stats.norm.isf(slow)))


def true_channel(
    radio: WirelessConfig,
    seed: int,
    round_index: int,
    shape: tuple[int, int],
    edge: Any = ...,
) -> TrueChannel:
    """What the plan does not know of a round of `shape` (U, N), at an index of edges.

    It is drawn for all edges, also if few are asked for: every policy meets the same.
    """
    errors = rng.host_stream(seed, "gain_error", round_index)
    outages = rng.host_stream(seed, "outage", round_index)
    return TrueChannel(
        units.db_to_ratio(radio.gain_error_db * errors.standard_normal(shape)[edge]),
        outages.random(shape)[edge] < radio.outage,
    )


def realise(
    on_late: str,
    *,
    snr: Array,
    outage: NDArray[np.bool_],
    bandwidth_hz: float,
    bits: Array,
    power_w: Array,
    base_delay_s: Array,
    planned_upload_s: Array,
    deadline_s: float,
) -> Uploads:
    """How uploads go that were planned to be done by `deadline_s`.

    Args:
        on_late: "wait", "drop" or "retry".
        snr: [K] true signal-to-noise ratio of each upload.
        outage: [K] whether nothing arrives in the planned time.
        bandwidth_hz: of a channel.
        bits: [K] to be sent.
        power_w: [K] while sending.
        base_delay_s: [K] before the upload.
        planned_upload_s: [K] time on the air as planned.
        deadline_s: planned end of the round.

    Returns:
        Times and energies, and who was late and who arrived.
    """
    with np.errstate(divide="ignore"):
        whole = bits / units.shannon_rate(bandwidth_hz, snr)  # time to send everything
    # An outage ends with the planned time, and everything is sent after it.
    upload = np.where(outage, planned_upload_s, 0.0) + whole
    late = base_delay_s + upload > deadline_s * (1 + _ROUNDING)
    until_deadline = np.maximum(deadline_s - base_delay_s, planned_upload_s)
    if on_late == "drop":
        upload = np.where(late, until_deadline, upload)
    elif on_late == "retry":  # all that was sent until the deadline is lost
        upload = np.where(late, until_deadline + whole, upload)
    arrived = ~late if on_late == "drop" else np.ones(late.shape, bool)
    return Uploads(base_delay_s + upload, upload, power_w * upload, late, arrived)
