"""The rungs of a search, and what it found: a table, a picture and flags."""

import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from dpsparfl_jax import records
from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.runner.drive import describe_failure
from dpsparfl_jax.storage import write_whole

from . import grid, launch, search
from .search import Dimension
from .stopping import Stopper

_ACROSS = 3  # panels side by side


class Score(NamedTuple):
    """A trial of a rung."""

    trial: int
    rung: int
    rounds: int
    accuracy: float  # of validation images, after the last round


def climb(
    settings: Sequence[RunConfig],
    out: pathlib.Path,
    *,
    rungs: Sequence[int],
    kept: float,
) -> tuple[int, list[Score]]:
    """Trains all trials for the first rung's rounds, the best for the next one's, ...

    Gives the exit code and the scores of all rungs.
    """
    stopper = Stopper()
    scores: list[Score] = []
    chosen = list(range(len(settings)))
    for rung, rounds in enumerate(rungs, 1):
        told = f"{len(chosen)} trial(s), {rounds or 'all'} rounds"
        print(f"Rung {rung} of {len(rungs)}: {told}.")
        wanted = {
            run_name(rung, trial): grid.change(
                settings[trial], {"length.rounds": str(rounds)}
            )
            for trial in chosen
        }
        folders = {name: out / name for name in wanted}
        hooks = launch.console_hooks(stopper)
        outcome = launch.train(wanted, folders, hooks, resume=True)
        failed = {name: describe_failure(why) for name, why in outcome.failed.items()}
        if len(failed) == len(wanted):
            launch.refuse_common_reason(failed, outcome)
        for name, reason in failed.items():
            print(f"FAILED {name}: {reason}", file=sys.stderr)
        if outcome.stopped:
            print("Stopped: the same command goes on.", file=sys.stderr)
            return 128 + stopper.signal, scores
        found = read_scores(out, rung, chosen)
        if not found:
            return 1, scores
        scores += found
        chosen = search.best({one.trial: one.accuracy for one in found}, kept)
    stopper.release()
    return 0, scores


def best_trial(scores: Sequence[Score]) -> int:
    """The best of those that came furthest."""
    return max(scores, key=lambda one: (one.rung, one.accuracy, -one.trial)).trial


def run_name(rung: int, trial: int) -> str:
    """The folder of a trial."""
    return f"rung{rung}/trial{trial:03d}"


def read_scores(out: pathlib.Path, rung: int, trials: Sequence[int]) -> list[Score]:
    """Scores of those that were trained to their end."""
    scores = []
    for trial in trials:
        folder = out / run_name(rung, trial)
        if not (folder / records.DONE).is_file():
            continue
        run = records.load_run(folder)
        averaged = run.settings.server.averaging != "none"
        column = "accuracy_averaged" if averaged else "accuracy"
        last = float(run.rounds[column].iloc[-1])
        scores.append(Score(trial, rung, len(run.rounds), last))
    return scores


def frame(trials: Sequence[Mapping[str, str]], table: Sequence[Score]) -> pd.DataFrame:
    """One row a trial and rung, the furthest and best first."""
    rows = [score._asdict() | dict(trials[score.trial]) for score in table]
    return pd.DataFrame(rows).sort_values(
        ["rung", "accuracy", "trial"], ascending=[False, False, True], ignore_index=True
    )


def as_text(trials: Sequence[Mapping[str, str]], table: Sequence[Score]) -> str:
    """The table for the console, each trial at its last rung."""
    last = frame(trials, table).drop_duplicates("trial")
    short = {name: name.rpartition(".")[2] for name in trials[0]}
    shown = (
        last if len(set(short.values())) < len(short) else last.rename(columns=short)
    )
    return shown.to_string(index=False, formatters={"accuracy": "{:.2%}".format})


def write(
    out: pathlib.Path,
    dimensions: Sequence[Dimension],
    trials: Sequence[Mapping[str, str]],
    table: Sequence[Score],
) -> list[pathlib.Path]:
    """Writes tune.csv, tune.png and best.flags."""
    rows = frame(trials, table)
    paths = [out / name for name in ("tune.csv", "tune.png", "best.flags")]
    write_whole(paths[0], rows.to_csv(index=False))
    picture(dimensions, rows).savefig(paths[1], dpi=150)
    best = trials[best_trial(table)]
    flags = "".join(f"--{name}={value}\n" for name, value in best.items())
    write_whole(paths[2], flags)
    return paths


def picture(dimensions: Sequence[Dimension], rows: pd.DataFrame) -> Figure:
    """Accuracy over every searched setting, a colour a rung."""
    across = min(_ACROSS, len(dimensions))
    down = -(-len(dimensions) // across)
    figure = Figure(figsize=(3.4 * across, 2.8 * down), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False, sharey=True)
    for panel, one in zip(panels.flat, dimensions, strict=False):
        for rung in sorted(set(rows["rung"])):
            of_rung = rows[rows["rung"] == rung]
            values = of_rung[one.name]
            across_axis = values.astype(float) if one.is_range else values.astype(str)
            label = f"{of_rung['rounds'].max()} rounds"
            panel.scatter(across_axis, of_rung["accuracy"], s=16, label=label)
        if one.is_logarithmic:
            panel.set_xscale("log")
        panel.set_xlabel(one.name)
    for panel in panels.flat[len(dimensions) :]:
        panel.set_axis_off()
    for row in panels:
        row[0].set_ylabel("validation accuracy")
    panels[0, 0].legend(frameon=False, fontsize="small")
    return figure
