r"""Trains a grid of runs, as many as possible in one compiled program.

    dpsparfl sweep --preset=quickstart --out=DIR \
        --grid='schedule.tradeoff=1,10,50,100;privacy.epsilon_hi=5,10;seed=0..2'

Every combination has a folder in DIR. The same command again goes on: finished runs are
skipped, unfinished ones resumed, failed ones tried again. `--shard=2/4` takes the
second of four parts, for several machines that share DIR; `--engine=ray` and
`--engine=slurm` have batches of runs trained by a cluster.
"""

import pathlib

from absl import flags

from dpsparfl_jax import config
from dpsparfl_jax.errors import InputError

from . import cli, distributed, ending, grid, live, services, starting
from .engines import choice
from .stopping import Stopper

cli.define_config_flags(config.RunConfig())
flags.adopt_module_key_flags(cli)
distributed.define_flags()
choice.define_flags()
starting.define_flags("quickstart")
live.define_flags()
services.define_flags()
_GRID = flags.DEFINE_string(
    "grid",
    "",
    "settings and their values: 'a.b=1,2;seed=0..9'; a value that has commas is put in "
    "brackets, as in 'a.b=[1,2],[3,4]' (default: the preset's)",
)
_OUT = flags.DEFINE_string("out", "", "folder of the records; needed")
_SHARD = flags.DEFINE_string("shard", "", "i/n: only every n-th run, from the i-th on")


def _refuse_flags_of_axes(axes: list[grid.Axis]) -> None:
    for axis in axes:
        if cli.is_set(axis.name):
            whose = "the grid" if _GRID.value else "the preset's grid: give --grid"
            raise InputError(f"{axis.name} is both a flag and an axis of {whose}.")


def _points(base: config.RunConfig, axes: list[grid.Axis]) -> grid.Points:
    """The runs of this shard; refuses one without any that is possible."""
    points = grid.expand(base, axes, _SHARD.value)
    if not len(points):
        raise InputError("this shard is empty: there are fewer runs than shards.")
    points = grid.possible(points)
    if not points.settings:
        problem = next(iter(points.problems.values()))
        raise InputError(f"no run of the grid is possible: {problem}")
    return points


def main() -> int:
    """Trains the grid."""
    start = starting.begin(_GRID.value)
    if start is None:
        return 0
    if not _OUT.value:
        raise InputError("name a folder for the records: --out=DIR.")
    if live.every_s() and _SHARD.value:
        raise InputError(
            "--live shows all runs, and --shard trains a part: leave one out."
        )
    choice.check()
    base, axes = start.settings, start.axes
    if not axes:
        raise InputError("there is no grid: give --grid='setting=value,value;...'.")
    _refuse_flags_of_axes(axes)
    points = _points(base, axes)
    notes = cli.notes(base, [axis.name for axis in axes])
    log = services.chosen()

    def train() -> int:
        if distributed.writes():
            cli.check_folder("out", _OUT.value)
            services.log_in(log)
        out = pathlib.Path(_OUT.value)
        known = not log and not distributed.wanted()
        if known and ending.all_finished(points, out):
            return ending.end(points, out, report=not _SHARD.value)
        stopper = Stopper()
        from . import launch  # JAX takes seconds to load: flags are good by now

        return launch.execute(
            points,
            stopper,
            out=out,
            nested=True,
            resume=True,
            report=not _SHARD.value,
            notes=notes,
            trainer=choice.trainer(out, notes, log),
            live_s=live.every_s(),
            log=log,
        )

    with cli.kept_if_used(_OUT.value):
        code = distributed.run(train, "the same commands go on")
    if _SHARD.value and distributed.writes():
        print(f"When all shards are done: dpsparfl report {_OUT.value}")
    return code


if __name__ == "__main__":
    cli.run(main)
