"""Trains what figures need, and turns the records into their tables."""

import json
import pathlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, zip_longest
from typing import Any

import pandas as pd

import dpsparfl_jax as fl
from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.data import sources
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.runner.drive import describe_failure
from dpsparfl_jax.storage import write_whole

from .. import launch
from ..stopping import Stopper
from . import bound, figure_curves, run_tables, sweeps
from . import plans as plans_lib
from . import trained as trained_lib
from .catalogue import FIGURES, Figure
from .run_tables import TRAINED
from .sweep_types import Changes
from .sweeps import SweepRun


def make_tables(
    figures: Mapping[str, Figure],
    folder: pathlib.Path,
    *,
    scale: str,
    changes: Changes,
    train: bool,
) -> int:
    """Writes two tables a figure into `folder`; gives the exit code.

    Runs that figures share are trained once. At the full scale figures are trained one
    after the other, seed by seed, and a figure's tables are written after every seed;
    at the quick scale all runs that share shapes train in one program.
    """
    names = dict.fromkeys(name for one in figures.values() for name in one.sweeps)
    runs = {name: sweeps.runs_of(name, scale, changes) for name in names}
    tables = _TableMaker(runs, folder, scale, train)
    code = 0
    if train:
        found = trained_lib.find(chain.from_iterable(runs.values()), folder)
        _find_images(_unfinished(_trained(*runs.values()), found))
        for name, figure, seeds in _batches(figures, scale):
            code = max(code, _train_some(runs, figure, seeds, folder))
            if code > 128:  # stopped: what is finished is tabulated by --plan_only
                return code
            if name:
                tables.write({name: figure})
    tables.write({**figures, **_siblings(names, folder)})
    return code


def _batches(
    figures: Mapping[str, Figure], scale: str
) -> Iterator[tuple[str, Figure, set[int]]]:
    """What is trained together: sweeps and seeds; a name where tables are worth it."""
    if scale != "full":
        panels = tuple(panel for one in figures.values() for panel in one.panels)
        everything = Figure("", "", panels, ())
        seeds = {s for one in everything.sweeps for s in _seeds(one, scale)}
        yield "", everything, seeds
        return
    for name, figure in figures.items():
        seeds_of = [_seeds(sweep, scale) for sweep in figure.sweeps]
        for nth in zip_longest(*seeds_of):
            yield name, figure, {seed for seed in nth if seed is not None}


def _seeds(sweep: str, scale: str) -> tuple[int, ...]:
    is_trained = sweeps.SWEEPS[sweep].trained
    return sweeps.worlds_of(sweep, scale).trained if is_trained else ()


def _train_some(
    runs: Mapping[str, list[SweepRun]],
    figure: Figure,
    seeds: set[int],
    folder: pathlib.Path,
) -> int:
    """Trains a figure's runs of some seeds, but for those that are finished."""
    chosen = [
        [run for run in runs[sweep] if run.seed in seeds] for sweep in figure.sweeps
    ]
    left = _unfinished(_trained(*chosen), trained_lib.find(chain(*chosen), folder))
    return _train(left, folder) if left else 0


def _unfinished(
    wanted: Mapping[str, RunConfig], found: Mapping[str, Any]
) -> dict[str, RunConfig]:
    return {home: settings for home, settings in wanted.items() if home not in found}


def _trained(*of_sweeps: Iterable[SweepRun]) -> dict[str, RunConfig]:
    return {
        run.home: run.trained
        for of_sweep in of_sweeps
        for run in of_sweep
        if run.trained is not None
    }


class _TableMaker:
    """Turns schedules and finished runs into the tables of figures."""

    def __init__(
        self,
        runs: Mapping[str, list[SweepRun]],
        folder: pathlib.Path,
        scale: str,
        train: bool,
    ) -> None:
        self._runs, self._folder = runs, folder
        self._scale, self._train = scale, train

    def write(self, figures: Mapping[str, Figure]) -> None:
        """Writes two tables for each of these figures."""
        names = dict.fromkeys(name for one in figures.values() for name in one.sweeps)
        plans = self._folder / "runs" / "plans"
        planned = (run.planned for name in names for run in self._runs[name])
        plans_lib.plan_all(planned, plans)
        everything = chain.from_iterable(self._runs[name] for name in names)
        found = trained_lib.find(everything, self._folder)
        trained_lib.keep(found, self._folder)
        built = {
            name: run_tables.build(self._runs[name], found, plans) for name in names
        }
        for name, figure in figures.items():
            about = pd.concat([built[sweep].runs for sweep in figure.sweeps])
            path = self._folder / f"{name}_runs.csv"
            if about["accuracy"].isna().all() and _tells_of_training(path):
                print(
                    f"{path} has accuracies, but no records of these runs are there: "
                    f"the tables of {name} stay as they are.",
                    file=sys.stderr,
                )
                continue
            shown = (
                self._bounds(self._runs[name])
                if name == "bound"
                else figure_curves.curves(figure, built)
            )
            blank = [column for column in TRAINED if about[column].isna().all()]
            _write(shown, self._folder / f"{name}.csv")
            _write(about.drop(columns=blank), path)

    def _bounds(self, runs: list[SweepRun]) -> pd.DataFrame:
        """The bound of every seed, from gradients that are measured once."""
        size = sweeps.SCALES[self._scale]
        seeds = sweeps.worlds_of("bound", self._scale).trained
        parts = [pd.DataFrame(columns=figure_curves.COLUMNS)]
        for run in runs:
            path = trained_lib.gradients_path(self._folder, run)
            if not path.is_file() and self._train and run.seed in seeds:
                length = fl.plan(run.planned).num_rounds
                rounds = sweeps.measured_rounds(length, self._scale)
                print(f"Measuring gradients of {run.name} up to round {rounds[-1]}.")
                measured = bound.measure(
                    run.planned, rounds, images_per_client=size.measured_images
                )
                path.parent.mkdir(parents=True, exist_ok=True)
                content = [one._asdict() for one in measured]
                kept = {"settings": plans_lib.digest(run.planned), "measured": content}
                write_whole(path, json.dumps(kept, indent=1) + "\n")
            if path.is_file():
                rows = bound.bound_rows(run.planned, _measured(path, run))
                parts.append(figure_curves.of_bound(rows, run))
        return pd.concat(parts, ignore_index=True).astype({"x": float, "y": float})


def _tells_of_training(path: pathlib.Path) -> bool:
    """Whether there is a table of runs with accuracies."""
    if not path.is_file():
        return False
    try:
        before = pd.read_csv(path)
    except (OSError, ValueError) as reason:
        text = str(reason).splitlines()[0]
        raise InputError(f"{path} cannot be read as a table ({text}).") from None
    return "accuracy" in before and bool(before["accuracy"].notna().any())


def _siblings(names: Iterable[str], folder: pathlib.Path) -> dict[str, Figure]:
    """Figures drawn before from the same sweeps: their tables must not fall behind."""
    return {
        name: figure
        for name, figure in FIGURES.items()
        if set(figure.sweeps) <= set(names) and (folder / f"{name}.csv").is_file()
    }


def _write(table: pd.DataFrame, path: pathlib.Path) -> None:
    write_whole(path, table.to_csv(index=False, float_format="%.6g"))


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


def _train(wanted: Mapping[str, RunConfig], folder: pathlib.Path) -> int:
    stopper = Stopper()
    outcome = launch.train(
        wanted,
        {name: folder / "runs" / name for name in wanted},
        launch.console_hooks(stopper),
        resume=True,
    )
    stopper.release()
    failed = {name: describe_failure(why) for name, why in outcome.failed.items()}
    if len(failed) == len(wanted):
        launch.refuse_common_reason(failed, outcome)
    for name, reason in failed.items():
        print(f"FAILED {name}: {reason}", file=sys.stderr)
    if outcome.stopped:
        print("Stopped: the same command goes on.", file=sys.stderr)
        return 128 + stopper.signal
    return 1 if failed else 0


def _find_images(wanted: Mapping[str, RunConfig]) -> None:
    """Refuses missing image sets at once, not after hours with another set."""
    missing = {settings.data.image_set: settings for settings in wanted.values()}
    for settings in missing.values():
        sources.load(settings.data, settings.perf.cache_dir)
