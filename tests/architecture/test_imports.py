"""An import only ever points from the edges to the core."""

from __future__ import annotations

import re
import tomllib
from typing import cast

import pytest

from tests.architecture import rules

TREE = rules.read_tree()

# Distributions whose import name differs from their own.
_IMPORT_NAMES = {"opentelemetry-api": "opentelemetry"}


def _declared() -> dict[str, set[str]]:
    """The import names that pyproject.toml declares, by extra; those of the package under `""`."""
    project = tomllib.loads((rules.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {"": project["dependencies"], **project["optional-dependencies"]}
    return {
        extra: {
            _IMPORT_NAMES.get(name, name)
            for requirement in cast("list[str]", requirements)
            if (name := re.split(r"[^A-Za-z0-9_.-]", requirement)[0]) != rules.PACKAGE
        }
        for extra, requirements in wanted.items()
    }


def test_there_is_a_package_to_judge() -> None:
    """The rules are held against modules that exist."""
    assert len(TREE) > 1


def test_imports_point_to_the_core() -> None:
    """The core knows no edge, and an edge knows no neighbour but for what the table grants it."""
    assert rules.wrong_directions(TREE) == []


def test_the_core_does_no_io() -> None:
    """No module of the core imports or calls what could read or change the world outside."""
    assert rules.impurities(TREE) == []


def test_every_excuse_is_needed() -> None:
    """A module that may do a kind of I/O by exception does it."""
    assert rules.idle_excuses(TREE) == []


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    """No chain of imports that happen at loading comes back to where it began."""
    assert rules.cycle(TREE) == []


def test_installed_packages_stay_in_their_place() -> None:
    """A module imports only standard modules, declared dependencies, and those of its own extra."""
    assert rules.strangers(TREE, _declared()) == []


def test_the_tables_name_every_dependency() -> None:
    """Each dependency of the package has a home, and each extra that is granted exists."""
    declared = _declared()
    assert declared[""] == set(rules.HOMES)
    assert set(rules.EXTRAS.values()) <= set(declared)


_EXTRAS = {extra: {extra} for extra in rules.EXTRAS.values()}


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("log", "import turnlog.stores.jsonl"),
        ("log", "from turnlog.stores import jsonl"),
        ("log", "from turnlog import stores"),
        ("log", "from .stores.jsonl import JsonlStore"),
        ("log", "import turnlog"),
        ("log", "def late():\n    from turnlog.stores import jsonl"),
        ("log", "if TYPE_CHECKING:\n    from turnlog.stores.jsonl import JsonlStore"),
        ("views.messages", "from ..stores import jsonl"),
        ("models.openai", "from turnlog.stores import jsonl"),
        ("agent.loop", "from turnlog.stores.jsonl import JsonlStore"),
        ("cli.show", "from turnlog.stores import jsonl"),
        ("cli.show", "class A:\n    from turnlog.stores import jsonl"),
        ("", "from turnlog.stores import open_store"),
    ],
)
def test_a_wrong_direction_is_noticed(name: str, source: str) -> None:
    """An import that the table does not grant is found, however it is written."""
    others = {"": "", "stores": "", "stores.jsonl": "", "models.openai": "", "views": ""}
    assert len(rules.wrong_directions(rules.tree_of({**others, name: source}))) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("stores.jsonl", "from turnlog.log import SessionLog"),
        ("stores.jsonl", "from turnlog.stores import port"),
        ("agent.loop", "from turnlog.models.port import Model"),
        ("cli.show", "from turnlog.cli import common"),
        ("cli.show", "def show():\n    from turnlog.stores import open_store"),
        ("", "from turnlog.log import SessionLog"),
        ("", "def __getattr__(name):\n    from turnlog.stores import open_store"),
        ("log", "import storage"),
    ],
)
def test_a_right_direction_is_left_alone(name: str, source: str) -> None:
    """An import that the table grants is not complained about."""
    others = {"": "", "log": "", "stores": "", "stores.port": "", "models.port": "", "cli": ""}
    assert rules.wrong_directions(rules.tree_of({"cli.common": "", **others, name: source})) == []


@pytest.mark.parametrize(
    "source",
    [
        "import os.path",
        "from pathlib import Path",
        "def now():\n    import time",
        "text = open('f').read()",
        "print('x')",
    ],
)
def test_io_in_the_core_is_noticed(source: str) -> None:
    """I/O is found in a module of the core, and is no concern in an edge."""
    assert len(rules.impurities(rules.tree_of({"log": source}))) == 1
    assert rules.impurities(rules.tree_of({"stores.jsonl": source})) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("log", "import anyio"),
        ("stores.jsonl", "import rich.console"),
        ("stores.jsonl", "import sqlite"),
        ("models.local", "import requests"),
        ("", "import zstandard"),
    ],
)
def test_a_package_out_of_place_is_noticed(name: str, source: str) -> None:
    """An undeclared package is found, and so is one that belongs to other modules."""
    assert len(rules.strangers(rules.tree_of({name: source}), _EXTRAS)) == 1


def test_a_circle_is_noticed() -> None:
    """Two modules that load each other are found; a type-checking import closes no circle."""
    back = "from turnlog import a"
    assert set(rules.cycle(rules.tree_of({"a": "import turnlog.b", "b": back}))) == {"a", "b"}
    typed = f"if TYPE_CHECKING:\n    {back}"
    assert rules.cycle(rules.tree_of({"a": "import turnlog.b", "b": typed})) == []
