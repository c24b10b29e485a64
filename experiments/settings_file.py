"""Settings as a TOML file: written for people, read back exactly."""

import dataclasses
import json
import pathlib
import tomllib
from collections.abc import Sequence
from typing import Any

from dpsparfl_jax import __version__, config, config_values
from dpsparfl_jax.errors import InputError, first_line

from . import presets, usage

_MANIFEST = "manifest.json"
_WIDTH = 88


def as_toml(settings: config.RunConfig, remarks: Sequence[str] = ()) -> str:
    """All settings, with a comment where one fits beside."""
    lines = [
        f"# All settings of a run of dpsparfl_jax {__version__}, for --config=FILE.",
        *(f"# {remark}" for remark in remarks),
        f"seed = {settings.seed}",
    ]
    for section in config.SECTIONS:
        values = getattr(settings, section)
        lines += ["", f"# {usage.about_section(section)}", f"[{section}]"]
        for field in dataclasses.fields(values):
            line = f"{field.name} = {_literal(getattr(values, field.name))}"
            unit = usage.unit_of(field)
            comment = field.metadata["help"] + (f" ({unit})" if unit else "")
            fits = len(line) + len(comment) + 4 <= _WIDTH
            lines.append(f"{line}  # {comment}" if fits else line)
    return "\n".join(lines)


def _literal(value: Any) -> str:
    """A value as TOML writes it; floats with all their digits."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)  # TOML has the same escapes
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    return repr(float(value) if isinstance(value, float) else value)


def read(text: str, base: config.RunConfig) -> config.RunConfig:
    """The settings of a TOML file, or of a run's manifest.

    What a TOML file lacks is as in the preset that it names as `preset`, or as in
    `base`; what the manifest of an earlier version lacks has its default.
    """
    path = pathlib.Path(text).expanduser()
    if not path.is_file():
        raise InputError(
            f"--config={text} is no file: name a TOML file, as --print_config prints "
            f"it, or the {_MANIFEST} of a run."
        )
    try:
        if path.name == _MANIFEST:
            from dpsparfl_jax import records  # loads pandas

            base = config.RunConfig()
            return _changed(base, records.read_manifest(path.parent)["config"])
        values = _read_toml(path)
        if (preset := values.pop("preset", None)) is not None:
            base = presets.get_preset(str(preset)).settings
        return _changed(base, values)
    except InputError as problem:
        where = "" if str(path) in str(problem) else f"{path}: "
        raise InputError(f"{where}{problem}") from None


def _read_toml(path: pathlib.Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as reason:
        first = first_line(reason, "it is damaged")
        raise InputError(
            f"{path} cannot be read as TOML ({first}): repair it, or let "
            "--print_config print it anew."
        ) from None


def _changed(base: config.RunConfig, values: dict[str, Any]) -> config.RunConfig:
    """The settings with those that were read."""
    changes: dict[str, Any] = {}
    known = usage.declared()
    for section, content in config_values.modern_names(values).items():
        if section == "seed":
            changes[section] = content
            continue
        if section not in config.SECTIONS:
            names = [*known, "seed", *config.SECTIONS]
            raise InputError(_unknown(section, names))
        if not isinstance(content, dict):
            raise InputError(f"{section} is a section: write its settings below it.")
        for name in content:
            if f"{section}.{name}" not in known:
                raise InputError(_unknown(f"{section}.{name}", list(known)))
        try:
            changes[section] = dataclasses.replace(getattr(base, section), **content)
        except InputError as problem:
            raise InputError(f"{section}.{problem}") from None
    changed = dataclasses.replace(base, **changes)
    changed.check_names()
    return changed


def _unknown(name: str, known: Sequence[str]) -> str:
    meant = usage.hint(usage.nearest(name, known))
    return f"unknown setting {name!r}{meant or ': --help lists all of them.'}"
