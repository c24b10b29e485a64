"""Whether a folder holds the run that is to be recorded there, and how far it is.

A run may be given more rounds than it was started with. Plans are made round by round,
so what was recorded is then the beginning of the longer run, to the bit, unless a
setting looks ahead to the last round.
"""

import pathlib
from typing import Any, NamedTuple

from dpsparfl_jax import config_values, own_code, records
from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.errors import InputError, UnfinishedRunError
from dpsparfl_jax.storage import PART, refuse_held

_ROUNDS = "length.rounds"


class Found(NamedTuple):
    """What a folder holds of a run."""

    is_done: bool
    is_shorter: bool  # it was started with fewer rounds


def look(folder: pathlib.Path, settings: RunConfig, *, resume: bool) -> Found:
    """How far the run in a folder is; refuses a folder that is not this run's."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: choose another folder.")
    if (folder.parent / records.MANIFEST).is_file():
        raise InputError(f"{folder.parent} holds another run: choose another folder.")
    if not (folder / records.MANIFEST).is_file():
        _refuse_other_files(folder)
        return Found(is_done=False, is_shorter=False)
    shorter = is_shorter(folder, settings)
    done = (folder / records.DONE).is_file() and not shorter
    if not done:
        refuse_held(folder / records.LOCK)
    if not done and not resume:
        what = "this run with fewer rounds" if shorter else "an unfinished run"
        raise UnfinishedRunError(
            f"{folder} holds {what}: resume it, or choose another folder."
        )
    return Found(done, shorter)


def is_shorter(folder: pathlib.Path, settings: RunConfig) -> bool:
    """Whether a folder holds this run with fewer rounds; refuses any other run."""
    manifest = records.read_manifest(folder)
    then = config_values.from_dict(manifest["config"])
    changes = _changes(then, settings)
    most, before = settings.length.rounds, then.length.rounds
    more = 0 < before < (most or before + 1)  # 0: until the budgets end
    if not more or not all(each.startswith(f"{_ROUNDS} was") for each in changes):
        _refuse(folder, changes)
        _refuse_other_code(folder, manifest, settings)
        return False
    ahead = config_values.looking_ahead(settings)
    if ahead:
        raise InputError(
            f"{folder} holds this run with {before} rounds, and with "
            f"{most or 'more'} its first ones would be others ({', '.join(ahead)} "
            f"looks ahead to the last one): choose another folder, or keep {_ROUNDS}."
        )
    _refuse_other_code(folder, manifest, settings)
    return True


def refuse_other_run(folder: pathlib.Path, settings: RunConfig) -> None:
    """Refuses a folder that holds a run with other settings or code, and shows them."""
    manifest = records.read_manifest(folder)
    then = config_values.from_dict(manifest["config"])
    _refuse(folder, _changes(then, settings))
    _refuse_other_code(folder, manifest, settings)


def _changes(then: RunConfig, now: RunConfig) -> list[str]:
    return config_values.differences(
        config_values.moving(then, "results"), config_values.moving(now, "results")
    )


def _refuse(folder: pathlib.Path, changes: list[str]) -> None:
    if changes:
        raise InputError(
            f"{folder} holds another run ({'; '.join(changes)}): choose another folder."
        )


def _refuse_other_code(
    folder: pathlib.Path, manifest: dict[str, Any], settings: RunConfig
) -> None:
    """Refuses a run that other code of the user's made."""
    others = own_code.changes(manifest.get(records.OWN_CODE), own_code.of(settings))
    if others:
        raise InputError(
            f"{folder} holds a run with other code of {' and '.join(others)}: choose "
            "another folder, or remove that one to train it anew."
        )


def _refuse_other_files(folder: pathlib.Path) -> None:
    """A run killed before its manifest was there leaves these; all else is not ours."""
    ours = (records.LOCK, records.SCHEDULE)
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    strange = [
        file.name
        for file in files
        if file.name not in ours and not file.name.endswith(PART)
    ]
    if not strange:
        return
    runs = [file.name for file in files if (file / records.MANIFEST).is_file()]
    if (folder / records.ROUNDS).is_file():
        what = f"holds a run without its {records.MANIFEST}: restore that"
    elif runs:
        what = f"holds other runs in folders of their own ({runs[0]}): add to them"
    else:
        what = f"holds other files ({strange[0]}): move them"
    raise InputError(f"{folder} {what}, or choose another folder.")
