"""Random search by successive halving: what is drawn, and who goes on."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.options import RANGE

from . import cli, grid

_DIGITS = 3  # of a drawn number: what nobody can tell apart need not be written


class Dimension(NamedTuple):
    """A setting that is searched: some values, or a range."""

    name: str  # section.field
    values: tuple[str, ...]
    low: float = math.nan
    high: float = math.nan

    @property
    def is_range(self) -> bool:
        """Whether numbers are drawn from `low` to `high`."""
        return not self.values

    @property
    def is_logarithmic(self) -> bool:
        """Ranges of positive numbers are: 0.01 is as far from 0.1 as that from 1."""
        return self.is_range and self.low > 0


def parse(text: str) -> list[Dimension]:
    """`training.clip_norm=1..20;server.averaging=ema,tail`, checked."""
    found: list[Dimension] = []
    for part in filter(None, grid.split(text, ";")):
        name, equals, what = (piece.strip() for piece in part.partition("="))
        name = cli.current_name(name)
        match = RANGE.fullmatch(what)
        if match and equals:
            low, high = map(float, match.groups())
            if not low < high:
                raise InputError(f"--search: {what} is an empty range of {name}.")
            ends = match.groups()
            dimension = Dimension(name, (), low, high)
        else:
            ends = grid.read_values(what)
            if not ends:
                raise InputError(
                    f"--search: {part!r} is not of the form setting=low..high or "
                    "setting=value,value (separated by semicolons)."
                )
            dimension = Dimension(name, ends)
        for value in ends:
            grid.check_value("search", name, value)
        if name == "seed" or name in (one.name for one in found):
            raise InputError(f"--search: {name} is no setting to search, or is twice.")
        found.append(dimension)
    if not found:
        raise InputError(
            "there is nothing to search: give --search='setting=low..high;...'."
        )
    return found


def draw(
    dimensions: Sequence[Dimension], trials: int, seed: int
) -> list[dict[str, str]]:
    """Settings of the trials, as texts; more trials begin with the same ones."""
    return [
        _draw_one(dimensions, np.random.default_rng([seed, n])) for n in range(trials)
    ]


def _draw_one(
    dimensions: Sequence[Dimension], random: np.random.Generator
) -> dict[str, str]:
    drawn = {}
    for one in dimensions:
        if not one.is_range:
            drawn[one.name] = one.values[random.integers(len(one.values))]
            continue
        share = random.random()
        value = one.low + share * (one.high - one.low)
        if one.is_logarithmic:
            value = one.low * (one.high / one.low) ** share
        rounded = float(f"{value:.{_DIGITS}g}")
        inside = min(max(rounded, one.low), one.high)
        drawn[one.name] = grid.as_text(one.name, inside)
    return drawn


def best(scores: Mapping[int, float], share: float) -> list[int]:
    """The trials that go on: this share of them, at least one, the best first."""
    ranked = sorted(scores, key=lambda trial: (-scores[trial], trial))
    return ranked[: max(1, math.ceil(share * len(ranked)))]
