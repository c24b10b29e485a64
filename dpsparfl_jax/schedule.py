"""The schedule of a run: the one value between planning and training."""

import os
import zipfile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.errors import InputError

Array = NDArray[Any]
IDLE = -1  # in `client`: nobody sends on this channel


class RoundPlan(NamedTuple):
    """One round: arrays are [N], one slot a channel."""

    client: Array  # number, or IDLE
    keep_rate: Array  # 0 where idle, as all below
    power_w: Array
    delay_s: Array  # downlink, training and upload of this client
    training_s: Array
    upload_s: Array
    upload_j: Array
    training_j: Array
    bits: Array
    round_delay_s: float  # the slowest client's; 0 if nobody sends
    fairness_queue: Array  # [U] before the decision
    delay_queue: float  # before the decision
    value: float  # drift plus penalty V
    lower_bound: float  # certified; -inf if the solver gives none
    live: Array  # [U] bool, before the decision
    epsilon_spent: Array  # [U] after the round


class Schedule(NamedTuple):
    """All rounds of a run: the fields of `RoundPlan` with a leading axis [T].

    Slots are channels: a client's channel is its column.
    """

    client: Array
    keep_rate: Array
    power_w: Array
    delay_s: Array
    training_s: Array
    upload_s: Array
    upload_j: Array
    training_j: Array
    bits: Array
    round_delay_s: Array
    fairness_queue: Array
    delay_queue: Array
    value: Array
    lower_bound: Array
    live: Array
    epsilon_spent: Array
    last_delay_queue: Array  # scalar: after the last round
    affordable: Array  # [U] participations T-hat
    budget: Array  # [U] epsilon asked
    rate: Array  # [U] beta
    reason: str  # why it ends

    @property
    def num_rounds(self) -> int:
        """T."""
        return len(self.client)

    @property
    def sends(self) -> Array:
        """[T, N] whether the slot is used."""
        return self.client != IDLE

    @property
    def participations(self) -> Array:
        """[U] how often each client takes part."""
        return np.bincount(self.client[self.sends], minlength=len(self.budget))

    @property
    def skipped(self) -> Array:
        """Rounds in which nobody could send."""
        return np.flatnonzero(~self.sends.any(axis=1))


def save(schedule: Schedule, path: str | os.PathLike[str]) -> None:
    """Writes a schedule as npz, whole or not at all."""
    fields = {**schedule._asdict(), "reason": np.array(schedule.reason)}
    temporary = f"{os.fspath(path)}.part"
    with open(temporary, "wb") as file:
        np.savez_compressed(file, **fields)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def load(path: str | os.PathLike[str]) -> Schedule:
    """Reads a schedule; refuses a file that is not one."""
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            fields = {name: file[name] for name in Schedule._fields}
    except FileNotFoundError:
        raise InputError(f"there is no schedule {os.fspath(path)!r}.") from None
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as reason:
        raise InputError(
            f"{os.fspath(path)!r} is no schedule, or a damaged one ({reason}): plan it "
            "again."
        ) from None
    return Schedule(**{**fields, "reason": str(fields["reason"])})
