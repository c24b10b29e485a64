"""Differentially private federated learning with sparse gradients, vectorized in JAX.

    plan(settings)            a run's whole schedule, without training
    simulate(settings)        one run; `out=` records it in a folder
    simulate_grid(runs)       many runs in one compiled program
    iterate(settings)         one run, round by round
    find_runs(folders)        recorded runs as tables; load_params(folder), the model
    register_...(name)        a policy, model, accountant, sparsifier ... of your own
    RoundProblem, Allocation  what a policy decides, and how it says so

`settings` is a `RunConfig` made of sections (`DataConfig`, `ModelConfig`, ...). To read
the code start with `types` (the values, in flow order), `config` (the settings),
`planning` (the half of a run before training) and `runner` (the loop over runs).
"""

import importlib
from typing import TYPE_CHECKING, Any

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.registry import (
    ACCOUNTANTS,
    MODELS,
    OPTIMIZERS,
    PARTITIONS,
    POLICIES,
    SOLVERS,
    SPARSIFIERS,
    registered_names,
)

if TYPE_CHECKING:
    from dpsparfl_jax.api import RunResult, iterate, plan, simulate, simulate_grid
    from dpsparfl_jax.config import (
        DataConfig,
        LengthConfig,
        ModelConfig,
        PerfConfig,
        PrivacyConfig,
        RecordsConfig,
        RunConfig,
        ScheduleConfig,
        ServerConfig,
        TrainingConfig,
        WirelessConfig,
    )
    from dpsparfl_jax.planning.schedule import Schedule
    from dpsparfl_jax.records import RecordedRun, find_runs, load_run
    from dpsparfl_jax.records.columns import InSummary, register_column
    from dpsparfl_jax.runner.checkpoint import load_params
    from dpsparfl_jax.scheduling.base import Observation
    from dpsparfl_jax.scheduling.baselines import FullRate
    from dpsparfl_jax.scheduling.joint import solve_joint
    from dpsparfl_jax.scheduling.problem import (
        Allocation,
        RoundProblem,
        empty_allocation,
    )
    from dpsparfl_jax.training.layer_rules import register_layer_rule

__version__ = "0.3.0"

register_policy = POLICIES.register
register_solver = SOLVERS.register
register_partition = PARTITIONS.register
register_accountant = ACCOUNTANTS.register
register_sparsifier = SPARSIFIERS.register
register_model = MODELS.register
register_optimizer = OPTIMIZERS.register

# Loaded when first asked for: `import dpsparfl_jax` loads neither JAX nor NumPy.
_LATER = {
    **dict.fromkeys(("DataConfig", "LengthConfig", "ModelConfig"), "config"),
    **dict.fromkeys(("PerfConfig", "PrivacyConfig", "RecordsConfig"), "config"),
    **dict.fromkeys(("RunConfig", "ScheduleConfig", "ServerConfig"), "config"),
    **dict.fromkeys(("TrainingConfig", "WirelessConfig"), "config"),
    **dict.fromkeys(
        ("RunResult", "iterate", "plan", "simulate", "simulate_grid"), "api"
    ),
    "Schedule": "planning.schedule",
    "RecordedRun": "records",
    "find_runs": "records",
    "load_run": "records",
    "InSummary": "records.columns",
    "register_column": "records.columns",
    "load_params": "runner.checkpoint",
    "register_layer_rule": "training.layer_rules",
    **dict.fromkeys(
        ("Allocation", "RoundProblem", "empty_allocation"), "scheduling.problem"
    ),
    "Observation": "scheduling.base",
    "FullRate": "scheduling.baselines",
    "solve_joint": "scheduling.joint",
}

__all__ = [
    "Allocation",
    "DataConfig",
    "FullRate",
    "InSummary",
    "InputError",
    "LengthConfig",
    "ModelConfig",
    "Observation",
    "PerfConfig",
    "PrivacyConfig",
    "RecordedRun",
    "RecordsConfig",
    "RoundProblem",
    "RunConfig",
    "RunResult",
    "Schedule",
    "ScheduleConfig",
    "ServerConfig",
    "TrainingConfig",
    "WirelessConfig",
    "empty_allocation",
    "find_runs",
    "iterate",
    "load_params",
    "load_run",
    "plan",
    "register_accountant",
    "register_column",
    "register_layer_rule",
    "register_model",
    "register_optimizer",
    "register_partition",
    "register_policy",
    "register_solver",
    "register_sparsifier",
    "registered_names",
    "simulate",
    "simulate_grid",
    "solve_joint",
]


def __getattr__(name: str) -> Any:
    """Loads what needs JAX, pandas or NumPy when it is first asked for."""
    if name in _LATER:
        module = importlib.import_module(f"dpsparfl_jax.{_LATER[name]}")
        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """All public names, loaded or not."""
    return [*__all__, "__version__"]
