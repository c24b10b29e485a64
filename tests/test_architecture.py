"""Do the rooms keep to their import rules?"""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "dpsparfl_jax"

# From left to right: a room may import rooms on its left.
ORDER = (
    "errors",
    "units",
    "types",
    "options",
    "cell_config",
    "data_config",
    "config",
    "rng",
    "data",
    "wireless",
    "scheduling",
    "privacy",
    "schedule",
    "prefetching",
    "theory",
    "planning",
    "records",
    "training",
    "simulation",
    "api",
    "recording",
    "plotting",
    "report",
)
HOST = set(ORDER) - {"training", "simulation", "api", "recording"}


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path, path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported(path):
    """Top-level names of all imports; `dpsparfl_jax.x` as `.x`."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            yield f".{parts[1]}" if parts[0] == "dpsparfl_jax" else parts[0]


def test_every_room_is_known():
    assert {room for _, room in modules()} - {"__init__"} == set(ORDER)


@pytest.mark.parametrize("path", [p for p, _ in modules()], ids=lambda p: p.stem)
def test_import_rules(path):
    room = path.relative_to(PACKAGE).with_suffix("").parts[0]
    names = set(imported(path))
    if room in HOST:
        assert not names & {"jax", "flax", "optax"}
    if room == "training":
        assert not names & {"scipy", "absl", "tqdm", "matplotlib"}
    assert not names & {"absl", "random", "time"}
    assert "os.environ" not in path.read_text()
    if room in ORDER:
        allowed = {f".{name}" for name in ORDER[: ORDER.index(room) + 1]}
        assert {name for name in names if name.startswith(".")} <= allowed


@pytest.mark.parametrize("path", [p for p, _ in modules()], ids=lambda p: p.stem)
def test_files_stay_small(path):
    assert len(path.read_text().splitlines()) <= 300


def test_planning_side_does_not_load_jax():
    import subprocess
    import sys

    code = (
        "import sys, dpsparfl_jax.config, dpsparfl_jax.data.packing, "
        "dpsparfl_jax.rng, dpsparfl_jax.types, dpsparfl_jax.planning, "
        "dpsparfl_jax.plotting, dpsparfl_jax.theory, dpsparfl_jax.report.files, "
        "dpsparfl_jax.data.sources, dpsparfl_jax.data.partition; "
        "sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
