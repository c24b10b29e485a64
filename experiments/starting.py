"""Where settings start, a preset or a file, and how they are shown."""

import pathlib
from typing import NamedTuple

from absl import flags

from dpsparfl_jax import config
from dpsparfl_jax.errors import InputError

from . import cli, grid, presets, settings_file, usage


class Start(NamedTuple):
    """The settings of a program with all flags, and what it runs side by side."""

    name: str
    settings: config.RunConfig
    axes: list[grid.Axis]


def define_flags(preset: str) -> None:
    """Defines `--preset`, `--config`, and what shows them."""
    flags.DEFINE_string(
        "preset",
        preset,
        f"named settings to start from: one of {', '.join(presets.PRESETS)} "
        f"(default: {preset}; --list_presets says what each is)",
    )
    flags.DEFINE_string(
        "config",
        None,
        "file of settings to start from instead of a preset: TOML as --print_config "
        "prints it, all of it or a part, or manifest.json of a run; flags win",
    )
    flags.DEFINE_bool(
        "print_config", False, "print all settings as they would be used, and end"
    )
    flags.DEFINE_bool("list_presets", False, "say what every preset is, and end")


def begin(grid_text: str = "") -> Start | None:
    """What flags say; None if the user only wanted to see it, and has.

    The grid is the given one, or that of the preset.
    """
    if flags.FLAGS["list_presets"].value:
        usage.show(presets.listing())
        return None
    preset = flags.FLAGS["preset"]
    file = flags.FLAGS["config"].value
    if file is None:
        base = presets.get_preset(str(preset.value))
        start = _start(str(preset.value), base.settings, grid_text or base.grid)
    else:
        if preset.present:
            raise InputError(
                f"--preset={preset.value} and --config={file} are two places to start "
                "from: leave one out (a file may have a line preset = "
                f'"{preset.value}" of its own).'
            )
        usual = presets.get_preset(str(preset.default)).settings
        start = _start(_name_of(file), settings_file.read(file, usual), grid_text)
    if not flags.FLAGS["print_config"].value:
        return start
    varied = [axis.name for axis in start.axes if not cli.is_set(axis.name)]
    remarks = [f"A grid varies {', '.join(varied)}."] if varied else []
    usage.show(settings_file.as_toml(start.settings, remarks))
    return None


def _start(name: str, base: config.RunConfig, grid_text: str) -> Start:
    return Start(name, cli.config_from_flags(base), grid.parse(grid_text))


def _name_of(file: str) -> str:
    """What settings of a file are called: as it, or as the run that recorded them."""
    path = pathlib.Path(file).expanduser().absolute()
    return path.parent.name if path.name == "manifest.json" else path.stem
