"""What the README and the pages of docs/ show is run: Python blocks, and turnlog commands.

The `python` blocks of a page run one after the other, in one namespace and a folder of their own,
which holds a copy of examples/. In a `console` block each line `$ turnlog …` is run against a store
of the page's own and must succeed; the lines below it are its output, in which `…` stands for
anything. A block that is not to be run is of another kind (`py`, `sh`, `text`).
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.architecture.rules import ROOT
from tests.e2e.command import turnlog
from turnlog.events import EVENT_TYPES, unregister_event_type

PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: its kind, the line before its first, its text."""

    kind: str
    line: int
    text: str


def blocks(page: str, *kinds: str) -> list[Block]:
    """The blocks of a page that are of these kinds."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = [
        Block(match[1], text.count("\n", 0, match.start(2)), match[2])
        for match in FENCE.finditer(text)
    ]
    return [block for block in found if block.kind in kinds]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder but for examples/, as the working folder, with a store of its own."""
    known = set(EVENT_TYPES)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TURNLOG_STORE", f"jsonl:{tmp_path / 'store'}")
    monkeypatch.setenv("COLUMNS", "80")
    yield tmp_path
    for name in set(EVENT_TYPES) - known:
        unregister_event_type(name)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")])
@pytest.mark.usefixtures("folder")
def test_python(page: str) -> None:
    """The Python of a page runs, and what it asserts is so."""
    namespace: dict[str, object] = {"__name__": "__page__"}
    for block in blocks(page, "python"):
        source = "\n" * block.line + block.text
        exec(compile(source, ROOT / page, "exec"), namespace)  # noqa: S102 - our own pages


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")])
@pytest.mark.usefixtures("folder")
def test_commands(page: str) -> None:
    """The commands of a page succeed and print what the page says."""
    for block in blocks(page, "console"):
        for command, expected in commands(block.text):
            result = turnlog(*shlex.split(command, comments=True))
            assert result.status == 0, (command, result.err)
            printed = re.sub(r"[ \t]+$", "", result.out, flags=re.MULTILINE).strip("\n")
            assert matches(expected, printed), f"$ turnlog {command}\n{printed}"


def commands(text: str) -> list[tuple[str, str]]:
    """The turnlog commands of a block, each with what is below it; others are not run."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    split = [part.partition("\n") for part in parts]
    return [
        (line.removeprefix("turnlog "), below.strip("\n"))
        for line, _, below in split
        if line.startswith("turnlog ")
    ]


def matches(expected: str, printed: str) -> bool:
    """Whether that was printed; nothing expected is anything, `…` is any text."""
    pattern = ".*".join(map(re.escape, expected.split("…")))
    return not expected or re.fullmatch(pattern, printed, re.DOTALL) is not None


def test_wrong_output_is_noticed() -> None:
    """What differs from the page does not pass, with an ellipsis or without."""
    assert matches("a … c", "a b\nb c")
    assert not matches("a … c", "a b")
    assert not matches("a", "a b")


def test_links_lead_somewhere() -> None:
    """Each relative link of a page names a file, and a heading that it has."""
    wrong: list[str] = []
    for page in PAGES:
        text = FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
        for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
            name, _, heading = target.partition("#")
            path = (ROOT / page).parent / name if name else ROOT / page
            if not path.exists() or (heading and heading not in headings(path)):
                wrong.append(f"{page}: {target}")
    assert wrong == []


def headings(path: Path) -> set[str]:
    """The anchors of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
