"""The schedule of a run: the one value between planning and training.

It grows with participations: what clients' queues and ledgers are in every round
follows from who took part, and is found again when it is asked for.
"""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax import memory, storage
from dpsparfl_jax.config_cell import FAIRNESS_RULES
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.scheduling.queues import next_fairness
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
    delay_queue: Any  # before the decision
    value: Any  # drift plus penalty V
    lower_bound: Any  # certified; -inf if the solver gives none


class ClientState(NamedTuple):
    """What a round finds and leaves of every client: all [U]."""

    fairness_queue: Array  # before the decision
    before: Array  # participations before the round
    after: Array  # and after it


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Schedule(RoundPlan):
    """All rounds of a run: the columns of `RoundPlan` with a leading axis [T].

    Slots are channels: a client's channel is its column. What follows is known of the
    run as a whole. Nothing here depends on training: a schedule can be looked at,
    saved (`save`, `load`) and compared before the first gradient.

    Queues and ledgers of clients are not kept for every round. `client_states` goes
    through them round by round; `fairness_queue`, `live` and `epsilon_spent` are made
    when they are first asked for, and are as large as rounds times clients.

    Shapes: T rounds, N channels, U clients, G groups of clients with one curve.

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
    fairness: str  # how fairness queues move: `schedule.fairness` of the settings
    epsilon_curve: Array  # [G, K] epsilon after 0, 1, ... participations
    group: Array  # [U] row of `epsilon_curve`
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

    def client_states(self) -> Iterator[ClientState]:
        """Queues and participations of all clients, round by round."""
        return _walk(self.client, self.rate, self.fairness)

    def epsilon_after(self, participations: Array) -> Array:
        """Epsilon [U] that clients have spent after so many participations [U]."""
        spent = self.epsilon_curve[self.group, participations]
        return np.where(self.affordable > 0, spent, 0.0)  # others are never asked

    @functools.cached_property
    def fairness_queue(self) -> Array:
        """[T, U] before each decision."""
        return self._each_round(np.float64, lambda state: state.fairness_queue)

    @functools.cached_property
    def live(self) -> Array:
        """[T, U] bool: who may take part, before each decision."""
        return self._each_round(bool, lambda state: state.before < self.affordable)

    @functools.cached_property
    def epsilon_spent(self) -> Array:
        """[T, U] after each round."""
        return self._each_round(
            np.float64, lambda state: self.epsilon_after(state.after)
        )

    def _each_round(self, kind: Any, value: Any) -> Array:
        shape = (self.num_rounds, len(self.budget))
        memory.require(
            np.prod(shape, dtype=float) * np.dtype(kind).itemsize,
            f"a number for {shape[0]:,} rounds of {shape[1]:,} clients",
            "go through client_states() of the schedule instead",
        )
        table = np.empty(shape, kind)
        for row, state in zip(table, self.client_states(), strict=True):
            row[:] = value(state)
        return table


def _walk(slots: Array, rate: Array, fairness: str) -> Iterator[ClientState]:
    """States of the clients that send in these slots [T, N], at rates [U]."""
    queue, count = np.zeros(len(rate)), np.zeros(len(rate), np.int64)
    for row in slots:
        selected = np.zeros(len(rate), bool)
        selected[row[row != IDLE]] = True
        after = count + selected
        yield ClientState(queue, count, after)
        queue, count = next_fairness(fairness, queue, selected, rate), after


def _most(slots: Array) -> int:
    """The participations of the client that has most."""
    return int(np.max(np.bincount(slots[slots != IDLE], minlength=1)))


_SCALARS = (  # one a round
    *("round_delay_s", "planned_delay_s", "delay_queue", "value", "lower_bound"),
)
_TEXTS = ("fairness", "reason")


def join(
    rounds: Sequence[RoundPlan],
    *,
    num_channels: int,
    last_delay_queue: float,
    affordable: Array,
    budget: Array,
    rate: Array,
    fairness: str,
    epsilon_curve: Array,
    group: Array,
    reason: str,
) -> Schedule:
    """The schedule of these rounds; columns are empty, but of their shape, if none."""
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(_SCALARS, (0,))
    kinds: dict[str, Any] = {"client": np.intp}
    kinds |= dict.fromkeys(("late", "arrived"), np.bool_)
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
        fairness=fairness,
        epsilon_curve=epsilon_curve[:, : _most(columns["client"]) + 1],
        group=group,
        reason=reason,
    )


def first_rounds(schedule: Schedule, count: int) -> Schedule:
    """The first rounds of a schedule."""
    queues = np.append(schedule.delay_queue, schedule.last_delay_queue)
    columns = [field.name for field in dataclasses.fields(RoundPlan)]
    rounds = {name: getattr(schedule, name)[:count] for name in columns}
    return dataclasses.replace(schedule, **rounds, last_delay_queue=queues[count])


def save(schedule: Schedule, path: str | os.PathLike[str]) -> None:
    """Writes a schedule as npz, whole or not at all."""
    columns = dataclasses.asdict(schedule)
    texts = {name: np.array(columns[name]) for name in _TEXTS}
    with storage.replacing(pathlib.Path(path)) as part, open(part, "wb") as file:
        np.savez_compressed(file, **columns | texts)


_FORMER = ("fairness_queue", "live", "epsilon_spent")  # [T, U] of earlier versions


def _compact(columns: dict[str, Array], former: dict[str, Array]) -> None:
    """Replaces tables [T, U] of an earlier version by what they follow from.

    Epsilon is known where it was written: after the participations that took place.
    """
    slots, (clients,) = columns["client"], columns["rate"].shape
    _check_clients(slots, clients)
    for name in _FORMER:
        if former[name].shape != (len(slots), clients):
            raise ValueError(f"{name} has the shape {former[name].shape}")
    queues = former["fairness_queue"]
    for rule in FAIRNESS_RULES:
        states = zip(_walk(slots, columns["rate"], rule), queues, strict=True)
        if all(np.array_equal(one.fairness_queue, queue) for one, queue in states):
            break
    else:
        raise ValueError("its fairness queues do not follow from who sends")
    curve = np.full((clients, _most(slots) + 1), np.nan)
    everybody = np.arange(clients)
    walked = _walk(slots, columns["rate"], rule)
    for state, spent in zip(walked, former["epsilon_spent"], strict=True):
        curve[everybody, state.after] = spent
    columns |= {"fairness": np.array(rule), "epsilon_curve": curve, "group": everybody}


def _complete(columns: dict[str, Array]) -> None:
    """Fills in what schedules of earlier versions lack: all went as planned there."""
    columns.setdefault("late", np.zeros(columns["client"].shape, bool))
    columns.setdefault("arrived", columns["client"] != IDLE)
    columns.setdefault("planned_delay_s", columns["round_delay_s"])
    for field in dataclasses.fields(Schedule):
        columns[field.name]  # a KeyError if it is missing


def _check_clients(slots: Array, clients: int) -> None:
    if slots.dtype.kind not in "iu" or np.any((slots < IDLE) | (slots >= clients)):
        raise ValueError("it names clients that are not there")


def _check(columns: dict[str, Array]) -> None:
    """Refuses columns that are not of their kind, or do not fit each other."""
    rounds, channels = columns["client"].shape  # a ValueError if it has other axes
    (clients,) = columns["budget"].shape
    curves, length = columns["epsilon_curve"].shape
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(_SCALARS, (rounds,))
    shapes |= dict.fromkeys(("affordable", "budget", "rate", "group"), (clients,))
    shapes |= {"last_delay_queue": (), "epsilon_curve": (curves, length)}
    shapes |= dict.fromkeys(_TEXTS, ())
    for name, column in columns.items():
        if column.shape != shapes.get(name, (rounds, channels)):
            raise ValueError(f"{name} has the shape {column.shape}")
        if name not in _TEXTS and column.dtype.kind not in "biuf":
            raise ValueError(f"{name} holds {column.dtype}")
    group = columns["group"]
    _check_clients(columns["client"], clients)
    if group.dtype.kind not in "iu" or np.any((group < 0) | (group >= curves)):
        raise ValueError("it names epsilon curves that are not there")
    if _most(columns["client"]) >= length:
        raise ValueError("its epsilon curves are too short")
    if str(columns["fairness"]) not in FAIRNESS_RULES:
        raise ValueError(f"there is no fairness queue {str(columns['fairness'])!r}")


def load(path: str | os.PathLike[str]) -> Schedule:
    """Reads a schedule; refuses a file that is not one."""
    names = [field.name for field in dataclasses.fields(Schedule)]
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            columns = {name: file[name] for name in names if name in file}
            former = {name: file[name] for name in _FORMER if name in file}
            if len(former) == len(_FORMER):
                _compact(columns, former)
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
    return Schedule(**columns | {name: str(columns[name]) for name in _TEXTS})
