"""What a package imports and reads, found in its source without running it.

Imports are those that happen when a module is loaded: at module level, also in class
bodies, `if` and `try`, but not under `if TYPE_CHECKING` and not inside functions.
"""

import ast
import pathlib
import re
from typing import NamedTuple

FLAG = re.compile(r"(?<![\w-])--[a-z]")
SEEDED = {"BitGenerator", "Generator", "PCG64", "Philox", "SeedSequence", "default_rng"}


class Module(NamedTuple):
    name: str  # dotted
    path: pathlib.Path
    tree: ast.Module
    is_package: bool

    @property
    def room(self):
        """The part of the package it belongs to; empty for the package itself."""
        return self.name.partition(".")[2].partition(".")[0]


class Package:
    """The modules of a package, and which of them load which."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.name = folder.name
        self.modules = {}
        for path in sorted(folder.rglob("*.py")):
            parts = [folder.name, *path.relative_to(folder).with_suffix("").parts]
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            tree = ast.parse(path.read_text())
            self.modules[name] = Module(name, path, tree, is_package)
        found = {name: self._imports(module) for name, module in self.modules.items()}
        self.inside = {
            name: {each for each in names if each in self.modules and each != name}
            for name, names in found.items()
        }
        self.outside = {
            name: {each.split(".")[0] for each in names if each not in self.modules}
            for name, names in found.items()
        }

    def _imports(self, module):
        """Modules of ours by their full name, others by what the source says."""
        found = set()
        for node in _loaded(module.tree.body):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    found |= self._with_parents(alias.name, module)
            else:
                base = _absolute(node, module)
                for alias in node.names:
                    full = f"{base}.{alias.name}"
                    target = full if full in self.modules else base
                    found |= self._with_parents(target, module)
        return found

    def _with_parents(self, name, module):
        """Loading a.b.c loads a.b too, unless the importer lives in there."""
        if name.split(".")[0] != self.name:
            return {name}
        if name not in self.modules:
            raise AssertionError(f"{module.name} imports {name}, which is not there")
        parts = name.split(".")
        parents = {".".join(parts[:n]) for n in range(2, len(parts))}
        own = {
            p for p in parents if module.name == p or module.name.startswith(f"{p}.")
        }
        return {name} | (parents - own)

    def reach(self, name):
        """{library: chain of modules through which loading `name` loads it}."""
        chains, waiting, seen = {}, [(name,)], {name}
        while waiting:
            chain = waiting.pop(0)
            for library in self.outside[chain[-1]]:
                chains.setdefault(library, (*chain, library))
            for module in sorted(self.inside[chain[-1]] - seen):
                seen.add(module)
                waiting.append((*chain, module))
        return chains

    def cycle(self):
        """Modules that load each other in a ring, or nothing."""
        done = set()

        def walk(name, above):
            if name in above:
                return [*above[above.index(name) :], name]
            if name in done:
                return []
            for each in sorted(self.inside[name]):
                ring = walk(each, [*above, name])
                if ring:
                    return ring
            done.add(name)
            return []

        return next(filter(None, (walk(name, []) for name in self.modules)), [])

    def backward(self, order):
        """Imports of rooms that stand further right in `order`, as sentences."""
        place = {room: number for number, room in enumerate(order)}
        return [
            f"{name} imports {other}"
            for name, others in self.inside.items()
            for other in sorted(others)
            if self.modules[name].room
            and place[self.modules[other].room] > place[self.modules[name].room]
        ]


def _loaded(body):
    """Import statements that are executed when a module is loaded."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from _loaded(node.orelse)
        else:
            for name in ("body", "orelse", "finalbody", "handlers"):
                yield from _loaded(getattr(node, name, []))


def _absolute(node, module):
    if not node.level:
        return node.module
    here = module.name.split(".")
    up = node.level - module.is_package
    base = here[: len(here) - up] if up else here
    return ".".join([*base, *([node.module] if node.module else [])])


def readings(tree, *, may_read_clock=False):
    """What the code of a module takes from outside its arguments, as sentences.

    Also inside functions: flags, the environment, the clock, random state that nobody
    seeded, and names of flags in sentences.
    """
    told = []
    banned = {"absl": "flags", "random": "a global random state"}
    if not may_read_clock:
        banned |= {"time": "the clock", "datetime": "the clock"}
    words = _docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                if node.module == "os" and {"environ", "getenv"} & set(names):
                    told.append(f"line {node.lineno}: reads the environment")
                names = [node.module or ""]
            for name in names:
                if name.split(".")[0] in banned:
                    what = banned[name.split(".")[0]]
                    told.append(f"line {node.lineno}: imports {name}, {what}")
        elif isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            if text in ("os.environ", "os.getenv"):
                told.append(f"line {node.lineno}: reads the environment")
            parts = text.split(".")
            if parts[:2] in (["np", "random"], ["numpy", "random"]):
                if len(parts) == 3 and parts[2] not in SEEDED:
                    told.append(f"line {node.lineno}: {text} is a global random state")
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called.endswith("default_rng") and not (node.args or node.keywords):
                told.append(f"line {node.lineno}: a random stream without a seed")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in words and FLAG.search(node.value):
                told.append(f"line {node.lineno}: names a flag: {node.value!r}")
    return told


def _docstrings(tree):
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, kinds) and node.body and isinstance(node.body[0], ast.Expr)
    }
