"""Trains what figures need, and turns the records into their tables."""

import json
import pathlib
import sys
from collections.abc import Iterable, Mapping

import pandas as pd

import dpsparfl_jax as fl
from dpsparfl_jax import records
from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.data import sources
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.runner.drive import describe_failure
from dpsparfl_jax.storage import write_whole

from .. import launch
from ..stopping import Stopper
from . import bound, figure_curves, run_tables, sweeps
from . import plans as plans_lib
from .catalogue import FIGURES, Figure
from .sweeps import SweepRun


def make_tables(
    figures: Mapping[str, Figure],
    folder: pathlib.Path,
    *,
    scale: str,
    changes: sweeps.Changes,
    train: bool,
) -> int:
    """Writes two tables a figure into `folder`; gives the exit code.

    Sweeps that figures share are run once, and all runs that share shapes train in one
    program, whichever figure they belong to.
    """
    names = dict.fromkeys(name for one in figures.values() for name in one.sweeps)
    figures = {**figures, **_siblings(names, folder)}
    runs = {name: sweeps.runs_of(name, scale, changes) for name in names}
    code = _train(runs, folder) if train else 0
    if code > 128:  # stopped: tables are made when all is there, or by --draw_only
        return code
    plans = folder / "runs" / "plans"
    plans_lib.plan_all((one.planned for each in runs.values() for one in each), plans)
    built = {
        name: run_tables.build(of_sweep, folder / "runs", plans)
        for name, of_sweep in runs.items()
    }
    for name, figure in figures.items():
        if name == "bound":
            shown = _bounds(runs[name], folder / "runs" / name, scale, train=train)
        else:
            shown = figure_curves.curves(figure, built)
        about = pd.concat([built[sweep].runs for sweep in figure.sweeps])
        _write(shown, folder / f"{name}.csv")
        _write(about, folder / f"{name}_runs.csv")
    return code


def _siblings(names: Iterable[str], folder: pathlib.Path) -> dict[str, Figure]:
    """Figures drawn before from the same sweeps: their tables must not fall behind."""
    return {
        name: figure
        for name, figure in FIGURES.items()
        if set(figure.sweeps) <= set(names) and (folder / f"{name}.csv").is_file()
    }


def _write(table: pd.DataFrame, path: pathlib.Path) -> None:
    write_whole(path, table.to_csv(index=False, float_format="%.6g"))


def _bounds(
    runs: list[SweepRun], folder: pathlib.Path, scale: str, *, train: bool
) -> pd.DataFrame:
    """The bound of every seed, from gradients that are measured once."""
    size = sweeps.SCALES[scale]
    parts = [pd.DataFrame(columns=figure_curves.COLUMNS)]
    for run in runs:
        path = folder / f"{run.name}.json"
        if not path.is_file() and train and run.seed in size.trained_seeds:
            length = min(size.rounds, fl.plan(run.planned).num_rounds)
            rounds = range(0, length + 1, size.measured_every)
            print(f"Measuring gradients of {run.name} up to round {rounds[-1]}.")
            measured = bound.measure(
                run.planned, rounds, images_per_client=size.measured_images
            )
            folder.mkdir(parents=True, exist_ok=True)
            content = [one._asdict() for one in measured]
            kept = {"settings": plans_lib.digest(run.planned), "measured": content}
            write_whole(path, json.dumps(kept, indent=1) + "\n")
        if path.is_file():
            measured = _measured(path, run)
            parts.append(
                figure_curves.of_bound(bound.bound_rows(run.planned, measured), run)
            )
    return pd.concat(parts, ignore_index=True)


def _measured(path: pathlib.Path, run: SweepRun) -> list[bound.Measured]:
    try:
        content = json.loads(path.read_text())
        if content["settings"] == plans_lib.digest(run.planned):
            return [bound.Measured(**one) for one in content["measured"]]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise InputError(
        f"{path} is damaged, or was measured with other settings: delete it to measure "
        "again."
    )


def _train(runs: Mapping[str, list[SweepRun]], folder: pathlib.Path) -> int:
    stopper = Stopper()
    wanted = {
        run.home: run.trained
        for of_sweep in runs.values()
        for run in of_sweep
        if run.trained is not None
    }
    _find_images(wanted, folder / "runs")
    outcome = launch.train(
        wanted,
        {name: folder / "runs" / name for name in wanted},
        launch.console_hooks(stopper),
        resume=True,
    )
    stopper.release()
    failed = {name: describe_failure(why) for name, why in outcome.failed.items()}
    if wanted and len(failed) == len(wanted):
        launch.refuse_common_reason(failed, outcome)
    for name, reason in failed.items():
        print(f"FAILED {name}: {reason}", file=sys.stderr)
    if outcome.stopped:
        print("Stopped: the same command goes on.", file=sys.stderr)
        return 128 + stopper.signal
    return 1 if failed else 0


def _find_images(wanted: Mapping[str, RunConfig], folder: pathlib.Path) -> None:
    """Refuses missing image sets at once, not after hours with another set."""
    missing = {
        settings.data.image_set: settings
        for name, settings in wanted.items()
        if not (folder / name / records.DONE).is_file()
    }
    for settings in missing.values():
        sources.load(settings.data, settings.perf.cache_dir)
