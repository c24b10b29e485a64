"""Everything that goes by a name: one registry a kind, all of the same shape.

    @POLICIES.register("mine")
    class Mine: ...

    POLICIES.get("mine")      the entry, or one sentence that lists the names there are
    POLICIES.names()          all names, also those whose module is not loaded yet

The table at the end says which module registers which built-in name. It lets settings
be checked, and `--help` list every name, without loading JAX; a module is loaded when
one of its entries is first asked for. What users register needs no line there.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from dpsparfl_jax.errors import InputError, UnregisteredError, unknown
from dpsparfl_jax.origins import Origin, origin_of

Key = TypeVar("Key")
Entry = TypeVar("Entry")
_PACKAGE = "dpsparfl_jax."


class Registry(Generic[Key]):
    """Entries of one kind by name (or, for layer rules, by type)."""

    def __init__(self, kind: str, built_in: Mapping[Key, str] | None = None) -> None:
        """`built_in` gives the module that registers a name when it is imported."""
        self.kind = kind
        self._built_in = dict(built_in or {})
        self._entries: dict[Key, Any] = {}
        self._origins: dict[Key, Origin] = {}  # of what is not the package's own

    def register(self, name: Key) -> Callable[[Entry], Entry]:
        """Decorator that adds an entry under a name.

        Args:
            name: what users write in settings to choose the entry.

        Returns:
            A decorator that gives back what it was given.

        Raises:
            InputError: if the name is taken, also by a built-in entry that is not
                loaded yet.

        Examples:
            >>> import dpsparfl_jax as fl
            >>> @fl.register_optimizer("slow")
            ... def slow(learning_rate):
            ...     import optax
            ...     return optax.sgd(learning_rate / 10)
            >>> "slow" in fl.registered_names()["optimizer"]
            True
            >>> fl.register_policy("random")(object)
            Traceback (most recent call last):
                ...
            dpsparfl_jax.errors.InputError: there is already a policy named 'random'.
        """

        def add(entry: Entry) -> Entry:
            module = getattr(entry, "__module__", None)
            taken = name in self._entries and not self._is_again(name, entry)
            if taken or self._built_in.get(name, module) != module:
                shown = getattr(name, "__name__", name)
                raise InputError(f"there is already {self._a_kind} named {shown!r}.")
            self._entries[name] = entry
            if not str(module).startswith(_PACKAGE):
                self._origins[name] = origin_of(entry)
            return entry

        return add

    def get(self, name: Key) -> Any:
        """The entry of that name; refuses an unknown one and lists the others."""
        self.check(name)
        if name not in self._entries:
            importlib.import_module(self._built_in[name])
        return self._entries[name]

    def check(self, name: Key) -> None:
        """Refuses an unknown name; loads nothing."""
        if name not in self._built_in and name not in self._entries:
            raise UnregisteredError(unknown(self.kind, name, self.names()))

    def _is_again(self, name: Key, entry: Any) -> bool:
        """Whether a cell of a notebook, say, registers its own definition anew."""
        labels = [
            (getattr(each, "__module__", ""), getattr(each, "__qualname__", ""))
            for each in (self._entries[name], entry)
        ]
        return name not in self._built_in and labels[0] == labels[1] != ("", "")

    @property
    def _a_kind(self) -> str:
        return f"{'an' if self.kind[0] in 'aeiou' else 'a'} {self.kind}"

    def names(self) -> tuple[Key, ...]:
        """All names: the built-in ones first, then registered ones in their order."""
        return tuple(dict.fromkeys((*self._built_in, *self._entries)))

    def is_built_in(self, name: Key) -> bool:
        """Whether the package itself has that name."""
        return name in self._built_in

    def origin(self, name: Key) -> Origin | None:
        """Where an entry that users registered comes from; None for all others."""
        return None if self.is_built_in(name) else self._origins.get(name)

    def registered(self) -> tuple[tuple[Key, Any], ...]:
        """Names and entries that are loaded, for keys of what is built from them."""
        return tuple(self._entries.items())

    def __iter__(self) -> Iterator[Key]:
        """Names, as `names` gives them."""
        return iter(self.names())


def _all_in(module: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), f"dpsparfl_jax.{module}")


POLICIES: Registry[str] = Registry(
    "policy",
    _all_in("scheduling.dp_sparfl", "dp_sparfl")
    | _all_in("scheduling.baselines", "delay_min round_robin random"),
)
SOLVERS: Registry[str] = Registry(
    "solver",
    _all_in("scheduling.joint", "joint descent")
    | _all_in("scheduling.alternating", "paper paper_strict paper_low"),
)
PARTITIONS: Registry[str] = Registry(
    "partition", _all_in("data.partition", "iid dirichlet imbalanced file")
)
ACCOUNTANTS: Registry[str] = Registry(
    "accountant", _all_in("privacy.rdp", "rdp") | _all_in("privacy.pld", "pld")
)
SPARSIFIERS: Registry[str] = Registry(
    "sparsifier", _all_in("sparsifiers", "bernoulli fixed_count structured")
)
MODELS: Registry[str] = Registry(
    "model",
    _all_in(
        "training.models",
        "mnist_cnn cifar_cnn mnist_cnn_tanh cifar_cnn_tanh norm_cnn small_cnn logistic",
    ),
)
OPTIMIZERS: Registry[str] = Registry(
    "optimizer", _all_in("training.optimizers", "plain sgd momentum adam")
)
# By type of layer: no setting names them, so no table lists the built-in ones.
LAYER_RULES: Registry[type] = Registry("layer rule")


def registered_names() -> dict[str, tuple[str, ...]]:
    """All names by kind: what can be written in the settings that choose by name.

    Examples:
        >>> import dpsparfl_jax as fl
        >>> fl.registered_names()["accountant"]
        ('rdp', 'pld')
    """
    kinds = POLICIES, SOLVERS, PARTITIONS, ACCOUNTANTS, SPARSIFIERS, MODELS, OPTIMIZERS
    return {registry.kind: registry.names() for registry in kinds}
