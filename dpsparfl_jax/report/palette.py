"""Colours, dashes and markers: one palette for pages and for pictures.

The colours are Okabe and Ito's, which people with any kind of colour vision can tell
apart, without those that are too pale on white. Built-in policies have looks of their
own, on every page and picture.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

COLOURS = "#0072B2 #D55E00 #009E73 #CC79A7 #E69F00 #56B4E9 #4D4D4D".split()
DASHES: tuple[tuple[int, ...], ...] = (
    *((), (6, 3), (2, 2), (8, 3, 2, 3), (12, 4), (8, 2, 2, 2, 2, 2), (4, 1), (1, 4)),
    (14, 3, 4, 3),
)
MARKERS = (  # for plotly and for matplotlib
    *(("circle", "o"), ("square", "s"), ("diamond", "D"), ("triangle-up", "^")),
    *(("triangle-down", "v"), ("pentagon", "p"), ("star", "*"), ("hexagon", "h")),
    ("cross", "P"),
)
GUIDE = "#767676"  # targets, diagonals and budgets
# What is too dark on a dark page, and what stands for it there.
ON_DARK = {"#4D4D4D": "#C4C4C4", GUIDE: "#9A9A9A"}
# Looks that belong to built-in policies, by their names in settings and in the study.
_OWN = {
    **{"dp_sparfl": 0, "delay_min": 1, "round_robin": 2, "random": 3},
    **{"DP-SparFL": 0, "delay minimization": 1, "round robin": 2},
}
# Parts of a round.
DOWNLINK, TRAINING, UPLOAD, WHOLE = "#56B4E9", "#E69F00", "#0072B2", "#CC79A7"


class Look(NamedTuple):
    """What tells a run or a setting apart from others."""

    colour: str
    dashes: tuple[int, ...]
    marker: tuple[str, str]


def look(number: int) -> Look:
    """The look with this number: 63 differ, and neighbours do in all three."""
    return Look(
        COLOURS[number % len(COLOURS)],
        DASHES[number % len(DASHES)],
        MARKERS[number % len(MARKERS)],
    )


def looks(names: Sequence[str | None]) -> list[Look]:
    """Looks of what has these names, in order.

    The first of a built-in policy has its own look, whatever else is shown, and others
    take those that belong to nobody. If all have the same name (runs of one policy
    that differ otherwise) or none has a look of its own, they go by order.
    """
    own = {name: names.index(name) for name in names if name in _OWN}
    if not own or (len(names) > 1 and len(set(names)) == 1):
        return [look(number) for number in range(len(names))]
    places = {place: _OWN[str(name)] for name, place in own.items()}
    free = itertools.count(max(_OWN.values()) + 1)
    return [
        look(places[place] if place in places else next(free))
        for place in range(len(names))
    ]


def fitted(dashes: Sequence[int], length: float) -> tuple[float, ...]:
    """Dashes, stretched so that a line of this length begins and ends with a dash."""
    if not dashes:
        return ()
    first, period = dashes[0], sum(dashes)
    times = max(1, round((length - first) / period))
    stretch = length / (times * period + first)
    return tuple(round(stretch * part, 3) for part in dashes)
