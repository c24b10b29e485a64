"""What `--help` prints, and which flag an unknown one was meant to be."""

import dataclasses
import os
import sys
import textwrap
from collections.abc import Collection, Sequence
from typing import Any

from absl import flags

from dpsparfl_jax import config, config_values, options
from dpsparfl_jax.errors import closest

# What most users look for, in this order; a program shows those that it has.
_FIRST = (
    *("preset", "grid", "out", "resume", "data.name", "data.dir", "model.name"),
    *("schedule.policy", "schedule.tradeoff", "privacy.epsilon_lo"),
    *("privacy.epsilon_hi", "length.rounds", "seed"),
)
# Modules that define flags for several programs.
_SHARED = ("starting", "live", "services", "cli", "engines.choice", "distributed")
_WIDTH = 88
_UNITS = {
    "hz": "Hz",
    "w": "W",
    "dbm": "dBm",
    "db": "dB",
    "s": "s",
    "j": "J",
    "m": "m",
    "mb": "MB",
    "bits": "bit",
}


def declared() -> dict[str, dataclasses.Field[Any]]:
    """The declaration of every setting, by section.field."""
    base = config.RunConfig()
    return {
        f"{section}.{field.name}": field
        for section in config.SECTIONS
        for field in dataclasses.fields(getattr(base, section))
    }


def about_section(section: str) -> str:
    """What a section of settings is, in a line."""
    return (type(getattr(config.RunConfig(), section)).__doc__ or "").splitlines()[0]


def unit_of(field: dataclasses.Field[Any]) -> str:
    """The unit that the name of a setting ends in, empty if there is none."""
    return _UNITS.get(field.name.rpartition("_")[2] if "_" in field.name else "", "")


def setting_help(field: dataclasses.Field[Any], value: Any) -> str:
    """What a setting means, with unit, bounds, default and source."""
    unit, source = unit_of(field), field.metadata["paper"]
    notes = [
        f"unit: {unit}" if unit else "",
        options.describe_rule(field),
        f"a number, or for each {each}: a list, a range as in 1..2, or a file"
        if (each := field.metadata["each"])
        else "",
        f"default: {value!r}",
        f"paper: {source}" if source else "ours",
    ]
    return f"{field.metadata['help']} ({'; '.join(note for note in notes if note)})"


def _short_help(field: dataclasses.Field[Any]) -> str:
    """What a setting means, and the words that it may be."""
    words = field.metadata["choices"] or field.metadata["named"]
    rule = f" ({options.describe_rule(field)})" if words else ""
    return f"{field.metadata['help']}{rule}"


def show(text: str) -> None:
    """Prints a long text; whoever has read enough may close the pipe."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def help_text(about: str) -> str:
    """What a program does and all of its flags; those of libraries are left out.

    A program of all settings shows a few flags first, then settings by section.
    """
    known = {flag.name: flag for flag in _own_flags()}
    settings = declared()
    if not set(settings) <= set(known):
        return "\n\n".join([about.strip(), _listed(list(known.values()))])
    first = [known[name] for name in _FIRST if name in known]
    shown = [(each, settings[each.name]) for each in first if each.name in settings]
    short = {flag.name: _short_help(field) for flag, field in shown}
    blocks = [about.strip(), f"What most runs set:\n{_listed(first, short)}"]
    for section in config.SECTIONS:
        names = [name for name in settings if name.startswith(f"{section}.")]
        listed = _listed([known[name] for name in names])
        said = about_section(section)
        heading = f"Settings of {section}: {said[0].lower()}{said[1:]}"
        blocks.append(f"{textwrap.fill(heading, _WIDTH)}\n{listed}")
    rest = [f for f in known.values() if f not in first and f.name not in settings]
    blocks.append(f"All other flags:\n{_listed(rest)}")
    return "\n\n".join(blocks)


def _own_flags() -> list[flags.Flag[Any]]:
    """Flags of the program, then of what it shares, without names of old versions."""
    defined = flags.FLAGS.flags_by_module_dict()
    order = {f"{__package__}.{name}": n for n, name in enumerate(_SHARED, start=1)}
    return [
        flag
        for module in sorted(defined, key=lambda name: order.get(name, 0))
        for flag in (defined[module] if not module.startswith("absl") else ())
        if flag.name not in config_values.RENAMED_SETTINGS
    ]


def _listed(
    some: Sequence[flags.Flag[Any]], short: dict[str, str] | None = None
) -> str:
    lines = []
    for flag in some:
        name = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}"
        about = (short or {}).get(flag.name, flag.help)
        text = " ".join(f"{name}: {about}".split())
        lines.append(
            textwrap.fill(text, _WIDTH, initial_indent="  ", subsequent_indent=" " * 6)
        )
    return "\n".join(lines)


def nearest(name: str, known: Collection[str]) -> list[str]:
    """What a name may have meant: the same one of a section, or one like it."""
    word = name.rpartition(".")[2]
    words = {one: one.rpartition(".")[2] for one in known}
    same = [one for one in known if words[one] == word]
    if same:
        return same
    if like := closest(name, known):
        return like
    near = closest(word, words.values())
    return [one for one in known if words[one] in near]


def hint(names: Sequence[str]) -> str:
    """A question after a name that nobody knows; empty if there is nothing like it."""
    return f": did you mean {' or '.join(names)}?" if names else ""


def unknown_flag(name: str) -> str:
    """A sentence on a flag that is not there."""
    known = {flag.name: flag for flag in _own_flags()}
    off = [
        f"--no{one}"
        for one, flag in known.items()
        if flag.boolean and f"no{one.rpartition('.')[2]}" == name
    ]
    meant = off or [f"--{one}" for one in nearest(name, list(known))]
    return f"Unknown command line flag '{name}'{hint(meant)}"
