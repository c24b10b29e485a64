"""Grids of settings: `schedule.tradeoff=1,10;seed=0..2` and the runs they mean.

`0..2` is every whole number from 0 to 2, for settings that are whole numbers. A value
in brackets or quotes may hold commas: `data.group_sizes=[300,600],[100,900]`.
"""

import dataclasses
import hashlib
import itertools
import math
import re
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dpsparfl_jax import config, config_values, options, preflight
from dpsparfl_jax.data import sources
from dpsparfl_jax.errors import InputError

from . import cli, usage

_DEFAULTS = config.RunConfig()
_LONGEST_NAME = 180
_MOST_RUNS = 10_000  # of one command: all of them are looked at before the first trains
_MOST_NUMBERS = 100_000  # of a range
_RANGE = re.compile(r"(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})")
_MEANT_RANGE = re.compile(r"([0-9]{1,18})\s*(?:-|:|\.\.\.)\s*([0-9]{1,18})")
_WRAPPED = r"""\[[^\]]*\]|"[^"]*"|'[^']*'"""  # a value that may hold commas
_WRAPPED_VALUE = re.compile(rf"(?:^|(?<=[=,]))\s*(?:{_WRAPPED})\s*(?=[,;]|$)")


class Axis(NamedTuple):
    """One setting and the values it takes."""

    name: str  # section.field, or seed
    values: tuple[str, ...]


class Points(NamedTuple):
    """The runs of a grid by name, and why some combinations are none."""

    settings: dict[str, config.RunConfig]
    problems: dict[str, str]

    def __len__(self) -> int:
        """How many combinations there are, possible or not."""
        return len(self.settings) + len(self.problems)


def parse(text: str) -> list[Axis]:
    """The axes of a grid; refuses what is no setting, or is there twice."""
    axes: list[Axis] = []
    for part in filter(None, split(text, ";")):
        name, _, listed = part.partition("=")
        written = read_values(listed)
        if not written:
            raise InputError(
                f"--grid: {part!r} is not of the form setting=value,value (several "
                "settings are separated by semicolons)."
            )
        name = cli.current_name(name.strip())
        values = tuple(
            itertools.chain.from_iterable(_numbers(name, one) for one in written)
        )
        for value in values:
            check_value("grid", name, value)
        if name in (axis.name for axis in axes) or len(set(values)) < len(values):
            raise InputError(f"--grid: {name} is given, or has a value, twice.")
        axes.append(Axis(name, values))
    return axes


def split(text: str, sign: str) -> list[str]:
    """The parts of a text between signs that stand in no brackets and no quotes."""
    seen = _WRAPPED_VALUE.sub(lambda found: "_" * len(found[0]), text)
    places = [place for place, character in enumerate(seen) if character == sign]
    ends = [-1, *places, len(text)]
    return [text[a + 1 : b].strip() for a, b in itertools.pairwise(ends)]


def read_values(listed: str) -> tuple[str, ...]:
    """Values with commas between them, out of their brackets or quotes.

    There are none if one is missing: an empty one is written as "".
    """
    values = split(listed, ",")
    if not all(values):
        return ()
    return tuple(
        value[1:-1].strip() if re.fullmatch(_WRAPPED, value) else value
        for value in values
    )


def _numbers(name: str, value: str) -> Iterable[str]:
    """The whole numbers of a range as in 0..9, or the value itself."""
    found = _RANGE.fullmatch(value)
    if not found or not _is_whole(name):
        return (value,)
    first, last = map(int, found.groups())
    if not 0 <= last - first < _MOST_NUMBERS:
        raise InputError(
            f"--grid: {name}={value} must go up, by {_MOST_NUMBERS:,} numbers at most."
        )
    return map(str, range(first, last + 1))


def _is_whole(name: str) -> bool:
    """Whether this setting is a whole number; what is none is refused elsewhere."""
    try:
        return _field_type(name) is int
    except InputError:
        return False


def check_value(flag: str, name: str, text: str) -> None:
    """Refuses what is no setting, or no value of it; `flag` is what said so.

    A value that its setting never takes spoils every run that has it: better to say so
    before the others are trained.
    """
    try:
        value, field = _typed(name, text), _field(name)
    except InputError as problem:
        raise InputError(f"--{flag}: {problem}") from None
    try:
        if field is not None:
            options.check_value(field, value)
            if field.metadata["named"] is not None:
                field.metadata["named"].check(value)
    except InputError as problem:
        what = "run of the grid" if flag == "grid" else "trial"
        raise type(problem)(
            f"--{flag}: no {what} is possible with {name}={text}: {problem}"
        ) from None


def as_text(name: str, value: float) -> str:
    """A number as a value of a setting: whole where the setting is."""
    return str(round(value)) if _field_type(name) is int else f"{value:g}"


def _field(name: str) -> dataclasses.Field[Any] | None:
    """The declaration of a setting; None is the seed's."""
    section, _, field = name.partition(".")
    if name == "seed":
        return None
    if section in config.SECTIONS:
        for candidate in dataclasses.fields(getattr(_DEFAULTS, section)):
            if candidate.name == field:
                return candidate
    meant = usage.hint(usage.nearest(name, [*usage.declared(), "seed"]))
    raise InputError(
        f"unknown setting {name!r}"
        + (meant or ": use section.field as in --help, or seed.")
    )


def _field_type(name: str) -> type:
    field = _field(name)
    if field is None:
        return int
    return str if field.metadata["each"] else type(field.default)


def _typed(name: str, text: str) -> Any:
    kind = _field_type(name)
    if kind is bool:
        words = {"true": True, "false": False, "1": True, "0": False}
        if text.lower() in words:
            return words[text.lower()]
    else:
        try:
            return kind(text)
        except ValueError:
            pass
    meant = _MEANT_RANGE.fullmatch(text) if kind is int else None
    hint = f" (a range is written {meant[1]}..{meant[2]})" if meant else ""
    raise InputError(f"{text!r} is no {kind.__name__}, as {name} needs{hint}.")


def change(settings: config.RunConfig, changes: Mapping[str, str]) -> config.RunConfig:
    """The settings with some of them changed, all of a section at once."""
    sections: dict[str, dict[str, Any]] = {}
    for name, text in changes.items():
        section, _, field = name.rpartition(".")
        sections.setdefault(section, {})[field] = _typed(name, text)
    top = sections.pop("", {})
    for section, values in sections.items():
        try:
            top[section] = config_values.replaced(getattr(settings, section), values)
        except InputError as error:
            raise InputError(f"{section}.{error}") from None
    changed = dataclasses.replace(settings, **top)
    changed.check_names()
    return changed


def expand(base: config.RunConfig, axes: list[Axis], part: str = "") -> Points:
    """All combinations, the last axis fastest; names are fit for folders.

    With `part`, "i/n", only every n-th of them from the i-th on.
    """
    points = Points({}, {})
    first, step = _parse_part(part)
    count = math.ceil(math.prod(len(axis.values) for axis in axes) / step)
    if count > _MOST_RUNS:
        raise InputError(
            f"the grid has {count:,} runs, but one command takes {_MOST_RUNS:,} at "
            "most: give fewer values, or --shard=i/n for a part of them."
        )
    for values in itertools.islice(
        itertools.product(*(axis.values for axis in axes)), first, None, step
    ):
        changes = {a.name: value for a, value in zip(axes, values, strict=True)}
        name = run_name(changes)
        try:
            points.settings[name] = change(base, changes)
        except InputError as problem:
            points.problems[name] = str(problem)
    return points


def possible(points: Points) -> Points:
    """The points whose images suffice; the others are problems.

    An image set that is not there is refused for all: it is more likely a slip of the
    pen than something to find out after the other runs.
    """
    known: dict[Any, str] = {}
    for settings in points.settings.values():
        if _images_key(settings) not in known:
            preflight.check_size(settings)
            sources.count(settings.data)
            known[_images_key(settings)] = _problem(settings)
    problems = {
        name: problem
        for name, settings in points.settings.items()
        if (problem := known[_images_key(settings)])
    }
    left = {n: each for n, each in points.settings.items() if n not in problems}
    return Points(left, points.problems | problems)


def _images_key(settings: config.RunConfig) -> tuple[Any, ...]:
    cell = settings.wireless.num_channels
    return settings.data, cell, settings.length.eval_on


def _problem(settings: config.RunConfig) -> str:
    try:
        preflight.check(settings)
    except InputError as problem:
        return str(problem)
    return ""


def run_name(changes: Mapping[str, str]) -> str:
    """What a run with these changes is called; fit for a folder."""
    fields = [name.rpartition(".")[2] for name in changes]
    short = len(set(fields)) == len(fields)
    labels = fields if short else list(changes)
    pairs = zip(labels, changes.values(), strict=True)
    return _fit(",".join(f"{label}={_safe(value)}" for label, value in pairs))


def _safe(value: str) -> str:
    return urllib.parse.quote(value, safe="+-.")


def _fit(name: str) -> str:
    """A name that file systems take; a long one is cut and told apart by a hash."""
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:_LONGEST_NAME]}~{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _parse_part(text: str) -> tuple[int, int]:
    """(first, step) of "i/n"; all of them for an empty text."""
    if not text:
        return 0, 1
    first, _, count = text.partition("/")
    good = first.isdecimal() and count.isdecimal()
    if not good or not 1 <= int(first) <= int(count):
        raise InputError(f"--shard={text} is not of the form i/n with 1 <= i <= n.")
    return int(first) - 1, int(count)
