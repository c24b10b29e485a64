r"""Trains a run, or a few side by side, and records everything.

    python -m experiments.run                               # quickstart, four policies
    python -m experiments.run --preset=paper_fashion --data.dir=DIR --out=DIR2
    python -m experiments.run --schedule.policy=random --out=DIR3 --resume

Any setting can be changed by its flag; `--flagfile` reads them from a file.
"""

import pathlib

from absl import flags

from dpsparfl_jax import config, preflight

from . import cli, distributed, grid, presets
from .stopping import Stopper

cli.define_config_flags(config.RunConfig())
flags.adopt_module_key_flags(cli)
distributed.define_flags()
_PRESET = flags.DEFINE_string("preset", "quickstart", presets.HELP)
_OUT = flags.DEFINE_string("out", "", "folder of the records (default: runs/PRESET)")
_RESUME = flags.DEFINE_bool("resume", False, "go on with unfinished runs in --out")


def main() -> int:
    """Trains what the flags say."""
    preset = presets.get_preset(_PRESET.value)
    settings = cli.config_from_flags(preset.settings)
    axes = [axis for axis in grid.parse(preset.grid) if not cli.is_set(axis.name)]
    points = grid.Points({_PRESET.value: settings}, {})
    if axes:
        points = grid.expand(settings, axes)
    for each in points.settings.values():
        preflight.check(each)
    out = _OUT.value or f"runs/{_PRESET.value}"
    notes = cli.notes(settings, [axis.name for axis in axes])

    def train() -> int:
        if distributed.writes():
            cli.check_folder("out", out)
        stopper = Stopper()
        from . import launch  # JAX takes seconds to load: flags are good by now

        return launch.execute(
            points,
            stopper,
            out=pathlib.Path(out),
            nested=bool(axes),
            resume=_RESUME.value,
            notes=notes,
        )

    return distributed.run(train, "the same commands with --resume go on")


if __name__ == "__main__":
    cli.run(main)
