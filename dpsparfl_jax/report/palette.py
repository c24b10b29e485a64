"""Colours, dashes and markers: one palette for pages and for pictures.

The colours are Okabe and Ito's, which people with any kind of colour vision can tell
apart, without those that are too pale on white.
"""

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
# Parts of a round.
DOWNLINK, TRAINING, UPLOAD, WHOLE = "#56B4E9", "#E69F00", "#0072B2", "#CC79A7"


class Look(NamedTuple):
    """What tells a run or a setting apart from others."""

    colour: str
    dashes: tuple[int, ...]
    marker: tuple[str, str]


def look(number: int) -> Look:
    """The look of the run or setting with this number: colours first, then dashes."""
    again = number // len(COLOURS) % len(DASHES)
    return Look(COLOURS[number % len(COLOURS)], DASHES[again], MARKERS[again])
