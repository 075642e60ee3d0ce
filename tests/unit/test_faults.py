"""`tests/faults.toml` knows every reported fault, and what it says of each is true."""

from __future__ import annotations

import ast
import os
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = ROOT / "src" / "turnlog"
LIST: dict[str, Any] = tomllib.loads((ROOT / "tests" / "faults.toml").read_text())
NUMBERS: list[str] = LIST["numbers"]
FAULTS: dict[str, dict[str, Any]] = LIST["faults"]
PARTS: dict[str, str] = LIST["parts"]
NAMED = sorted({name for fault in FAULTS.values() for name in fault.get("tests", ())})


@pytest.fixture
def document() -> str:
    """The list of faults as users told of them; it lies beside the corpus."""
    shared = Path(os.environ.get("TURNLOG_SHARED") or ROOT.parent / "shared")
    path = shared / "design" / "field-faults.md"
    if not path.is_file():
        reason = f"no list of faults at {path} (TURNLOG_SHARED names the folder that holds it)"
        if os.environ.get("TURNLOG_REQUIRE_CORPUS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return path.read_text()


def test_the_list_is_that_of_the_document(document: str) -> None:
    """The numbers are those of the document, no more and no fewer, in its order."""
    assert re.findall(r"^- \*\*(R\d{3})\*\* ", document, re.MULTILINE) == NUMBERS


def test_every_number_has_its_entry() -> None:
    """Each number is listed once and has one entry, in the same order."""
    assert list(FAULTS) == NUMBERS == sorted(set(NUMBERS))


def test_an_entry_is_either_shown_or_to_come() -> None:
    """An entry names its tests, each once, or else the part that is to come and one line why."""
    for number, fault in FAULTS.items():
        if "tests" in fault:
            assert set(fault) == {"tests"}, number
            assert fault["tests"], number
            assert len(set(fault["tests"])) == len(fault["tests"]), number
        else:
            assert set(fault) == {"part", "why"}, number
            assert fault["why"].strip(), number
            assert "\n" not in fault["why"], number


def test_parts_are_still_to_come() -> None:
    """Every part is declared and used, and once its module is there its faults have tests."""
    used = {fault["part"]: number for number, fault in FAULTS.items() if "part" in fault}
    assert sorted(PARTS) == sorted(used)
    for part, module in PARTS.items():
        there = [path for path in (SOURCE / module, SOURCE / f"{module}.py") if path.exists()]
        assert not there, f"{part} is there: {used[part]} and its other faults want tests now"


@pytest.mark.parametrize("name", NAMED)
def test_a_named_test_exists(name: str) -> None:
    """Every test that the list names is one that pytest would collect."""
    assert is_test(name)


@pytest.mark.parametrize(
    "name",
    [
        "tests/unit/test_faults.py::test_no_such",
        "tests/unit/test_no_such.py::test_it",
        "tests/unit/test_faults.py::document",
        "tests/unit/test_faults.py::is_test",
        "tests/faults/scenes.py::test_it",
        "tests/conformance/test_jsonl.py::TestJsonl::test_no_such",
        "tests/conformance/test_jsonl.py::TestNone::test_nul_is_kept",
        "tests/conformance/test_jsonl.py::TestJsonl",
        "src/turnlog/testing/conformance/contents.py::ContentTests::test_nul_is_kept",
    ],
)
def test_a_test_that_is_not_there_is_noticed(name: str) -> None:
    """Neither a misspelt name nor one of something else passes for a test."""
    assert not is_test(name)


# -- finding tests without running anything -----------------------------------------------------


def is_test(name: str) -> bool:
    """Whether `FILE::[CLASS::]FUNCTION` is a test, inherited ones included."""
    file, _, rest = name.partition("::")
    path = ROOT / file
    if not re.fullmatch(r"tests/(?:\w+/)*test_\w+\.py", file) or not path.is_file():
        return False
    *classes, function = rest.split("::")
    if not function.startswith("test_"):
        return False
    if not classes:
        return function in functions(tree(path))
    found = {node.name: node for node in tree(path).body if isinstance(node, ast.ClassDef)}
    return classes[0] in found and function in inherited(found[classes[0]])


def functions(node: ast.Module | ast.ClassDef) -> set[str]:
    """The functions that stand right in a module or a class."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {child.name for child in node.body if isinstance(child, kinds)}


def inherited(node: ast.ClassDef) -> set[str]:
    """The functions of a class and of its bases, as far as turnlog's public suites hold them."""
    found = functions(node)
    for base in node.bases:
        if isinstance(base, ast.Name):
            for parent in suites().get(base.id, ()):
                found |= inherited(parent)
    return found


@cache
def suites() -> dict[str, list[ast.ClassDef]]:
    """The classes of turnlog's public suites, by name."""
    found: dict[str, list[ast.ClassDef]] = {}
    for node in _classes():
        found.setdefault(node.name, []).append(node)
    return found


def _classes() -> Iterator[ast.ClassDef]:
    for path in sorted((SOURCE / "testing").rglob("*.py")):
        yield from (node for node in tree(path).body if isinstance(node, ast.ClassDef))


@cache
def tree(path: Path) -> ast.Module:
    """A file's syntax."""
    return ast.parse(path.read_text())
