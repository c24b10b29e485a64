r"""Trains a run, or a few side by side, and records everything.

    dpsparfl run                               # quickstart, four policies
    dpsparfl run --preset=paper_fashion --data.dir=DIR --out=DIR2
    dpsparfl run --schedule.policy=random --out=DIR3 --resume

Any setting can be changed by its flag. `--print_config` prints all settings as a file,
and `--config` reads such a file; `--flagfile` reads flags.
"""

import pathlib

from absl import flags

from dpsparfl_jax import config, preflight

from . import cli, distributed, grid, live, services, starting
from .stopping import Stopper

cli.define_config_flags(config.RunConfig())
flags.adopt_module_key_flags(cli)
distributed.define_flags()
starting.define_flags("quickstart")
live.define_flags()
services.define_flags()
_OUT = flags.DEFINE_string(
    "out",
    "",
    "folder of the records (default: runs/NAME, where NAME is that of the preset or of "
    "the file of settings)",
)
_RESUME = flags.DEFINE_bool("resume", False, "go on with unfinished runs in --out")


def main() -> int:
    """Trains what the flags say."""
    start = starting.begin()
    if start is None:
        return 0
    settings = start.settings
    axes = [axis for axis in start.axes if not cli.is_set(axis.name)]
    points = grid.Points({start.name: settings}, {})
    if axes:
        points = grid.expand(settings, axes)
    for each in points.settings.values():
        preflight.check(each)
    out = _OUT.value or f"runs/{start.name}"
    notes = cli.notes(settings, [axis.name for axis in axes])
    log = services.chosen()

    def train() -> int:
        if distributed.writes():
            cli.check_folder("out", out)
            services.log_in(log)
        stopper = Stopper()
        from . import launch  # JAX takes seconds to load: flags are good by now

        return launch.execute(
            points,
            stopper,
            out=pathlib.Path(out),
            nested=bool(axes),
            resume=_RESUME.value,
            notes=notes,
            live_s=live.every_s(),
            log=log,
        )

    with cli.kept_if_used(out):
        return distributed.run(train, "the same commands with --resume go on")


if __name__ == "__main__":
    cli.run(main)
