"""Which code of one's own a run uses, and whether it is still the same.

Settings name policies, models and other entries of registries. What a name stands for
moves results as a setting does, if it is not the package's own: manifests record it,
and a run of other code is another run.
"""

from collections.abc import Iterator
from typing import Any

from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.registry import LAYER_RULES, MODELS, Registry

_DIGESTS = ("file_sha256", "source_sha256")


def of(settings: RunConfig) -> list[dict[str, str]]:
    """Kind, name, plugin and digests of all that a run uses and users registered.

    Examples:
        >>> import dpsparfl_jax as fl
        >>> from dpsparfl_jax import own_code
        >>> own_code.of(fl.RunConfig())
        []
    """
    return [
        {"kind": registry.kind, "name": _shown(name), **origin._asdict()}
        for registry, name in dict.fromkeys(_used(settings))
        if (origin := registry.origin(name)) is not None
    ]


def _used(settings: RunConfig) -> Iterator[tuple[Registry[Any], Any]]:
    """What the settings name, and layer rules: built-in models need only built-in ones.

    Which layers a model of one's own has is not known before it is built.
    """
    yield from settings.named()
    if not MODELS.is_built_in(settings.model.name):
        yield from ((LAYER_RULES, layer) for layer in LAYER_RULES.names())


def _shown(name: Any) -> str:
    return str(getattr(name, "__name__", name))


def changes(then: Any, now: list[dict[str, str]]) -> list[str]:
    """What has other code now than a record says, a phrase each.

    A digest that is unknown on either side, as in records of earlier versions, says
    nothing.
    """
    before = {
        (each.get("kind"), each.get("name")): each
        for each in (then if isinstance(then, list) else ())
        if isinstance(each, dict)
    }
    phrases = []
    for each in now:
        old = before.get((each["kind"], each["name"]), {})
        if any(old.get(n) and each[n] and old[n] != each[n] for n in _DIGESTS):
            where = f" of {each['plugin']}" if each["plugin"] else ""
            phrases.append(f"{each['kind']} {each['name']!r}{where}")
    return phrases
