"""How costs grow with a quantity: the exponent of a power law."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

LIMIT = 1.1  # an exponent above it is more than linear, whatever the noise
COSTS = ("seconds", "megabytes")


def exponent(quantity: Sequence[float], cost: Sequence[float]) -> float:
    """Slope of log cost against log quantity over the upper half of the points.

    Small quantities show fixed costs and say little about what comes later. At least
    two points are used.
    """
    order = np.argsort(quantity)
    upper = order[min(len(order) // 2, len(order) - 2) :]
    x, y = np.log(np.asarray(quantity)[upper]), np.log(np.asarray(cost)[upper])
    return float(np.polyfit(x, y, 1)[0])


def exponents(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """{quantity: {cost: exponent}} of rows with the keys quantity, value and costs."""
    found = {}
    for name in dict.fromkeys(row["quantity"] for row in rows):
        mine = [row for row in rows if row["quantity"] == name]
        if len({row["value"] for row in mine}) < 2:
            continue
        values = [row["value"] for row in mine]
        found[name] = {
            cost: round(exponent(values, [row[cost] for row in mine]), 3)
            for cost in COSTS
        }
    return found


def superlinear(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What grows faster than in proportion, as sentences; empty if nothing does."""
    return [
        f"{cost} grow with {name} to the power of {power:.2f}"
        for name, powers in exponents(rows).items()
        for cost, power in powers.items()
        if power > LIMIT
    ]
