r"""Draws the paper's figures from real runs, and holds its claims against them.

    dpsparfl figures --figure=all --scale=quick --data.dir=DIR

Runs that are missing are trained first: batched, checkpointed; the same command again
goes on. Every figure is a PNG, a PDF and two tables (what is drawn, and one row a run)
in OUT/SCALE; `claims.json` beside them says what became of the paper's claims. The full
scale is that of experiments/paper/PROTOCOL.md: its clip norms come first, from
`--figure=parameters`.

`--dry_run` tells what would be trained, and how long it would take. `--plan_only`
trains nothing: delays, queues, participation and epsilon need no training.
`--draw_only` trains nothing either: it draws from the records in OUT/SCALE/runs, or,
where there are none, from the tables.
"""

import pathlib
import sys
from typing import Any

from absl import flags

from dpsparfl_jax import config
from dpsparfl_jax.errors import InputError

from . import cli
from .paper import catalogue, claims, clip_norms

_SETTINGS = (
    "data.dir",
    "data.tfds_dir",
    "perf.cache_dir",
    "perf.batch_memory_mb",
    "perf.checkpoint_every",
    "perf.devices",
)
_ABOUT = "; ".join(
    f"{name}: {figure.about} ({figure.paper})"
    for name, figure in catalogue.FIGURES.items()
)
cli.define_config_flags(config.RunConfig(), only=_SETTINGS)
flags.adopt_module_key_flags(cli)
_FIGURE = flags.DEFINE_string("figure", "all", f"all, or one of {_ABOUT}")
_SCALE = flags.DEFINE_enum(
    "scale", "quick", ["quick", "full"], "few rounds and one seed, or the paper's sizes"
)
_OUT = flags.DEFINE_string("out", "runs/figures", "folder of records and figures")
_DRAW_ONLY = flags.DEFINE_bool("draw_only", False, "train nothing: draw what is there")
_PLAN_ONLY = flags.DEFINE_bool(
    "plan_only", False, "train nothing: tables of what needs no training or is trained"
)
_DRY_RUN = flags.DEFINE_bool(
    "dry_run", False, "only print runs, rounds, examples and hours that are left"
)
_RATE = flags.DEFINE_float(
    "examples_per_s", 1800.0, "speed of training that --dry_run counts with"
)


def main() -> int:
    """Runs what is missing, then draws."""
    _check_flags()
    chosen = catalogue.get_figures(_FIGURE.value)
    folder = cli.check_folder("out", f"{_OUT.value}/{_SCALE.value}")
    settings: Any = {"scale": _SCALE.value, "changes": cli.given(_SETTINGS)}
    if _DRY_RUN.value:
        from .paper import dry_run

        left = dry_run.work_left(chosen, folder, **settings)
        print(dry_run.as_text(left, _RATE.value), end="")
        return 0
    remade = {n: f for n, f in chosen.items() if _is_remade(n, f, folder)}
    code = 0
    if remade:
        from .paper import figure_runs  # JAX takes seconds to load

        train = not (_DRAW_ONLY.value or _PLAN_ONLY.value)
        code = figure_runs.make_tables(remade, folder, train=train, **settings)
        if code > 128:  # stopped by a signal
            return code
    for name, figure in chosen.items():
        _draw(name, figure, folder)
    _judge(folder)
    print(f"Figures: {folder}")
    return code


def _check_flags() -> None:
    asked = [flag.name for flag in (_DRAW_ONLY, _PLAN_ONLY, _DRY_RUN) if flag.value]
    if len(asked) > 1:
        raise InputError(f"choose one of --{' and --'.join(asked)}.")
    if not _RATE.value > 0:
        raise InputError("--examples_per_s must be above 0.")


def _judge(folder: pathlib.Path) -> None:
    verdicts = claims.evaluate(folder)
    print(claims.as_text(verdicts))
    claims.write(folder, verdicts)
    study = folder / f"{catalogue.STUDY}_runs.csv"
    if study.is_file() and _SCALE.value == "full":
        for sentence in clip_norms.advice(study):
            print(sentence)


def _is_remade(name: str, figure: catalogue.Figure, folder: pathlib.Path) -> bool:
    """Whether there is more to draw from than the figure's table."""
    runs = folder / "runs"
    if not _DRAW_ONLY.value or any((runs / one).is_dir() for one in figure.sweeps):
        return True
    return runs.is_dir() and not (folder / f"{name}.csv").is_file()


def _draw(name: str, figure: catalogue.Figure, folder: pathlib.Path) -> None:
    from .paper import figure_pictures

    table = folder / f"{name}.csv"
    if table.is_file():
        drawn = figure_pictures.save(figure, table)
        print("\n".join(map(str, drawn)) or f"{table} has no points yet.")
    elif _FIGURE.value == "all":
        print(f"{table} is missing: {name} is not drawn.", file=sys.stderr)
    else:
        raise InputError(
            f"there are neither records nor {table}: leave out --draw_only to run it."
        )


if __name__ == "__main__":
    cli.run(main)
