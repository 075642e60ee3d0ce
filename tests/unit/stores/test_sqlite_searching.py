"""The index of an SQLite file: derived, filled when it is asked, and never trusted blindly."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.stores.sqlite_files import FILE, connected, opened, write
from tests.unit.stores.test_sqlite_store import as_nobody
from turnlog.stores.sqlite import SqliteStore, fulltext
from turnlog.stores.sqlite import searching as sqlite_searching
from turnlog.stores.sqlite.connection import Database
from turnlog.stores.sqlite.reading import Reader
from turnlog.stores.sqlite.searching import Searching
from turnlog.stores.store import Store
from turnlog.testing.conformance.base import commit
from turnlog.testing.conformance.samples import (
    FIRST,
    answer,
    conversation,
    event,
    notes,
    prompt,
)

pytestmark = pytest.mark.anyio
TALK = [prompt(0, "Why is the sky blue?"), answer(1, "A blue scattering, blue.")]


async def found(folder: Path, text: str, *, tools: bool = False) -> list[tuple[str, int]]:
    """Where a new handle finds a text, best first."""
    async with Store(SqliteStore(folder / FILE)) as store:
        return [(hit.session, hit.seq) for hit in await store.search(text, include_tools=tools)]


def indexed(folder: Path) -> Sequence[tuple[int, int]] | None:
    """How far each session is indexed; None where there is no index."""
    with connected(folder) as db:
        return sorted(fulltext.upto(db).items()) if fulltext.exists(db) else None


# -- when it is filled -------------------------------------------------------------------------


async def test_a_file_that_nobody_searches_has_no_index(tmp_path: Path) -> None:
    """Writing and giving back a session makes none; the first search does."""
    await write(tmp_path, "a", TALK)
    assert indexed(tmp_path) is None
    assert await found(tmp_path, "blue") == [("a", 1), ("a", 0)]
    assert indexed(tmp_path) == [(1, 2)]


async def test_a_step_of_indexing_is_bounded_by_bytes(tmp_path: Path) -> None:
    """Long messages are indexed a few at a time, so that others can write in between."""
    text = "word " * (sqlite_searching.STEP_BYTES // 10)
    await write(tmp_path, "a", [prompt(seq, f"{text} {seq}") for seq in range(40)])
    database = Database(tmp_path / FILE, "sqlite:", "turn")
    database.open()
    searching = Searching(database, Reader("sqlite:"), str)
    try:
        steps = [indexed(tmp_path)]
        while searching.fill():
            steps.append(indexed(tmp_path))
    finally:
        searching.close()
        database.close()
    assert len(steps) >= 5
    assert indexed(tmp_path) == [(1, 40)]


async def test_what_another_handle_has_indexed_meanwhile_is_not_indexed_twice(
    tmp_path: Path,
) -> None:
    """What was prepared for an index that has grown since is left out, and nothing is lost."""
    await write(tmp_path, "a", TALK)
    assert await found(tmp_path, "blue") == [("a", 1), ("a", 0)]
    stale = fulltext.prepare(1, TALK, 0, 2)
    async with opened(tmp_path) as store:
        claim = await store.claim("a", FIRST)
        await commit(store, claim, [prompt(2, "And the blue sea?")])
    with connected(tmp_path) as db:
        fulltext.add(db, [stale])
    assert {seq for _, seq in await found(tmp_path, "blue")} == {0, 1, 2}
    assert indexed(tmp_path) == [(1, 3)]


async def test_giving_a_session_back_keeps_the_index_up_to_date(tmp_path: Path) -> None:
    """Once the file was searched, what a session has new is indexed when it is given back."""
    await write(tmp_path, "a", TALK)
    await found(tmp_path, "blue")
    async with opened(tmp_path) as store:
        claim = await store.claim("a", FIRST)
        await commit(store, claim, [prompt(2, "And the sea?"), *notes(3, 4)])
        assert indexed(tmp_path) == [(1, 2)]
        await store.release(claim)
        assert indexed(tmp_path) == [(1, 7)]


async def test_another_handle_finds_what_an_owner_has_written(tmp_path: Path) -> None:
    """What is durable is found by whoever searches, while its owner goes on."""
    await write(tmp_path, "a", TALK)
    async with opened(tmp_path) as owner:
        claim = await owner.claim("a", FIRST)
        for seq in range(2, 5):
            await commit(owner, claim, [prompt(seq, f"word{seq}")])
            assert await found(tmp_path, f"word{seq}") == [("a", seq)]


async def test_a_long_log_is_indexed_in_steps(tmp_path: Path) -> None:
    """More messages than one step takes, in several sessions, among them events of all kinds."""
    many = sqlite_searching.STEP * 2 + 1
    for name in "ab":
        await write(tmp_path, name, [prompt(seq, f"word {seq}") for seq in range(many)])
    await write(tmp_path, "c", conversation())
    async with Store(SqliteStore(tmp_path / FILE)) as store:
        for name in "ab":
            hits = await store.search("word", session=name, limit=1000, skip=10)
            hits += await store.search("word", session=name, limit=10)
            assert len({hit.seq for hit in hits}) == 1000 + (many - 1000 if many < 1010 else 10)
        assert len(await store.search(f'"word {many - 1}"')) == 2
        assert len(await store.search("what")) == 1
    assert indexed(tmp_path) == [(1, many), (2, many), (3, 12)]


async def test_a_word_that_is_everywhere_is_ranked_among_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more messages than are ranked those of the newest sessions are, unless more are wanted."""
    monkeypatch.setattr(fulltext, "RANKED", 2)
    for name in "abcd":
        await write(tmp_path, name, [prompt(0, "word " * "dcba".index(name) + "word")])
    async with Store(SqliteStore(tmp_path / FILE)) as store:
        assert [hit.session for hit in await store.search("word", limit=1)] == ["c"]
        assert {hit.session for hit in await store.search("word")} == set("abcd")


# -- derived -----------------------------------------------------------------------------------


async def test_the_index_can_be_dropped(tmp_path: Path) -> None:
    """Without its tables a search makes them again, and finds the same."""
    await write(tmp_path, "a", TALK)
    await write(tmp_path, "b", conversation())
    before = [await found(tmp_path, text, tools=True) for text in ("blue", "readme", "what")]
    with connected(tmp_path) as db:
        fulltext.drop(db)
        assert not fulltext.exists(db)
    after = [await found(tmp_path, text, tools=True) for text in ("blue", "readme", "what")]
    assert after == before
    assert all(before)


async def test_an_index_of_another_version_is_replaced(tmp_path: Path) -> None:
    """An index that another turnlog made is dropped, not read."""
    await write(tmp_path, "a", TALK)
    with connected(tmp_path) as db:
        db.execute("CREATE TABLE search_upto_0 (session INTEGER PRIMARY KEY, seq INTEGER)")
        db.execute("CREATE VIRTUAL TABLE search_words_0 USING fts5(said, content='')")
    assert await found(tmp_path, "blue") == [("a", 1), ("a", 0)]
    with connected(tmp_path) as db:
        names = [n for (n,) in db.execute("SELECT name FROM sqlite_schema").fetchall()]
    assert [n for n in names if n.endswith("_0")] == []


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM search_words_1_data WHERE id > 1",
        "DELETE FROM search_words_1_data",
        "DROP TABLE search_words_1",
        "DROP TABLE search_shadows_1",
        "DELETE FROM search_words_1_docsize",
    ],
)
async def test_a_broken_index_is_made_again(tmp_path: Path, damage: str) -> None:
    """Whatever happened to the index, a search finds what is there."""
    await write(tmp_path, "a", TALK)
    await write(tmp_path, "b", [prompt(0, "no such colour"), answer(1, "red")])
    await found(tmp_path, "blue")
    with connected(tmp_path) as db:
        db.execute(damage)
    async with Store(SqliteStore(tmp_path / FILE)) as store:
        for text, expected in (("blue", {("a", 0), ("a", 1)}), ("colour", {("b", 0)})):
            hits = await store.search(text)
            assert {(hit.session, hit.seq) for hit in hits} == expected


async def test_an_index_that_says_more_than_the_log_is_not_believed(tmp_path: Path) -> None:
    """A hit whose message does not hold the words, or is not there, is not shown."""
    await write(tmp_path, "a", TALK)
    await found(tmp_path, "blue")
    with connected(tmp_path) as db:
        fulltext.add(db, [fulltext.prepare(7, [prompt(0, "blue")], 0, 1)])
        fulltext.add(db, [fulltext.prepare(1, [prompt(5, "blue")], 2, 2)])
    assert await found(tmp_path, "blue") == [("a", 1), ("a", 0)]


# -- without writing ---------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="no such modes there")
@pytest.mark.parametrize("searched", [False, True])
async def test_a_file_that_cannot_be_written_is_searched(
    anyio_backend_name: str, *, searched: bool
) -> None:
    """What the index lacks is looked up all the same, and the file stays what it is."""
    del anyio_backend_name
    with as_nobody() as folder:
        await write(folder, "a", TALK, [prompt(2, "green")])
        if searched:
            await found(folder, "blue")
        await write(folder, "b", [prompt(0, "blue and green"), *notes(1, 3)])
        (folder / FILE).chmod(0o444)
        folder.chmod(0o555)
        before = (folder / FILE).read_bytes()
        if os.getuid() == 0:
            os.seteuid(65534)
        async with Store(SqliteStore(folder / FILE)) as store:
            for _ in range(2):
                hits = await store.search("blue")
                assert {(h.session, h.seq) for h in hits} == {("a", 0), ("a", 1), ("b", 0)}
                assert len(await store.search("green", session="b")) == 1
        assert (folder / FILE).read_bytes() == before


# -- damage ------------------------------------------------------------------------------------


async def test_what_can_be_read_of_a_damaged_log_is_found(tmp_path: Path) -> None:
    """A bad row hides no other message, and a session without a header no other session."""
    await write(tmp_path, "a", [prompt(seq, f"word {seq}") for seq in range(5)])
    await write(tmp_path, "b", [prompt(0, "word")])
    await write(tmp_path, "c", [prompt(0, "word"), event(1, {}, type_name="x/y")])
    with connected(tmp_path) as db:
        db.execute("UPDATE events SET data = x'00' WHERE id = ?", (1 << 36 | 2,))
        db.execute("UPDATE sessions SET header = x'00' WHERE no = 2")
    expected = {("a", 0), ("a", 1), ("a", 3), ("a", 4), ("c", 0)}
    assert set(await found(tmp_path, "word")) == expected
    assert indexed(tmp_path) == [(1, 5), (2, 1), (3, 2)]


async def test_a_message_that_went_bad_since_is_left_out(tmp_path: Path) -> None:
    """A hit that can no longer be read is not shown, and the next ones are."""
    await write(tmp_path, "a", TALK)
    await found(tmp_path, "blue")
    with connected(tmp_path) as db:
        db.execute("UPDATE events SET data = x'00' WHERE id = ?", (1 << 36 | 1,))
    async with Store(SqliteStore(tmp_path / FILE)) as store:
        hits = await store.search("blue", limit=1)
        assert [(hit.session, hit.seq) for hit in hits] == [("a", 0)]
