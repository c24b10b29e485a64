"""The schedule of a run: the one value between planning and training."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax import storage
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.storage import UNREADABLE

Array = NDArray[Any]
IDLE = -1  # in `client`: nobody sends on this channel


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RoundPlan:
    """One round: arrays are [N], one slot a channel, unless they say otherwise."""

    client: Array  # number, or IDLE
    keep_rate: Array  # 0 where idle, as all below
    power_w: Array
    delay_s: Array  # downlink, training and upload of this client
    training_s: Array
    upload_s: Array
    upload_j: Array
    training_j: Array
    bits: Array
    late: Array  # bool: was not done by the planned end of the round
    arrived: Array  # bool: the server got the update
    round_delay_s: Any  # the slowest client's; 0 if nobody sends
    planned_delay_s: Any  # what it should have been; equal if gains are known exactly
    fairness_queue: Array  # [U] before the decision
    delay_queue: Any  # before the decision
    value: Any  # drift plus penalty V
    lower_bound: Any  # certified; -inf if the solver gives none
    live: Array  # [U] bool, before the decision
    epsilon_spent: Array  # [U] after the round


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Schedule(RoundPlan):
    """All rounds of a run: the columns of `RoundPlan` with a leading axis [T].

    Slots are channels: a client's channel is its column. What follows is known of the
    run as a whole. Nothing here depends on training: a schedule can be looked at,
    saved (`save`, `load`) and compared before the first gradient.

    Shapes: T rounds, N channels, U clients.

    Examples:
        >>> import dpsparfl_jax as fl
        >>> settings = fl.RunConfig(length=fl.LengthConfig(rounds=4))
        >>> schedule = fl.plan(settings)
        >>> schedule.client.shape, schedule.epsilon_spent.shape
        ((4, 5), (4, 20))
        >>> int(schedule.participations.sum()) == int(schedule.sends.sum())
        True
        >>> bool((schedule.epsilon_spent[-1] <= schedule.budget).all())
        True
    """

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


_SCALARS = (  # one a round
    *("round_delay_s", "planned_delay_s", "delay_queue", "value", "lower_bound"),
)
_PER_CLIENT = ("fairness_queue", "live", "epsilon_spent")


def join(
    rounds: Sequence[RoundPlan],
    *,
    num_channels: int,
    last_delay_queue: float,
    affordable: Array,
    budget: Array,
    rate: Array,
    reason: str,
) -> Schedule:
    """The schedule of these rounds; columns are empty, but of their shape, if none."""
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(_SCALARS, (0,))
    shapes |= dict.fromkeys(_PER_CLIENT, (0, len(budget)))
    kinds: dict[str, Any] = {"client": np.intp}
    kinds |= dict.fromkeys(("live", "late", "arrived"), np.bool_)
    columns = {
        name: np.array([getattr(one, name) for one in rounds])
        if rounds
        else np.zeros(shapes.get(name, (0, num_channels)), kinds.get(name, np.float64))
        for name in (field.name for field in dataclasses.fields(RoundPlan))
    }
    return Schedule(
        **columns,
        last_delay_queue=np.array(last_delay_queue),
        affordable=affordable,
        budget=budget,
        rate=rate,
        reason=reason,
    )


def save(schedule: Schedule, path: str | os.PathLike[str]) -> None:
    """Writes a schedule as npz, whole or not at all."""
    columns = dataclasses.asdict(schedule)
    with storage.replacing(pathlib.Path(path)) as part, open(part, "wb") as file:
        np.savez_compressed(file, **columns | {"reason": np.array(schedule.reason)})


def _complete(columns: dict[str, Array]) -> None:
    """Fills in what schedules of earlier versions lack: all went as planned there."""
    columns.setdefault("late", np.zeros(columns["client"].shape, bool))
    columns.setdefault("arrived", columns["client"] != IDLE)
    columns.setdefault("planned_delay_s", columns["round_delay_s"])
    for field in dataclasses.fields(Schedule):
        columns[field.name]  # a KeyError if it is missing


def _check(columns: dict[str, Array]) -> None:
    """Refuses columns that are not of their kind, or do not fit each other."""
    rounds, channels = columns["client"].shape  # a ValueError if it has other axes
    (clients,) = columns["budget"].shape
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(_SCALARS, (rounds,))
    shapes |= dict.fromkeys(_PER_CLIENT, (rounds, clients))
    shapes |= dict.fromkeys(("affordable", "budget", "rate"), (clients,))
    shapes |= {"last_delay_queue": (), "reason": ()}
    for name, column in columns.items():
        if column.shape != shapes.get(name, (rounds, channels)):
            raise ValueError(f"{name} has the shape {column.shape}")
        if name != "reason" and column.dtype.kind not in "biuf":
            raise ValueError(f"{name} holds {column.dtype}")
    slots = columns["client"]
    if slots.dtype.kind not in "iu" or np.any((slots < IDLE) | (slots >= clients)):
        raise ValueError("it names clients that are not there")


def load(path: str | os.PathLike[str]) -> Schedule:
    """Reads a schedule; refuses a file that is not one."""
    names = [field.name for field in dataclasses.fields(Schedule)]
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            columns = {name: file[name] for name in names if name in file}
            _complete(columns)
            _check(columns)
    except FileNotFoundError:
        raise InputError(f"there is no schedule {os.fspath(path)!r}.") from None
    except UNREADABLE as reason:
        first = str(reason).strip().partition("\n")[0] or type(reason).__name__
        raise InputError(
            f"{os.fspath(path)!r} is no schedule, or a damaged one ({first}): plan it "
            "again."
        ) from None
    return Schedule(**columns | {"reason": str(columns["reason"])})
