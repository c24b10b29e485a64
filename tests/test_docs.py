"""Do the documents say what is true: commands, examples, links, maps and docstrings?"""

import contextlib
import dataclasses
import doctest
import importlib
import importlib.util
import re
import shlex
import subprocess
import sys
import warnings

import jax
import pytest

import dpsparfl_jax as fl
from dpsparfl_jax import config, registry
from dpsparfl_jax.privacy import poisson
from dpsparfl_jax.records.columns import COLUMNS
from dpsparfl_jax.registry import Registry
from dpsparfl_jax.runner import devices
from experiments import presets
from experiments.__main__ import COMMANDS
from tests.commands import ROOT, assert_refused, call_program, run_program
from tests.pages import FENCED, assert_printed, run_page

README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
LINKED = [
    *PAGES,
    *(ROOT / f"{name}.md" for name in ("BUILD_NOTES", "CONTRIBUTING", "RESULTS")),
]
# Pages that show a warning.
WARNS: set[str] = set()
QUICK = ("docs/accelerators.md", "docs/howto/policy.md")  # the others train


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Where epsilon curves are kept: pages share them, and nobody else does."""
    return tmp_path_factory.mktemp("home")


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def blocks(path, language):
    text = path.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.M)


# ------------------------------------------------------------------- commands


def test_ci_runs_the_test_command_of_the_readme():
    commands = [block.strip() for block in blocks(README, "sh")]
    (test_command,) = [command for command in commands if "pytest" in command]
    assert test_command in (ROOT / ".ci" / "run").read_text().splitlines()


def test_the_main_command_names_an_existing_program():
    (main_command,) = [b for b in blocks(README, "sh") if "pytest" not in b]
    module = main_command.split()[-1]
    assert (ROOT / (module.replace(".", "/") + ".py")).is_file()


@pytest.mark.parametrize("path", LINKED, ids=name_of)
def test_commands_name_existing_programs(path):
    text = path.read_text(encoding="utf-8")
    for module in re.findall(r"python -m ((?:experiments|benchmarks)\.\w+)", text):
        there = (ROOT / (module.replace(".", "/") + ".py")).is_file()
        assert there, module


@pytest.mark.parametrize("path", LINKED, ids=name_of)
def test_words_after_dpsparfl_are_commands(path):
    for fenced in re.findall(r"^```\w*\n(.*?)^```", path.read_text("utf-8"), FENCED):
        for command in re.findall(r"^dpsparfl (\w+)", fenced, re.M):
            assert command in COMMANDS, command


@pytest.mark.parametrize("program", ["run", "sweep"])
def test_help_lists_every_setting_with_unit_default_bounds_and_source(program):
    text = run_program(f"experiments.{program}", "--help").stdout
    words = " ".join(text.split())
    for section in config.SECTIONS:
        for field in dataclasses.fields(getattr(config.RunConfig(), section)):
            assert f"--{section}.{field.name}:" in words or (
                f"--[no]{section}.{field.name}:" in words
            )
            assert f"default: {field.default!r}" in words
    assert (
        "--wireless.bandwidth_hz: bandwidth of one uplink channel (unit: Hz; above 0; "
        "default: 15000.0; paper: Setup)" in words
    )
    assert all(name in words for name in presets.PRESETS)


def test_benchmark_refuses_what_it_cannot_do():
    done = run_program("benchmarks.engine", "--json=/nowhere/results.json")
    assert_refused(done, "make its folder first")


# ------------------------------------------------------------------- examples


def all_registries():
    """Every registry, with its built-in entries loaded."""
    kinds = [each for each in vars(registry).values() if isinstance(each, Registry)]
    for kind in kinds:
        for entry in kind:
            kind.get(entry)  # else the page's own loading would be undone with the page
    return kinds


@pytest.fixture
def own_registries(monkeypatch):
    """What a page registers or declares is forgotten after it."""
    from experiments.paper import catalogue, figure_curves, sweeps

    for one in all_registries():
        monkeypatch.setattr(one, "_entries", dict(one._entries))
    declared = catalogue.FIGURES, sweeps.SWEEPS, figure_curves.DRAWS, COLUMNS
    before = [dict(table) for table in declared]
    yield
    for table, content in zip(declared, before, strict=True):
        table.clear()
        table.update(content)


def compile_little(monkeypatch):
    """One device and at most two padded sizes: what moves no result but rounding."""
    sizes = poisson.padded_sizes
    monkeypatch.setattr(devices, "chosen_devices", lambda _: (jax.devices()[0],))
    monkeypatch.setattr(
        poisson,
        "padded_sizes",
        lambda size, rate, capacity, choices: sizes(
            size, rate, capacity, min(choices, 2)
        ),
    )


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[] if name_of(path) in QUICK else [pytest.mark.slow])
        for path in PAGES
        if blocks(path, "python")
    ],
    ids=name_of,
)
def test_examples_of_a_page_run_in_order(
    path, own_registries, monkeypatch, tmp_path, capsys, home
):
    name = name_of(path)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    compile_little(monkeypatch)
    # As users have it: the tests' strict promotion is not theirs.
    with (
        warnings.catch_warnings(),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):
        if name in WARNS:
            warnings.simplefilter("ignore", UserWarning)
        run_page(path, name, tmp_path, capsys)


@pytest.mark.parametrize(
    ("said", "shown", "same"),
    [
        ("lambda 1: 1.04 s", "lambda 1: 1.04 s", True),
        ("lambda 1: 1.04 s", "lambda 1: 1.10 s", False),
        ("lambda 1: 1.04 s", "lambda 1: 1.04 m", False),
        (" round  accuracy\n  2  0.42", " round  accuracy\n  2  0.49", True),
        (" round  accuracy\n  2  0.42", " round  accuracy\n  4  0.42", False),
        (
            "accuracy (points) +3.1 (-9 to +4)",
            "accuracy (points) +0.1 (-6 to +2)",
            True,
        ),
        ("accuracy  52% ± 3%", "accuracy  75% ± 3%", False),
        ("delay (s)  -4.9", "delay (s)  +4.9", False),
    ],
)
def test_what_pages_show_is_compared(said, shown, same):
    with contextlib.nullcontext() if same else pytest.raises(AssertionError):
        assert_printed(said, shown, "here")


def test_the_readme_trains_the_policy_that_it_shows(own_registries, tmp_path):
    (policy,) = [code for code in blocks(README, "python") if "register_policy" in code]
    (tmp_path / "mine.py").write_text(policy)
    sweeps = re.findall(r"^dpsparfl sweep (.*)$", README.read_text("utf-8"), re.M)
    (own,) = [words for words in sweeps if "--plugin=mine.py" in words]
    for words in sweeps:
        done = call_program(
            "experiments.sweep", *shlex.split(words), "--print_config", folder=tmp_path
        )
        assert (done.returncode, done.stderr) == (0, "")
    assert "policy" in done.stdout
    allocation = fl.plan(
        fl.RunConfig(
            schedule=fl.ScheduleConfig(policy="most_owed"),
            length=fl.LengthConfig(rounds=8),
        )
    )
    assert "most_owed" in own
    assert (allocation.sends.sum(axis=1) == 5).all()


# What users call or extend. Examples that need minutes are marked +SKIP in place.
PUBLIC = [
    *("api.plan", "api.simulate", "api.simulate_grid", "api.iterate"),
    *("config.RunConfig", "registry.Registry", "registry.registered_names"),
    *("planning.schedule.Schedule", "scheduling.base.Policy"),
    *("scheduling.base.Observation", "scheduling.problem.RoundProblem"),
    *("scheduling.problem.Allocation", "privacy.accountants.Accountant"),
    *("data.partition.Dealer", "sparsifiers.Sparsifier"),
    *("records.folder.find_runs", "records.folder.RecordedRun"),
    *("runner.checkpoint.load_params", "errors.unknown", "own_code.of"),
    "own_code.in_words",
]


TRAIN = ("api.simulate", "api.simulate_grid", "api.iterate", "records.folder.find_runs")
TRAIN += ("records.folder.RecordedRun", "runner.checkpoint.load_params")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in TRAIN else [])
        for name in PUBLIC
    ],
)
def test_docstring_examples_run(name, own_registries, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    compile_little(monkeypatch)
    room, _, last = name.rpartition(".")
    thing = getattr(importlib.import_module(f"dpsparfl_jax.{room}"), last)
    finder = doctest.DocTestFinder(exclude_empty=True, recurse=True)
    tests = [t for t in finder.find(thing, last, globs={}) if t.examples]
    assert tests, f"{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    for test in tests:
        said = []
        assert runner.run(test, out=said.append).failed == 0, "".join(said)


def test_every_public_name_has_a_docstring():
    for name in fl.__all__:
        if name in ("register_column", "register_layer_rule"):
            continue  # have their own tests
        assert (getattr(fl, name).__doc__ or "").strip(), name


# ---------------------------------------------------------------------- links


def anchor_of(heading):
    words = re.sub(r"[`*_]", "", heading).strip().lower()
    return re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", words))


def anchors(path):
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.DOTALL | re.M)
    headings = re.findall(r"^#+ +(.*?) *$", text, flags=re.M)
    return {anchor_of(heading) for heading in headings}


@pytest.mark.parametrize("path", LINKED, ids=name_of)
def test_links_point_to_what_is_there(path):
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.DOTALL | re.M)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        assert there.exists(), target
        if anchor:
            assert anchor in anchors(there), target


def test_no_page_of_the_site_links_out_of_it():
    docs = ROOT / "docs"
    for path in docs.rglob("*.md"):
        for target in re.findall(r"\]\(([^)\s#]+)", path.read_text("utf-8")):
            if not re.match(r"[a-z]+:", target):
                assert (path.parent / target).resolve().is_relative_to(docs), target


@pytest.mark.parametrize("path", LINKED, ids=name_of)
def test_tests_that_are_named_exist(path):
    known = "\n".join(p.read_text("utf-8") for p in (ROOT / "tests").rglob("*.py"))
    files = {p.stem for p in (ROOT / "tests").rglob("test_*.py")}
    for name in set(re.findall(r"\btest_\w+", path.read_text("utf-8"))):
        is_function = re.search(rf"^def {name}\(", known, flags=re.M)
        is_word = name in (
            "test_examples",
            "test_accuracy",
            "test_images",
            "test_labels",
        )
        assert name in files or is_function or is_word, name


# ------------------------------------------------------------------------ map


def mapped_files():
    """Files that the map in docs/design.md names, as paths in the package."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"<!-- map -->(.*?)<!-- end of map -->", text, re.DOTALL)
    return re.findall(r"^\| `([\w/]+\.py)` \|", table, flags=re.M)


def test_the_map_names_every_file_once():
    named = mapped_files()
    assert len(named) == len(set(named))
    package = ROOT / "dpsparfl_jax"
    tree = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if path.name != "__init__.py"
    }
    assert set(named) == tree


def test_the_table_of_columns_is_the_declared_one():
    text = (ROOT / "docs" / "records.md").read_text()
    (table,) = re.findall(
        r"<!-- columns -->(.*?)<!-- end of columns -->", text, re.DOTALL
    )
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{column.name}` | {column.unit} | {column.tag} | {column.about} |"
        for column in COLUMNS.values()
    ]


def test_the_tables_of_a_policys_values_name_every_field():
    text = (ROOT / "docs" / "howto" / "policy.md").read_text()
    (tables,) = re.findall(
        r"<!-- fields -->(.*?)<!-- end of fields -->", text, re.DOTALL
    )
    told = re.findall(r"^\| `(\w+)` \|", tables, re.M)
    asked = [
        name
        for name, each in vars(fl.Observation).items()
        if isinstance(each, property) and not name.startswith("_")
    ]
    seen = (*fl.Observation._fields, *asked, *fl.RoundProblem._fields)
    assert told == [*seen, *fl.Allocation._fields]


# ----------------------------------------------------------------------- site


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", f"--site-dir={tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").is_file()


def test_every_page_is_in_the_navigation():
    listed = re.findall(r"([\w/]+\.md)\s*$", (ROOT / "mkdocs.yml").read_text(), re.M)
    there = {p.relative_to(ROOT / "docs").as_posix() for p in PAGES if p != README}
    assert sorted(listed) == sorted(there)
