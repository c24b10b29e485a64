"""Is there one way to name things: the same decorator, the same sentence, one list?"""

import ast
import importlib
import pathlib

import pytest

import dpsparfl_jax as fl
from dpsparfl_jax import registry
from dpsparfl_jax.errors import InputError
from tests import toy

KINDS = (
    registry.POLICIES,
    registry.SOLVERS,
    registry.PARTITIONS,
    registry.ACCOUNTANTS,
    registry.SPARSIFIERS,
    registry.MODELS,
    registry.OPTIMIZERS,
)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_the_table_lists_exactly_what_its_modules_register(kind):
    modules = set(kind._built_in.values())
    for module in modules:
        importlib.import_module(module)
    ours = {
        name
        for name, entry in kind._entries.items()
        if getattr(entry, "__module__", "").startswith("dpsparfl_jax")
    }
    assert ours == set(kind._built_in)
    for name, module in kind._built_in.items():
        assert kind.get(name).__module__ == module


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_unknown_and_taken_names_are_refused_in_one_sentence(kind):
    first = kind.names()[0]
    with pytest.raises(InputError, match=f"unknown {kind.kind} 'nonsense': choose one"):
        kind.get("nonsense")
    with pytest.raises(InputError, match=f"already an? {kind.kind} named '{first}'"):
        kind.register(first)(lambda: None)


def test_a_registered_entry_is_listed_and_found():
    kind = registry.Registry("toy", {"first": "nowhere"})
    entry = kind.register("mine")(object)
    assert entry is object
    assert kind.names() == ("first", "mine")
    assert list(kind) == ["first", "mine"]
    assert kind.get("mine") is object
    kind.check("first")  # loads nothing


def test_every_kind_is_listed_by_one_function_and_exported():
    listed = fl.registered_names()
    assert listed == {kind.kind: kind.names() for kind in KINDS}
    for kind in KINDS:
        assert getattr(fl, f"register_{kind.kind}") == kind.register


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ("schedule", "policy"),
        ("schedule", "solver"),
        ("data", "partition"),
        ("privacy", "accountant"),
        ("training", "sparsifier"),
        ("training", "optimizer"),
        ("server", "optimizer"),
        ("model", "name"),
    ],
)
def test_settings_refuse_unknown_names_before_anything_is_loaded(section, name):
    settings = toy.settings(**{section: {name: "nonsense"}})
    with pytest.raises(InputError, match="'nonsense': choose one of"):
        settings.check_names()


def test_names_are_written_once():
    """No module but the table and its owner spells a list of built-in names."""
    package = pathlib.Path(fl.__file__).parent
    for path in package.rglob("*.py"):
        if path.name == "registry.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Tuple | ast.List | ast.Set):
                words = {
                    each.value
                    for each in node.elts
                    if isinstance(each, ast.Constant) and isinstance(each.value, str)
                }
                for kind in KINDS:
                    assert len(words & set(kind.names())) < 2, (path, words)
