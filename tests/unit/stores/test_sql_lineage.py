"""Whose rows hold which events of a fork, whatever the database."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from turnlog.events import AnyEvent
from turnlog.stores.sql.lineage import Lineage, Part, pages, stretches, wanted
from turnlog.stores.sql.steps import run, run_async
from turnlog.testing.conformance.samples import event

FAMILY: dict[str, tuple[str | None, int]] = {
    "root": (None, 0),
    "child": ("root", 10),
    "grandchild": ("child", 4),  # forked before the child's own first event
    "late": ("child", 15),
}


def parts_of(key: str, start: int, stop: int) -> list[Part[str]]:
    """The parts, asked of a family that answers at once."""
    return run(Lineage[str]().parts(key, start, stop), FAMILY.get)


def test_a_fork_reads_of_each_ancestor_what_is_its_own() -> None:
    """Parts follow on each other; an ancestor of which nothing is shared has none."""
    assert parts_of("late", 0, 20) == [
        Part("root", 0, 10),
        Part("child", 10, 15),
        Part("late", 15, 20),
    ]
    assert parts_of("grandchild", 0, 6) == [Part("root", 0, 4), Part("grandchild", 4, 6)]
    assert parts_of("late", 12, 14) == [Part("child", 12, 14)]
    assert parts_of("late", 5, 5) == []
    assert parts_of("nobody", 0, 3) == [Part("nobody", 0, 3)]


def test_a_family_is_asked_for_once() -> None:
    """What was learned of a session is not asked for again, awaited or not."""
    lineage: Lineage[str] = Lineage()
    asked: list[str] = []

    async def parent(key: str) -> tuple[str | None, int] | None:
        asked.append(key)
        return FAMILY.get(key)

    async def ask() -> None:
        for _ in range(2):
            assert len(await run_async(lineage.parts("late", 0, 20), parent)) == 3

    anyio.run(ask)
    assert asked == ["late", "child", "root"]
    assert lineage.knows("child")


def test_pages_go_on_behind_gaps() -> None:
    """A part is read page by page; where nothing is found, the answer says where to go on."""
    there = {seq: event(seq) for seq in (0, 1, 2, 90, 91, 100)}
    asked: list[tuple[int, int]] = []

    def page(question: tuple[Part[str], Part[str]]) -> tuple[Sequence[AnyEvent], int]:
        own, rest = question
        asked.append((own.start, own.stop))
        found = [there[seq] for seq in range(own.start, own.stop) if seq in there]
        after = min((seq for seq in there if seq >= rest.start), default=rest.stop)
        return found, own.stop if found else min(after, rest.stop)

    parts = [Part("a", 0, 95), Part("b", 95, 120)]
    assert [e.seq for e in run(pages(parts, 10), page)] == sorted(there)
    assert asked == [(0, 10), (10, 20), (90, 95), (95, 105), (105, 115)]


def test_what_lacks_is_read_in_stretches() -> None:
    """Seqs that no event has are joined where they follow on each other."""
    asked = wanted([9, 3, 4, 4, 5, -1, 7, 12], next_seq=10)
    assert asked == [3, 4, 5, 7, 9]
    assert list(stretches(asked, [event(5)], "a")) == [
        Part("a", 3, 5),
        Part("a", 7, 8),
        Part("a", 9, 10),
    ]
