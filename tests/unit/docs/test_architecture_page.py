"""docs/architecture.md names everything that there is."""

from __future__ import annotations

import re

from tests.architecture.rules import ROOT, read_tree

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
#: The words in backquotes, dotted ones by their parts too.
NAMED = {
    part
    for word in re.findall(r"`([\w.]+)`", PAGE)
    for part in (word, *word.split("."))
}  # fmt: skip


def test_every_module_is_named() -> None:
    """Each module and package of the source is named on the page."""
    modules = {name.rpartition(".")[2] for name in read_tree() if name}
    assert sorted(modules - NAMED) == []


def test_nothing_is_named_as_absent_that_is_there() -> None:
    """What the page says is not there yet is not."""
    absent = PAGE.partition("## Not there yet")[2]
    there = set(read_tree())
    assert sorted(there & set(re.findall(r"`([\w.]+)`", absent))) == []
