"""Which code of one's own a run uses, and whether it is still the same.

Settings name policies, models and other entries of registries. What a name stands for
moves results as a setting does, if it is not the package's own: manifests record it,
and a run of other code is another run.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.registry import LAYER_RULES, MODELS, Registry

_DIGESTS = ("file_sha256", "source_sha256")
_SHORT = 12  # of a digest, for people


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


def in_words(recorded: Any) -> list[str]:
    """What a record says of a run's own code, a phrase each.

    Examples:
        >>> from dpsparfl_jax import own_code
        >>> told = {"kind": "policy", "name": "mine", "plugin": "mine.py"}
        >>> own_code.in_words([{**told, "file_sha256": 64 * "a"}])
        ["policy 'mine' of mine.py (SHA-256 aaaaaaaaaaaa)"]
    """
    phrases = []
    for each in _entries(recorded):
        digest = next((str(each[n]) for n in _DIGESTS if each.get(n)), "")
        known = f" (SHA-256 {digest[:_SHORT]})" if digest else ""
        phrases.append(_phrase(each) + known)
    return phrases


def _phrase(each: Mapping[str, Any]) -> str:
    where = f" of {each['plugin']}" if each.get("plugin") else ""
    return f"{each.get('kind')} {each.get('name')!r}{where}"


def _entries(recorded: Any) -> list[dict[str, Any]]:
    """The entries of a record; none of one that is damaged, or older than they are."""
    listed = recorded if isinstance(recorded, list) else []
    return [each for each in listed if isinstance(each, dict)]


def changes(then: Any, now: list[dict[str, str]]) -> list[str]:
    """What has other code now than a record says, a phrase each.

    A digest that is unknown on either side, as in records of earlier versions, says
    nothing.
    """
    before = {(str(e.get("kind")), str(e.get("name"))): e for e in _entries(then)}
    phrases = []
    for each in now:
        old = before.get((each["kind"], each["name"]), {})
        if any(old.get(n) and each[n] and old[n] != each[n] for n in _DIGESTS):
            phrases.append(_phrase(each))
    return phrases
