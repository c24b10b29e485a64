"""All policies: importing this module registers the built-in ones."""

from dpsparfl_jax.scheduling import baselines, dp_sparfl
from dpsparfl_jax.scheduling.base import (
    Observation,
    Policy,
    make_policy,
    policy_names,
    register_policy,
)

__all__ = [
    "Observation",
    "Policy",
    "baselines",
    "dp_sparfl",
    "make_policy",
    "policy_names",
    "register_policy",
]
