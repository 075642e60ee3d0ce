"""The house rules about imports, as tables, and what breaks them.

To give a module more freedom, change a table; the functions below know no module by name. Modules
are named without the leading `turnlog.`; the root package itself is `""`. A rule about a module
that does not exist yet holds nothing back.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "turnlog"

# Every edge, with the parts of other edges that it may know. Besides these an edge knows itself and
# the core. What is not listed here is core, and the core knows the core alone.
EDGES: Mapping[str, frozenset[str]] = {
    "": frozenset({"agent", "compaction.engine", "models", "stores", "sync"}),  # lends their names
    "__main__": frozenset({"cli"}),
    "adapters": frozenset(),
    "agent": frozenset(
        {
            "compaction.engine",
            "models",
            "models.failures",
            "models.forced_tools",
            "models.port",
            "stores.port",
        }
    ),
    "cli": frozenset(
        {
            "",
            "agent",
            "compaction.engine",
            "interop",
            "models",
            "server",
            "stores",
            "sync",
            "telemetry",
            "worker",
        }
    ),
    "compaction.asking": frozenset({"models.port"}),
    "compaction.engine": frozenset({"compaction.asking", "models", "models.port"}),
    "interop": frozenset(),
    "models": frozenset(),
    "server": frozenset({"stores.port"}),
    "stores": frozenset(),
    "sync": frozenset({"stores"}),
    "telemetry": frozenset({"", "stores.metrics"}),
    "testing": frozenset(
        {
            "models.port",
            "models.scripted",
            "stores.live",
            "stores.memory",
            "stores.port",
            "stores.searching",
            "stores.store",
        }
    ),
    "worker": frozenset({"agent", "stores.live", "stores.patience", "stores.port", "stores.store"}),
}

# Edges that know other edges only when a name is asked for or a command runs, not when loaded.
LAZY = frozenset({"", "cli"})

# The standard modules that the core may use: none of them reads or changes the world outside.
PURE = frozenset(
    {
        "__future__",
        "abc",
        "base64",
        "binascii",
        "bisect",
        "collections",
        "contextlib",
        "contextvars",
        "copy",
        "dataclasses",
        "difflib",
        "enum",
        "functools",
        "hashlib",
        "heapq",
        "itertools",
        "json",
        "math",
        "operator",
        "re",
        "reprlib",
        "string",
        "struct",
        "textwrap",
        "threading",  # locks: appends may come from any thread
        "types",
        "typing",
        "unicodedata",
        "warnings",
        "weakref",
    }
)

# Core module -> impure standard module -> why it may.
IMPURE: Mapping[str, Mapping[str, str]] = {
    "_ambient": {
        "logging": "where an observer that failed is reported",
        "os": "the process id, by which a session notices that the process was forked",
        "time": "the default clock",
        "uuid": "the default source of ids",
    },
}

# What only a thing that does I/O would call.
IMPURE_CALLS = frozenset({"breakpoint", "input", "open", "print"})

# Installed package -> the only edges that may import it. `core` stands for the core.
HOMES: Mapping[str, frozenset[str]] = {
    "anyio": frozenset(EDGES),
    "apsw": frozenset({"stores"}),
    "cyclopts": frozenset({"cli"}),
    "msgspec": frozenset(EDGES) | {"core"},
    "rich": frozenset({"cli"}),
    "zstandard": frozenset({"interop", "stores"}),
}

# Module or package -> the extra whose packages it may import. No other module may.
EXTRAS: Mapping[str, str] = {
    "agent.mcp": "mcp",
    "compaction.exact": "tokens",
    "models.anthropic": "anthropic",
    "models.local": "local",
    "models.openai": "openai",
    "server": "server",
    "stores.mysql": "mysql",
    "stores.postgres": "postgres",
    "telemetry": "otel",
    "testing": "testing",
}


@dataclass(frozen=True)
class Import:
    """One imported name: where it is in the source, and when the import happens."""

    target: str  # dotted and absolute
    line: int
    when: Literal["load", "later", "typing"]

    @property
    def top(self) -> str:
        """The package that the target belongs to."""
        return self.target.partition(".")[0]


@dataclass(frozen=True)
class Module:
    """A module of the package: its name, its source, and whether it is an `__init__.py`."""

    name: str
    source: str
    is_package: bool = False

    @property
    def path(self) -> str:
        """The file's path inside the package, with forward slashes."""
        stem = self.name.replace(".", "/")
        return (f"{stem}/__init__.py" if self.is_package else f"{stem}.py").removeprefix("/")


Tree = Mapping[str, Module]


def read_tree(package: Path = ROOT / "src" / PACKAGE) -> dict[str, Module]:
    """Every module of the package, by name."""
    tree: dict[str, Module] = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        tree[name] = Module(name, path.read_text(encoding="utf-8"), is_package)
    return tree


def tree_of(sources: Mapping[str, str]) -> dict[str, Module]:
    """A tree from sources by module name; one that has submodules is a package."""
    return {
        name: Module(name, source, any(other.startswith(f"{name}.") for other in sources))
        for name, source in sources.items()
    }


def edge_of(name: str) -> str:
    """The edge that a module belongs to, or `core`."""
    while name:
        if name in EDGES:
            return name
        name = name.rpartition(".")[0]
    return "core"


def extras_of(name: str) -> set[str]:
    """The extras whose packages a module may import."""
    return {extra for place, extra in EXTRAS.items() if _within(name, {place})}


def imports_of(module: Module) -> list[Import]:
    """All imports of a module, wherever they stand; `from a import b` counts as `a.b`."""
    return list(_walk(ast.parse(module.source), module, "load"))


def _walk(
    node: ast.AST, module: Module, when: Literal["load", "later", "typing"]
) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, when)
        elif isinstance(child, ast.ImportFrom):
            source = _absolute(child, module)
            for alias in child.names:
                yield Import(f"{source}.{alias.name}", child.lineno, when)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _walk(child, module, "later" if when == "load" else when)
        elif isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for part in child.body:
                yield from _walk(ast.Module([part], []), module, "typing")
            for part in child.orelse:
                yield from _walk(ast.Module([part], []), module, when)
        else:
            yield from _walk(child, module, when)


def _absolute(node: ast.ImportFrom, module: Module) -> str:
    if not node.level:
        return node.module or ""
    base = f"{PACKAGE}.{module.name}".rstrip(".").split(".")
    up = node.level - 1 if module.is_package else node.level
    return ".".join([*base[: len(base) - up], *([node.module] if node.module else [])])


def own(target: str, tree: Tree) -> str | None:
    """The module of the tree that an import's target names, or None for other packages."""
    if target.partition(".")[0] != PACKAGE:
        return None
    name = target.removeprefix(PACKAGE).removeprefix(".")
    return name if name in tree else name.rpartition(".")[0]


def wrong_directions(tree: Tree) -> list[str]:
    """Imports from the core of an edge, or from an edge of a neighbour that it may not know."""
    wrong: list[str] = []
    for module in tree.values():
        edge = edge_of(module.name) if module.name else ""
        for item in imports_of(module):
            name = own(item.target, tree)
            if name is None or not _is_edge(name):
                continue
            if not _may_know(edge, name):
                wrong.append(_say(module, item, f"{edge or 'the root'} may not know it"))
            elif edge in LAZY and item.when == "load" and not _within(name, {edge} - {""}):
                wrong.append(_say(module, item, "only within a function"))
    return wrong


def _is_edge(name: str) -> bool:
    return not name or edge_of(name) != "core"


def _may_know(edge: str, name: str) -> bool:
    return edge != "core" and _within(name, EDGES[edge] | {edge})


def _within(name: str, places: AbstractSet[str]) -> bool:
    return any(name == place or (place and name.startswith(f"{place}.")) for place in places)


def impurities(tree: Tree) -> list[str]:
    """What in the core could do I/O: impure standard modules, and calls of impure functions."""
    wrong: list[str] = []
    for module in tree.values():
        if _is_edge(module.name):
            continue
        allowed = PURE | set(IMPURE.get(module.name, {}))
        wrong.extend(
            _say(module, item, "the core does no I/O")
            for item in imports_of(module)
            if item.top in sys.stdlib_module_names and item.top not in allowed
        )
        wrong.extend(
            f"{PACKAGE}.{module.name}:{node.lineno} calls {node.func.id}(): the core does no I/O"
            for node in ast.walk(ast.parse(module.source))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in IMPURE_CALLS
        )
    return wrong


def idle_excuses(tree: Tree) -> list[str]:
    """Entries of IMPURE that a module which exists does not need."""
    return [
        f"{name} does not import {impure}"
        for name, excused in IMPURE.items()
        if name in tree
        for impure in excused
        if impure not in {item.top for item in imports_of(tree[name])}
    ]


def strangers(tree: Tree, extras: Mapping[str, AbstractSet[str]]) -> list[str]:
    """Imports of packages that a module may not use; `extras` gives those of each extra."""
    wrong: list[str] = []
    for module in tree.values():
        edge = edge_of(module.name) if module.name else ""
        lent = {name for extra in extras_of(module.name) for name in extras[extra]}
        for item in imports_of(module):
            if item.top == PACKAGE or item.top in sys.stdlib_module_names:
                continue
            if edge not in HOMES.get(item.top, frozenset()) and item.top not in lent:
                wrong.append(_say(module, item, "neither declared for this module nor standard"))
    return wrong


def cycle(tree: Tree) -> list[str]:
    """A chain of modules that import each other while loading, or nothing."""
    graph = {
        module.name: {
            name
            for item in imports_of(module)
            if item.when == "load" and (name := own(item.target, tree)) is not None
        }
        - {module.name}
        for module in tree.values()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [name or PACKAGE for name in error.args[1]]
    return []


def _say(module: Module, item: Import, why: str) -> str:
    return f"{PACKAGE}.{module.name}:{item.line} imports {item.target}: {why}"
