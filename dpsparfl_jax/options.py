"""How a setting is declared: default, bounds, unit and help in one place."""

import dataclasses
import math
from typing import Any

from dpsparfl_jax.errors import InputError


def opt(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] | None = None,
    paper: str = "",
) -> Any:
    """A setting: `low`/`high` are inclusive bounds, `above`/`below` strict ones.

    `paper` says where the paper states the value; empty means the value is ours.
    """
    bounds = {"low": low, "above": above, "high": high, "below": below}
    metadata = {"help": help, "paper": paper, "choices": choices, **bounds}
    return dataclasses.field(default=default, metadata=metadata)


def describe_rule(field: dataclasses.Field[Any]) -> str:
    """The bounds of a setting in words, empty if there are none."""
    rule = field.metadata
    if rule["choices"]:
        return "one of " + ", ".join(rule["choices"])
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """Checks its fields against their declared bounds."""

    def __post_init__(self) -> None:
        """Refuses the first value that breaks its rule."""
        for field in dataclasses.fields(self):
            if "help" in field.metadata:
                self._check(field)

    def _check(self, field: dataclasses.Field[Any]) -> None:
        value, rule = getattr(self, field.name), field.metadata
        kind = type(field.default)
        same_kind = isinstance(value, int | float if kind is float else kind)
        if not same_kind or (isinstance(value, bool) and kind is not bool):
            raise InputError(
                f"{field.name} must be of type {kind.__name__}, but is {value!r}."
            )
        if rule["choices"]:
            good = value in rule["choices"]
        elif isinstance(value, str | bool):
            good = True
        else:
            good = (
                math.isfinite(value)
                and (rule["low"] is None or value >= rule["low"])
                and (rule["above"] is None or value > rule["above"])
                and (rule["high"] is None or value <= rule["high"])
                and (rule["below"] is None or value < rule["below"])
            )
        if not good:
            raise InputError(
                f"{field.name} must be {describe_rule(field)}, but is {value!r}."
            )
