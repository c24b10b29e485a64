"""Settings as plain values: written, read back, and compared by what they move."""

import dataclasses
import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from dpsparfl_jax.config import SECTIONS, RunConfig
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.options import Section
from dpsparfl_jax.registry import OPTIMIZERS, PARTITIONS, POLICIES

AnySection = TypeVar("AnySection", bound=Section)

# Names of version 0.1, which flags and manifests may still have.
RENAMED_SECTIONS = {"run": "length"}
RENAMED_SETTINGS = {
    "run.rounds": "length.rounds",
    "run.eval_every": "length.eval_every",
    "training.mask": "training.sparsifier",
}

# Settings that have an effect with one value of another one only; what users have
# registered under other names may look at them too.
_NEEDS = {
    "data.dirichlet_alpha": ("data.partition", "dirichlet"),
    "data.group_sizes": ("data.partition", "imbalanced"),
    "schedule.solver": ("schedule.policy", "dp_sparfl"),
    "schedule.smoothness": ("schedule.noise_aware", True),
    "schedule.gradient_over_clip": ("schedule.noise_aware", True),
    "training.momentum": ("training.optimizer", "momentum"),
    "server.momentum": ("server.optimizer", "momentum"),
    "server.average_decay": ("server.averaging", "ema"),
    "server.average_share": ("server.averaging", "tail"),
}
# Settings that have none with one value of another one.
_IDLE_WITH = {
    "data.train_examples": ("data.partition", "imbalanced"),
    "training.rate_end": ("training.rate_schedule", "constant"),
    "server.rate_end": ("server.rate_schedule", "constant"),
}


def as_dict(settings: RunConfig) -> dict[str, Any]:
    """All settings as plain values, for a JSON file."""
    return dataclasses.asdict(settings)


def from_dict(values: dict[str, Any]) -> RunConfig:
    """The settings that `as_dict` gave; refuses unknown names and bad values.

    What a manifest of an earlier version lacks has its default.
    """
    base = RunConfig()
    try:
        sections = {
            name: type(getattr(base, name))(**content) if name in SECTIONS else content
            for name, content in modern_names(values).items()
        }
        return RunConfig(**sections)
    except (AttributeError, TypeError) as reason:
        raise InputError(f"this is no configuration of ours ({reason}).") from None


def modern_names(values: dict[str, Any]) -> dict[str, Any]:
    """Settings as a dict, with names of earlier versions replaced."""
    renamed: dict[str, Any] = {}
    for section, content in values.items():
        if not isinstance(content, dict):
            renamed[section] = content
            continue
        for name, value in content.items():
            old = f"{section}.{name}"
            place, _, field = RENAMED_SETTINGS.get(old, old).partition(".")
            renamed.setdefault(place, {})[field] = value
        renamed.setdefault(RENAMED_SECTIONS.get(section, section), {})
    return renamed


def replaced(section: AnySection, changes: Mapping[str, Any]) -> AnySection:
    """A section with other values; one that equals the value before stays as it was.

    So 20.0 where there was 20 changes nothing: equal settings have one digest, and draw
    the same noise.
    """
    new = dataclasses.replace(section, **changes)
    same = {
        name: getattr(section, name)
        for name in changes
        if getattr(new, name) == getattr(section, name)
    }
    return dataclasses.replace(new, **same)


def moving(settings: RunConfig, what: str) -> dict[str, Any]:
    """The settings that move `what` ("results", "rounding"), by section and name."""
    chosen: dict[str, Any] = {"seed": settings.seed} if what == "results" else {}
    for section in SECTIONS:
        values = getattr(settings, section)
        chosen[section] = {
            field.name: getattr(values, field.name)
            for field in dataclasses.fields(values)
            if field.metadata["moves"] == what
        }
    return chosen


def static(settings: RunConfig) -> dict[str, Any]:
    """The settings that compiled programs are built around, as `section.name`."""
    return {
        f"{section}.{field.name}": getattr(getattr(settings, section), field.name)
        for section in SECTIONS
        for field in dataclasses.fields(getattr(settings, section))
        if field.metadata["static"]
    }


def digest(settings: RunConfig) -> str:
    """A hash of everything that moves results: equal for runs that must be equal."""
    text = json.dumps(moving(settings, "results"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def noise_seed(settings: RunConfig) -> int:
    """The seed of all that hides records: masks, batches, noise.

    Runs of one seed share their world, their data and their initial model. Unless they
    are paired, they share no noise: whoever sees two of them must not be able to
    subtract it. Only settings that differ from their defaults count, so that an option
    added later does not move a run that does not use it. Nor does the number of rounds,
    where a shorter run is the beginning of a longer one: there is nothing to subtract.
    """
    if settings.privacy.noise_key == "paired":
        return settings.seed
    mine, usual = moving(settings, "results"), moving(RunConfig(), "results")
    if not looking_ahead(settings):
        del mine["length"]["rounds"], usual["length"]["rounds"]
    text = json.dumps([settings.seed, differences(usual, mine)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def looking_ahead(settings: RunConfig) -> list[str]:
    """What makes rounds depend on how many are planned, as `name=value`.

    Without any of it, a run is the beginning of the same run with more rounds.
    """
    training, server = settings.training, settings.server
    ahead = {
        "training.rate_schedule": (training.rate_schedule, ("cosine", "linear")),
        "server.rate_schedule": (server.rate_schedule, ("cosine", "linear")),
        "server.averaging": (server.averaging, ("tail",)),
        "server.divide_by": (server.divide_by, ("planned",)),
    }
    return [f"{name}={now}" for name, (now, which) in ahead.items() if now in which]


def differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Settings that two configurations (as dicts) do not share, a phrase each."""
    phrases = []
    for section in sorted({*then, *now}):
        old, new = then.get(section, {}), now.get(section, {})
        if not isinstance(old, dict):
            old, new = {"": old}, {"": new}
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                label = f"{section}.{name}" if name else section
                phrases.append(f"{label} was {old.get(name)!r}, is {new.get(name)!r}")
    return phrases


def without_effect(settings: RunConfig, given: Collection[str]) -> list[str]:
    """A sentence for each of the `given` settings that another one leaves idle."""
    sentences = []
    for name, (other, value) in (*_NEEDS.items(), *_IDLE_WITH.items()):
        section, _, field = other.partition(".")
        now = getattr(getattr(settings, section), field)
        idle = _is_ours(now) and now != value if name in _NEEDS else now == value
        if name in given and idle:
            sentences.append(f"{name} has no effect with {other}={now}.")
    return sentences


def _is_ours(value: Any) -> bool:
    """Whether a value is no name that a user has registered."""
    kinds = (PARTITIONS, POLICIES, OPTIMIZERS)
    users = [name for kind in kinds for name in kind if not kind.is_built_in(name)]
    return value not in users
