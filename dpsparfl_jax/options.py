"""How a setting is declared: default, bounds, unit, help and what it moves, once."""

import dataclasses
import math
import pathlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.registry import Registry

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})")  # as in 1e6..3e6
MOVES = ("results", "rounding", "nothing")
# Numbers beyond these are slips of the pen: their squares leave what can be computed.
LARGEST_COUNT = 2**31 - 1  # devices count in 32 bits
LARGEST, SMALLEST = 1e18, 1e-40
_SHOWN = 100  # characters of a bad value


class Form(NamedTuple):
    """What a text must look like: how it is read, and that in words."""

    read: Callable[[str], Any]  # a ValueError if it looks otherwise
    words: str


def _read_counts(text: str) -> tuple[int, ...]:
    counts = tuple(int(part) for part in text.split(",") if _is_count(part.strip()))
    if len(counts) != text.count(",") + 1:
        raise ValueError(text)
    return counts


def _is_count(text: str) -> bool:
    short = text.isascii() and text.isdigit() and len(text) <= 10
    return short and 0 < int(text) <= LARGEST_COUNT


def _read_epsilons(text: str) -> tuple[float, ...]:
    epsilons = tuple(float(part) for part in text.split(",")) if text.strip() else ()
    if not all(SMALLEST <= epsilon <= LARGEST for epsilon in epsilons):
        raise ValueError(text)
    return epsilons


COUNTS = Form(
    _read_counts, "whole positive numbers with commas between them, as in 300,600"
)
EPSILONS = Form(
    _read_epsilons, "empty, or positive numbers with commas between them, as in 2,5,10"
)


def opt(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] | None = None,
    named: Registry[str] | None = None,
    moves: str = "results",
    static: bool = False,
    each: str = "",
    form: Form | None = None,
    paper: str = "",
) -> Any:
    """A setting: `low`/`high` are inclusive bounds, `above`/`below` strict ones.

    Args:
        default: its value where nobody gives another; also its type.
        help: what it means, for `--help` and the documents.
        low: least value.
        high: largest value.
        above: bound that the value must exceed.
        below: bound that the value must stay under.
        choices: the words that it may be.
        named: the registry whose names it may be.
        moves: what changes with it: "results", only their "rounding", or "nothing".
            Whatever compares settings (resuming, digests, kept plans) goes by this.
        static: whether compiled programs are built around it; all else is data.
        each: what may have a number of its own ("client"); see `client_values`.
        form: what a text must look like, whether it has an effect or not.
        paper: where the paper states the value; empty means that the value is ours.
    """
    assert moves in MOVES
    bounds = {"low": low, "above": above, "high": high, "below": below}
    words = {"help": help, "paper": paper, "choices": choices, "named": named}
    kind = {"moves": moves, "static": static, "each": each, "form": form}
    return dataclasses.field(default=default, metadata={**words, **bounds, **kind})


def describe_rule(field: dataclasses.Field[Any]) -> str:
    """The bounds of a setting in words, empty if there are none."""
    rule = field.metadata
    if rule["choices"]:
        return "one of " + ", ".join(rule["choices"])
    if rule["named"]:
        return f"one of {', '.join(rule['named'])}, or one that you registered"
    parts = [
        f"{word} {rule[key]:g}"
        for key, word in (
            ("low", "at least"),
            ("above", "above"),
            ("high", "at most"),
            ("below", "below"),
        )
        if rule[key] is not None
    ]
    return " and ".join(parts)


def shown(value: Any) -> str:
    """A value as a sentence shows it: cut if it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def breaks_rule(field: dataclasses.Field[Any], value: float) -> bool:
    """Whether a number is outside a setting's bounds, or none that can be used."""
    rule = field.metadata
    return not (
        _is_usable(value)
        and (rule["low"] is None or value >= rule["low"])
        and (rule["above"] is None or value > rule["above"])
        and (rule["high"] is None or value <= rule["high"])
        and (rule["below"] is None or value < rule["below"])
    )


def _is_usable(value: float) -> bool:
    if isinstance(value, int):
        return abs(value) <= LARGEST_COUNT
    return value == 0 or SMALLEST <= abs(value) <= LARGEST  # neither nan nor infinite


def broken_rule(field: dataclasses.Field[Any], value: float) -> str:
    """What a number should have been that breaks its setting's rule, in words."""
    rules = describe_rule(field)
    if _is_usable(value):
        return rules
    if isinstance(value, int):
        size = f"at most {LARGEST_COUNT}"
    elif not math.isfinite(value):
        size = "finite"
    else:
        size = f"0 or between {SMALLEST:g} and {LARGEST:g} in size"
    return f"{rules} and {size}" if rules else size


def check_value(field: dataclasses.Field[Any], value: Any) -> Any:
    """The value as its setting keeps it; refuses one that breaks the setting's rule."""
    name, rule = field.name, field.metadata
    if rule["each"]:
        value = numbers_of(name, value)
        if isinstance(value, str | tuple):
            _check_each(field, value)
            return value  # `client_values` counts the numbers, once it knows clients
    kind = type(field.default)
    same_kind = isinstance(value, int | float if kind is float else kind)
    if not same_kind or (isinstance(value, bool) and kind is not bool):
        raise InputError(
            f"{name} must be of type {kind.__name__}, but is {shown(value)}."
        )
    if rule["choices"] and value not in rule["choices"]:
        raise InputError(
            f"{name} must be {describe_rule(field)}, but is {shown(value)}."
        )
    if isinstance(value, str):
        _check_text(field, value)  # registered names: `RunConfig.check_names`
    elif not isinstance(value, bool) and breaks_rule(field, value):
        words = broken_rule(field, value)
        raise InputError(f"{name} must be {words}, but is {shown(value)}.")
    return value


def _check_each(field: dataclasses.Field[Any], value: Any) -> None:
    """Refuses a list, table or range with a number that breaks the setting's rule."""
    if isinstance(value, str):
        bounds = RANGE.fullmatch(value)
        assert bounds is not None  # `numbers_of` lets no other text pass
        numbers = np.array(bounds.groups(), np.float64)
        if not numbers[0] <= numbers[1]:
            raise InputError(f"{field.name}: the range {value} ends below its start.")
    else:
        numbers = np.unique(np.asarray(value, np.float64))
    for number in numbers.tolist():
        if breaks_rule(field, number):
            words = broken_rule(field, number)
            raise InputError(f"{field.name} must be {words}, but holds {number:g}.")


def _check_text(field: dataclasses.Field[Any], value: str) -> None:
    form: Form | None = field.metadata["form"]
    if not value.isprintable():
        raise InputError(f"{field.name} must be printable text, but is {shown(value)}.")
    if form is None:
        return
    try:
        form.read(value)
    except ValueError:
        raise InputError(
            f"{field.name} must be {form.words}, but is {shown(value)}."
        ) from None


def numbers_of(name: str, value: Any) -> Any:
    """A setting of many clients as it is kept: a number, tuples of them, or a range.

    A list with commas and a file become their numbers, so that what is recorded and
    compared is what was used; a range stays the text that it is.
    """
    if isinstance(value, str):
        text = value.strip()
        if RANGE.fullmatch(text):
            return text
        try:
            value = [float(part) for part in text.split(",")]
        except ValueError:
            value = _from_file(name, text)
    if isinstance(value, list | tuple | np.ndarray):
        try:
            array = np.asarray(value, np.float64)
        except (OverflowError, TypeError, ValueError):
            raise InputError(
                f"{name} must be numbers, but is {shown(value)}."
            ) from None
        if array.size == 1:
            return float(array.flat[0])
        rows = array.tolist()
        return tuple(tuple(row) if isinstance(row, list) else row for row in rows)
    return value


def _from_file(name: str, text: str) -> Any:
    """Numbers of a file: .npy, or text with spaces, commas or line ends between."""
    try:
        path = pathlib.Path(text).expanduser()
        if path.suffix == ".npy":
            array = np.load(path, allow_pickle=False)
            if not np.issubdtype(array.dtype, np.number) or np.iscomplexobj(array):
                raise ValueError(f"it holds {array.dtype}")
        else:
            lines = path.read_text(encoding="utf-8").replace(",", " ").splitlines()
            rows = [line.split() for line in lines if line.strip()]
            array = np.array([[float(number) for number in row] for row in rows])
        if array.size == 0 or array.ndim > 2:
            raise ValueError("it is empty, or no list or table")
        return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    except (OSError, ValueError, EOFError, RuntimeError) as reason:
        why = getattr(reason, "strerror", "") or reason
        raise InputError(
            f"{name} is a number, numbers with commas, a range as in 1..2, or a file "
            f"of numbers; {shown(text)} is none of these ({why})."
        ) from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """Checks its fields against their declared bounds."""

    def __post_init__(self) -> None:
        """Refuses the first value that breaks its rule."""
        for field in dataclasses.fields(self):
            if "help" in field.metadata:
                value = check_value(field, getattr(self, field.name))
                object.__setattr__(self, field.name, value)
