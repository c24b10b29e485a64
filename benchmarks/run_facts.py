"""What must be equal in two runs that are said to be the same."""

import json
import pathlib
from typing import Any

import dpsparfl_jax as fl
from dpsparfl_jax import records
from dpsparfl_jax.records.columns import WALL_TIMES
from dpsparfl_jax.runner import checkpoint

ROOT = pathlib.Path(__file__).parent.parent


def facts(folder: pathlib.Path) -> dict[str, Any]:
    """Everything about a run that must not depend on interruptions."""
    rounds = [
        {k: v for k, v in row.items() if k not in WALL_TIMES}
        for row in records.read_rounds(folder)
    ]
    return {
        "rounds": json.dumps(rounds),
        "clients": (folder / records.CLIENTS).read_text(),
        "parameters": checkpoint.digest(fl.load_params(folder)),
    }
