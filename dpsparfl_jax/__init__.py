"""Differentially private federated learning with sparse gradients, vectorized in JAX.

    plan(settings)            a run's whole schedule, without training
    simulate(settings)        one run
    simulate_grid(runs)       many runs in one compiled program
    iterate(settings)         one run, round by round

`settings` is a `RunConfig`. To read the code start with `types` (the values, in flow
order), `config` (the settings), `planning` and `simulation` (the two halves of a run).
"""

import importlib
from typing import TYPE_CHECKING, Any

from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.errors import InputError

if TYPE_CHECKING:
    from dpsparfl_jax.api import RunResult, iterate, plan, simulate, simulate_grid

__version__ = "0.1.0"

__all__ = [
    "InputError",
    "RunConfig",
    "RunResult",
    "iterate",
    "plan",
    "simulate",
    "simulate_grid",
]


def __getattr__(name: str) -> Any:
    """Loads what needs JAX when it is first asked for: planning needs none."""
    if name in __all__:
        return getattr(importlib.import_module("dpsparfl_jax.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
