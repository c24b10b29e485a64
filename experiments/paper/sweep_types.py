"""What a sweep is: series of runs that share a preset."""

import types
from collections.abc import Mapping
from typing import NamedTuple

from .protocol import Worlds

Changes = Mapping[str, str]  # of settings, by section.field
_NONE: Changes = types.MappingProxyType({})


class Series(NamedTuple):
    """One curve, or one point of it."""

    label: str
    changes: Changes
    value: float | None = None  # on the x axis
    quick: bool = True  # whether the quick scale has it
    once: bool = False  # for orientation: the first seed alone, in no claim
    trained: bool = True  # False: planned only, also where its sweep is trained


class Sweep(NamedTuple):
    """Series that share a preset."""

    preset: str
    series: tuple[Series, ...]
    changes: Changes = _NONE  # of all series
    quick: Changes = _NONE  # further ones at the quick scale
    trained: bool = True
    worlds: Worlds | None = None  # at the full scale: as the protocol says
    whole: bool = False  # trained until the budgets end, at the full scale


def points(label: str, setting: str, values: str, quick: str) -> tuple[Series, ...]:
    """A series for every value of a setting; some are part of the quick scale."""
    return tuple(
        Series(
            label.format(value), {setting: value}, float(value), value in quick.split()
        )
        for value in values.split()
    )
