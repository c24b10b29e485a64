"""Many recorded runs: which are finished, which train together, which failed."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from dpsparfl_jax import records
from dpsparfl_jax.data import sources
from dpsparfl_jax.errors import InputError, StorageError
from dpsparfl_jax.prefetching import prefetch
from dpsparfl_jax.recording.points import (
    Hooks,
    Images,
    Planned,
    Point,
    describe_failure,
    plan_point,
    refuse_other_run,
)
from dpsparfl_jax.recording.recorder import Recording, train_recorded
from dpsparfl_jax.simulation import grouping, inputs

_PLANNED_AHEAD = 32  # runs


class Outcome(NamedTuple):
    """What became of the points, by name."""

    finished: list[str]
    skipped: list[str]  # were finished before
    failed: dict[str, str]  # why
    stopped: list[str]  # unfinished because the user asked to stop


def is_finished(point: Point, *, resume: bool) -> bool:
    """Whether the point is finished; refuses a folder that is not this point's."""
    folder = point.folder
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: choose another --out.")
    if (folder.parent / records.MANIFEST).is_file():
        raise InputError(f"{folder.parent} holds another run: choose another --out.")
    if not (folder / records.MANIFEST).is_file():
        _refuse_other_files(point)
        return False
    refuse_other_run(point)
    done = (folder / records.DONE).is_file()
    if not done and not resume:
        raise InputError(
            f"{folder} holds an unfinished run: add --resume to go on, or choose "
            "another --out."
        )
    return done


def _refuse_other_files(point: Point) -> None:
    """A run killed before its manifest was there leaves these; all else is not ours."""
    ours = (records.LOCK, records.SCHEDULE)
    files = sorted(point.folder.iterdir()) if point.folder.is_dir() else []
    strange = [
        file.name
        for file in files
        if file.name not in ours and not file.name.endswith(".part")
    ]
    if not strange:
        return
    runs = [file.name for file in files if (file / records.MANIFEST).is_file()]
    if (point.folder / records.ROUNDS).is_file():
        what = f"holds a run without its {records.MANIFEST}: restore that"
    elif runs:
        what = f"holds other runs in folders of their own ({runs[0]}): add to them"
    else:
        what = f"holds other files ({strange[0]}): move them"
    raise InputError(f"{point.folder} {what}, or choose another --out.")


def run_points(points: Sequence[Point], hooks: Hooks, *, resume: bool) -> Outcome:
    """Trains and records all points; one that fails does not stop the others."""
    outcome = Outcome([], [], {}, [])
    described: inputs.Described = {}
    todo, outlines = [], []
    for point in points:
        if is_finished(point, resume=resume):
            outcome.skipped.append(point.name)
            continue
        try:
            outlines.append(inputs.outline(point.settings, described))
            todo.append(point)
        except Exception as reason:
            outcome.failed[point.name] = describe_failure(reason)
    numbers = grouping.group_runs([point.settings for point in todo], outlines)
    groups = [[todo[number] for number in group] for group in numbers]
    in_order = (
        plan_point(todo[number], outlines[number], hooks)
        for group in numbers
        for number in group
    )
    # The next batches are planned while this one trains.
    with contextlib.closing(prefetch(in_order, _PLANNED_AHEAD)) as plans:
        _run_groups(groups, plans, hooks, outcome)
    return outcome


def _run_groups(
    groups: Sequence[Sequence[Point]],
    plans: Iterator[Planned],
    hooks: Hooks,
    outcome: Outcome,
) -> None:
    images: dict[Any, Images] = {}
    for group in groups:
        if hooks.stop():
            outcome.stopped.extend(point.name for point in group)
            continue
        data = group[0].settings.data
        planned = list(itertools.islice(plans, len(group)))
        try:
            if data.image_set not in images:  # the set before it is let go
                loaded = sources.load(data)
                images = {data.image_set: Images(loaded, inputs.digest_images(loaded))}
                hooks.say(f"Images: {loaded.source}.")
        except InputError as reason:
            outcome.failed.update({point.name: str(reason) for point in group})
            continue
        _run_group(planned, images[data.image_set], hooks, outcome)


def _run_group(
    group: Sequence[Planned], images: Images, hooks: Hooks, outcome: Outcome
) -> None:
    """Runs that share a program; if it fails as a whole, one by one."""
    recordings: list[Recording] = []
    broken = ""
    try:
        for planned in group:
            try:
                recordings.append(Recording(planned, images, hooks))
            except StorageError:
                raise
            except Exception as reason:
                outcome.failed[planned.point.name] = describe_failure(reason)
        if recordings:
            _announce(recordings, hooks)
            train_recorded(recordings, hooks)
    except StorageError:
        raise
    except Exception as reason:  # too little memory, say
        broken = describe_failure(reason)
    finally:
        for recording in recordings:
            recording.close()
    left = [r.point.name for r in recordings if not r.is_done]
    outcome.finished.extend(r.point.name for r in recordings if r.is_done)
    if not broken:
        outcome.stopped.extend(left)
    elif len(recordings) == 1:
        outcome.failed.update(dict.fromkeys(left, broken))
    else:
        hooks.say(f"{len(left)} runs failed together ({broken}): one by one now.")
        for planned in group:
            if planned.point.name in left:
                _run_group([planned], images, hooks, outcome)


def _announce(recordings: Sequence[Recording], hooks: Hooks) -> None:
    first = recordings[0]
    plan = first.run.plan
    hooks.say(plan.affordability)
    if len(recordings) > 1:
        hooks.say(
            f"(So {first.point.name}; the manifests of the {len(recordings) - 1} "
            "others say what theirs afford.)"
        )
    for warning in {r.run.plan.warning for r in recordings if r.run.plan.warning}:
        hooks.say(warning)
    rounds = sum(r.run.plan.schedule.num_rounds for r in recordings)
    seconds = sum(r.planning_s for r in recordings)
    hooks.say(
        f"Planned {rounds} rounds of {len(recordings)} run(s) in {seconds:.1f} s: "
        f"{plan.outline.num_parameters:,} parameters, "
        f"{len(plan.outline.sizes)} clients."
    )
