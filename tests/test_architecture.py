"""Do the rooms keep to their import rules, and does the check notice if not?"""

import ast
import subprocess
import sys

import pytest

from tests.architecture import Package, readings
from tests.commands import ROOT

PACKAGE = Package(ROOT / "dpsparfl_jax")

# From left to right: a room may import rooms on its left.
ORDER = (
    *("errors", "units", "types", "storage", "memory", "origins", "registry"),
    *("options", "config_cell", "config_privacy", "config", "config_values"),
    *("own_code", "rng", "client_values", "sparsifiers", "data", "wireless"),
    "scheduling",
    *("privacy", "preflight", "planning", "records", "training", "runner"),
    *("api", "report"),
)
DEVICE = ("training", "runner", "api")
JAX = {"jax", "flax", "optax"}
NOT_IN_TRAINING = {"scipy", "absl", "tqdm", "matplotlib", "pandas"}
HEAVY = {"plotly", "tensorboardX", "tensorflow_datasets", "torch"}
NAMES = list(PACKAGE.modules)


def modules_of(*rooms):
    return [name for name in NAMES if PACKAGE.modules[name].room in rooms]


def refuse(name, libraries, package=PACKAGE):
    chains = package.reach(name)
    found = [" -> ".join(chains[each]) for each in sorted(libraries & set(chains))]
    assert not found, found


def test_every_room_is_known():
    assert {PACKAGE.modules[name].room for name in NAMES} - {""} == set(ORDER)


@pytest.mark.parametrize("name", modules_of("", *(set(ORDER) - set(DEVICE))))
def test_host_rooms_never_load_jax(name):
    refuse(name, JAX)


@pytest.mark.parametrize("name", modules_of("training"))
def test_training_loads_nothing_of_the_host(name):
    refuse(name, NOT_IN_TRAINING)


@pytest.mark.parametrize("name", modules_of("", "planning"))
def test_the_package_and_its_planning_load_nothing_heavy(name):
    refuse(name, HEAVY)


def test_rooms_import_rooms_on_their_left():
    assert PACKAGE.backward(ORDER) == []


def test_there_is_no_import_cycle():
    assert PACKAGE.cycle() == []


@pytest.mark.parametrize("name", NAMES)
def test_files_stay_small(name):
    assert len(PACKAGE.modules[name].path.read_text().splitlines()) <= 500


@pytest.mark.parametrize("name", NAMES)
def test_the_library_reads_its_arguments_only(name):
    """`api` lends its own clock to runs that are recorded."""
    module = PACKAGE.modules[name]
    assert readings(module.tree, may_read_clock=module.room == "api") == []


def test_loading_the_planning_side_does_not_load_jax():
    """What the source says, once more in a process."""
    host = modules_of("", *(set(ORDER) - set(DEVICE)))
    lazy = (
        "dpsparfl_jax.records.events",
    )  # TensorBoard's writer, which may load torch
    names = ", ".join(name for name in host if name not in lazy)
    code = f"import sys, {names}; sys.exit(bool({JAX!r} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def plant(folder, **files):
    """A package of these modules; `a__b` is the module b of the folder a."""
    root = folder / "planted"
    for name, text in {"__init__": "", **files}.items():
        path = root.joinpath(*name.split("__")) if name[0] != "_" else root / name
        path = path.with_name(f"{path.name}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for below in [path for path in root.iterdir() if path.is_dir()]:
        (below / "__init__.py").touch()
    return Package(root)


@pytest.mark.parametrize(
    "text",
    [
        "import planted.device",
        "from planted import device",
        "from planted.device import step",
        "from . import device",
        "from .device import step",
        "try:\n    import planted.device\nexcept ImportError:\n    pass",
        "class Late:\n    from planted import device",
        "if True:\n    from planted import device",
    ],
)
def test_the_check_follows_imports_through_modules(tmp_path, text):
    package = plant(
        tmp_path,
        host="from planted import middle",
        middle=text,
        device="import jax.numpy as jnp\ndef step(): pass",
    )
    chain = package.reach("planted.host")["jax"]
    assert chain == ("planted.host", "planted.middle", "planted.device", "jax")
    with pytest.raises(AssertionError, match=r"middle -> planted.device -> jax"):
        refuse("planted.host", JAX, package)


@pytest.mark.parametrize(
    "text",
    [
        "def later():\n    import planted.device",
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from planted.device import step",
        "import typing\nif typing.TYPE_CHECKING:\n    import planted.device",
        "class Late:\n    def load(self):\n        from planted import device",
    ],
)
def test_the_check_ignores_what_loading_does_not_execute(tmp_path, text):
    package = plant(tmp_path, host=text, device="import jax\ndef step(): pass")
    refuse("planted.host", JAX, package)


def test_the_check_sees_that_a_module_loads_its_folder(tmp_path):
    package = plant(tmp_path, a="import planted.b.c", b__c="", b__d="import scipy")
    (tmp_path / "planted" / "b" / "__init__.py").write_text("from planted.b import d")
    refuse("planted.a", {"scipy"}, package)
    package = Package(tmp_path / "planted")
    with pytest.raises(AssertionError, match=r"planted.b -> planted.b.d -> scipy"):
        refuse("planted.a", {"scipy"}, package)


def test_the_check_sees_the_order_of_rooms_and_cycles(tmp_path):
    package = plant(tmp_path / "1", a__x="from planted.b import y", b__y="")
    assert package.backward(("b", "a")) == []
    assert package.backward(("a", "b")) == [
        "planted.a.x imports planted.b",
        "planted.a.x imports planted.b.y",
    ]
    assert package.cycle() == []
    ring = plant(
        tmp_path / "2",
        a="from planted import b",
        b="import planted.c",
        c="from .a import thing",
    )
    assert ring.cycle() == ["planted.a", "planted.b", "planted.c", "planted.a"]


def test_the_check_refuses_modules_that_are_not_there(tmp_path):
    with pytest.raises(AssertionError, match=r"imports planted.gone, which is not"):
        plant(tmp_path, a="import planted.gone")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("from absl import flags", "imports absl, flags"),
        ("def f():\n    import time", "imports time, the clock"),
        ("from datetime import datetime", "imports datetime, the clock"),
        ("import random", "imports random, a global random state"),
        ("import os\nx = os.environ['HOME']", "reads the environment"),
        ("import os\nx = os.getenv('HOME')", "reads the environment"),
        ("from os import environ", "reads the environment"),
        ("import numpy as np\nnp.random.seed(0)", "is a global random state"),
        ("import numpy as np\nx = np.random.normal(2)", "is a global random state"),
        ("import numpy as np\nx = np.random.default_rng()", "without a seed"),
        ("raise ValueError('choose another --out')", "names a flag"),
        ("name = 1\nx = f'{name}: add --resume'", "names a flag"),
    ],
)
def test_the_check_sees_what_a_module_reads(text, message):
    (told,) = readings(ast.parse(text))
    assert message in told


def test_the_check_lets_good_modules_pass():
    good = '''"""Flags such as --help may be named here."""
import time
import numpy as np
stream = np.random.default_rng(np.random.SeedSequence(3))
def draw(stream: np.random.Generator):
    """As `--seed` says."""
    return "between 1 -- and 2", stream.random()
'''
    assert readings(ast.parse(good), may_read_clock=True) == []
    assert len(readings(ast.parse(good))) == 1
