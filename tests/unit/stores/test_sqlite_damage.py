"""Pages and rows that went bad: what is read all the same, and what is reported."""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

import apsw
import pytest

from tests.unit.stores.sqlite_files import FILE, connected, lost, opened, page_of, write
from turnlog.errors import InvalidHeader, StoreError, UnsupportedVersion
from turnlog.events import AnyEvent
from turnlog.stores.loading import build_log
from turnlog.stores.sql.holes import Lost, holes
from turnlog.stores.sqlite import SqliteStore
from turnlog.stores.sqlite.salvage import scan
from turnlog.stores.sqlite.schema import SEQ_BITS
from turnlog.testing.conformance.samples import (
    answer,
    assert_same,
    chunk,
    conversation,
    event,
    header,
    notes,
    prompt,
)

pytestmark = pytest.mark.anyio

LONG = [event(i, {"n": i, "text": f"{i} {i * i} {i**3} " * 40}) for i in range(300)]
STREAM = [chunk(i, f"word {i} ") for i in range(40)]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("data", "x'00'"),
        ("data", "zeroblob(20)"),
        ("time", "time + 1"),
        ("type", "'acme/other'"),
        ("type", "CAST(x'fffe' AS TEXT)"),
        ("surface_op", "'append'"),
        ("source_event_seqs", "'[0]'"),
        ("ignorable", "1"),
        ("extra", "x'7b7d'"),
        ("sum", "sum + 1"),
    ],
)
async def test_a_row_that_was_changed_is_damage(tmp_path: Path, column: str, value: str) -> None:
    """A row of which any column was changed is reported with its seq, and the others are read."""
    await write(tmp_path, "a", notes(0, 9))
    with connected(tmp_path) as db:
        db.execute(f"UPDATE events SET {column} = {value} WHERE seq = 4")  # noqa: S608
    async with opened(tmp_path) as store:
        stored = await store.load("a")
        assert lost(stored) == [(4, 4)]
        assert_same(stored.events, [*notes(0, 4), *notes(5, 4)])
        assert_same(await store.read("a", 3, 6), [*notes(3, 1), *notes(5, 1)])
        assert_same(await store.read_seqs("a", [3, 4, 5]), [*notes(3, 1), *notes(5, 1)])
        assert await store.next_seq("a") == 9


@pytest.mark.parametrize("gone", ["seq = 4", "seq > 4", "seq >= 0"])
async def test_damage_that_was_met_is_listed(tmp_path: Path, gone: str) -> None:
    """A session in which a read met damage is listed as damaged from then on, by any handle."""
    await write(tmp_path, "a", notes(0, 9))
    await write(tmp_path, "b", notes(0, 9))
    with connected(tmp_path) as db:
        db.execute(f"DELETE FROM events WHERE session = 1 AND {gone}")  # noqa: S608
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        await store.load("a")
        await store.load("b")
        health = {info.id: info.health async for info in other.sessions()}
        assert health == {"a": "damaged", "b": "ok"}


async def test_rows_that_went_missing_at_the_end_are_damage(tmp_path: Path) -> None:
    """Events that were stored last and are gone are reported; nothing takes their seqs."""
    await write(tmp_path, "a", notes(0, 9))
    with connected(tmp_path) as db:
        db.execute("DELETE FROM events WHERE seq >= 6")
    async with opened(tmp_path) as store:
        stored = await store.load("a")
        assert lost(stored) == [(6, 8)]
        assert_same(stored.events, notes(0, 6))
        assert await store.next_seq("a") == 9


async def test_rows_that_went_missing_inside_are_damage_of_the_log(tmp_path: Path) -> None:
    """A log that is made of events with a gap has that gap as damage."""
    await write(tmp_path, "a", notes(0, 9))
    with connected(tmp_path) as db:
        db.execute("DELETE FROM events WHERE seq IN (3, 4)")
    async with opened(tmp_path) as store:
        log = build_log(await store.load("a"))
    assert [(d.first_seq, d.last_seq) for d in log.damage] == [(3, 4)]


@pytest.mark.parametrize("table", ["chunks", "streams"])
async def test_a_run_that_was_changed_is_damage(tmp_path: Path, table: str) -> None:
    """A packed run whose bytes were changed is one range, and what surrounds it is read."""
    told = "".join(f"word {i} " for i in range(40))
    running = [chunk(41 + i, "x") for i in range(5)]
    await write(tmp_path, "a", [*STREAM, answer(40, told, cited=range(40))], running)
    with connected(tmp_path) as db:
        db.execute(f"UPDATE {table} SET data = zeroblob(8)")  # noqa: S608 - one of two
    whole = {"chunks": (0, 39), "streams": (41, 45)}
    async with opened(tmp_path) as store:
        stored = await store.load("a")
        assert lost(stored) == [whole[table]]
        first, last = whole[table]
        left = [*STREAM, answer(40, told, cited=range(40)), *running]
        assert_same(stored.events, [e for e in left if not first <= e.seq <= last])


async def test_a_lost_message_takes_the_chunks_that_lean_on_it(tmp_path: Path) -> None:
    """Where the message that a run was packed with is gone, the run's range is damage too."""
    told = "".join(f"word {i} " for i in range(40))
    await write(tmp_path, "a", [*STREAM, answer(40, told, cited=range(40)), *notes(41, 1)])
    with connected(tmp_path) as db:
        assert db.execute("SELECT message FROM chunks").fetchall() == [(40,)]
        db.execute("DELETE FROM events WHERE seq = 40")
    async with opened(tmp_path) as store:
        stored = await store.load("a")
        assert_same(stored.events, notes(41, 1))
        log = build_log(stored)
        assert log.is_lost(0)
        assert log.is_lost(39)
        assert log.is_lost(40)
        assert "event 40" in stored.damage[0].reason


async def test_a_lost_blob_takes_the_event_that_holds_it(tmp_path: Path) -> None:
    """An event whose long string is gone is damage, by seq."""
    await write(tmp_path, "a", [*notes(0, 1), event(1, "x" * 50_000), *notes(2, 1)])
    with connected(tmp_path) as db:
        db.execute("DELETE FROM blobs")
    async with opened(tmp_path) as store:
        stored = await store.load("a")
        assert lost(stored) == [(1, 1)]
        assert "blob" in stored.damage[0].reason


@pytest.mark.parametrize("noise", [b"\x00" * 4096, b"\xff" * 4096])
async def test_a_bad_page_is_a_range(tmp_path: Path, noise: bytes) -> None:
    """A page of events that is noise is a range; the events of all other pages are there."""
    await write(tmp_path, "a", LONG)
    await write(tmp_path, "b", notes(0, 3))
    page, ids = page_of(tmp_path, "events", 1 << SEQ_BITS | 150)
    seqs = [one & ((1 << SEQ_BITS) - 1) for one in ids]
    with (tmp_path / FILE).open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(noise)
    async with opened(tmp_path) as store:
        stored = await store.load("a")
        assert lost(stored) == [(seqs[0], seqs[-1])]
        assert len(seqs) > 1
        assert_same(stored.events, [e for e in LONG if e.seq not in seqs])
        assert_same(await store.read("a", seqs[0] - 1, seqs[-1] + 1), [LONG[seqs[0] - 1]])
        assert_same(await store.read_seqs("a", [0, 150, 299]), [LONG[0], LONG[299]])
        assert_same((await store.load("b")).events, notes(0, 3))
        assert {info.id async for info in store.sessions()} == {"a", "b"}


async def test_a_file_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    """Of a file without its last pages the rest is read, and the log says what lacks."""
    await write(tmp_path, "a", LONG)
    page, ids = page_of(tmp_path, "events", 1 << SEQ_BITS | 150)
    seq = ids[0] & ((1 << SEQ_BITS) - 1)
    with (tmp_path / FILE).open("r+b") as file:
        file.truncate((page - 1) * 4096)
    async with opened(tmp_path) as store:
        stored = await store.load("a")
        assert_same(stored.events, LONG[:seq])
        assert lost(stored) == [(seq, len(LONG) - 1)]
        assert [info.id async for info in store.sessions()] == ["a"]
        with pytest.raises(StoreError, match="can only be read: it is damaged"):
            await store.create(header("b"))


async def test_an_index_that_went_bad_hides_no_session(tmp_path: Path) -> None:
    """When the pages of the indexes are noise, sessions are found and listed all the same."""
    for session_id in "abc":
        await write(tmp_path, session_id, notes(0, 2))
    with connected(tmp_path) as db:
        query = "SELECT rootpage FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'sessions'"
        pages = [page for (page,) in db.execute(query).fetchall()]
    with (tmp_path / FILE).open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * 4096)
            file.write(b"\xff" * 4096)
    async with opened(tmp_path) as store:
        assert [info.id async for info in store.sessions()] == ["a", "b", "c"]
        for session_id in "abc":
            assert_same((await store.load(session_id)).events, notes(0, 2))


async def test_a_header_that_was_changed_is_refused(tmp_path: Path) -> None:
    """A header that is JSON but not what was written is not taken for the session's."""
    await write(tmp_path, "a", notes(0, 1))
    with connected(tmp_path) as db:
        db.execute("UPDATE sessions SET header = CAST(replace(header, '17000', '16000') AS BLOB)")
    async with opened(tmp_path) as store:
        with pytest.raises(InvalidHeader, match="sum"):
            await store.load("a")
        (info,) = [info async for info in store.sessions()]
        assert (info.id, info.health) == ("a", "unreadable")


async def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    """Neither a text file nor another program's database is taken for a store, or changed."""
    path = tmp_path / FILE
    path.write_text("Dear diary, " * 1000)
    with pytest.raises(StoreError, match="no SQLite database"):
        async with opened(tmp_path):
            pass
    path.unlink()
    with connected(tmp_path) as db:
        db.execute("CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="no store of turnlog's"):
        async with opened(tmp_path):
            pass
    assert path.read_bytes() == before


async def test_a_fork_has_the_damage_of_its_parent(tmp_path: Path) -> None:
    """What was lost of the shared part is damage in the child as in the parent."""
    events = conversation()
    await write(tmp_path, "a", events)
    async with opened(tmp_path) as store:
        made = header("b", parent_session="a", seed_length=8)
        assert await store.fork(made, "a", 8)
    with connected(tmp_path) as db:
        db.execute("UPDATE events SET time = 0 WHERE seq IN (2, 9)")
    async with opened(tmp_path) as store:
        assert lost(await store.load("a")) == [(2, 2), (9, 9)]
        assert lost(await store.load("b")) == [(2, 2)]


@pytest.mark.parametrize("row", [20, 280])
async def test_a_page_in_a_wrong_place_hides_no_other(tmp_path: Path, row: int) -> None:
    """Where one page of events holds a copy of another, its events are lost, and no others."""
    await write(tmp_path, "a", LONG)
    await write(tmp_path, "b", [event(i, LONG[i].data) for i in range(100)])
    lies, ids = page_of(tmp_path, "events", 1 << SEQ_BITS | 150)
    seqs = [one & ((1 << SEQ_BITS) - 1) for one in ids]
    others = (1 << SEQ_BITS | row, 2 << SEQ_BITS | 50)
    for source in [page_of(tmp_path, "events", one)[0] for one in others]:
        with (tmp_path / FILE).open("r+b") as file:
            file.seek((source - 1) * 4096)
            page = file.read(4096)
            file.seek((lies - 1) * 4096)
            file.write(page)
        async with opened(tmp_path) as store:
            stored = await store.load("a")
            assert_same(stored.events, [e for e in LONG if e.seq not in seqs])
            assert_same(await store.read("a", 0), stored.events)
            assert build_log(stored).is_lost(150)


async def test_noise_is_never_taken_for_events(tmp_path: Path) -> None:
    """Whatever bytes of a file are changed: what is read was written, and what lacks is told."""
    written = {"a": LONG, "b": conversation(), "c": [*STREAM, answer(40, "x", cited=range(40))]}
    for session_id, events in written.items():
        await write(tmp_path, session_id, events)
    good = (tmp_path / FILE).read_bytes()
    told: list[str] = []
    for seed in range(40):
        chance = Random(seed)  # noqa: S311 - to be the same each time
        bad = bytearray(good)
        for _ in range(chance.choice([1, 4, 40])):
            bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
        (tmp_path / FILE).write_bytes(bad)
        with suppress(StoreError, InvalidHeader, UnsupportedVersion):  # not even that is left
            async with opened(tmp_path) as store:
                for session_id, events in written.items():
                    await _is_told(store, session_id, events)
                    told.append(session_id)
    assert len(told) > 60


async def _is_told(store: SqliteStore, session_id: str, events: Sequence[AnyEvent]) -> None:
    stored = await store.load(session_id)
    seqs = {event.seq for event in stored.events}
    assert_same(stored.events, [event for event in events if event.seq in seqs])
    log = build_log(stored)
    assert all(log.is_lost(seq) or seq in seqs for seq in range(log.next_seq))


# -- the pieces --------------------------------------------------------------------------------


class BadPages:
    """A connection to a table of ids, some of whose pages cannot be read."""

    def __init__(self, ids: range, bad: Container[int]) -> None:
        self.ids = ids
        self.bad = bad
        self.asked = 0

    def execute(self, query: str, bounds: tuple[int, int]) -> BadPages:
        """The rows between two bounds."""
        self.asked += 1
        self._first = query.endswith("LIMIT 1")
        self._between = range(max(bounds[0], self.ids[0]), min(bounds[1], self.ids[-1]) + 1)
        return self

    def __iter__(self) -> BadPages:
        self._rows = iter(self._between)
        return self

    def __next__(self) -> tuple[int]:
        one = next(self._rows)
        if one in self.bad:
            raise apsw.CorruptError("bad page")
        return (one,)

    def fetchall(self) -> list[tuple[int]]:
        """The rows, or the first one."""
        rows = iter(self)
        return [next(rows)] if self._first and self._between else list(rows)


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        ([*range(10, 20)], [(10, 19)]),
        ([0, 1, 2, 3, 4, 7], [(0, 4), (7, 7)]),
        ([*range(90, 100)], [(90, 99)]),
        ([*range(100)], [(0, 99)]),
        ([*range(10, 20), *range(22, 30)], [(10, 19), (22, 29)]),
    ],
)
def test_a_scan_goes_on_behind_what_cannot_be_read(
    bad: list[int], expected: list[tuple[int, int]]
) -> None:
    """Every row on a readable page is given, and each stretch without is told once."""
    found: list[Lost] = []
    rows = list(scan(BadPages(range(100), bad), "SELECT", 0, 99, found))  # pyright: ignore[reportArgumentType]
    assert [one for (one,) in rows] == [one for one in range(100) if one not in bad]
    assert [(one.first, one.last) for one in found] == expected


def test_a_scan_leaps_over_a_large_stretch() -> None:
    """A stretch of a million ids takes some thousand looks, and its end is found exactly."""
    pages = BadPages(range(2_000_000), range(10, 1_000_000))
    found: list[Lost] = []
    rows = scan(pages, "SELECT", 0, 1_000_009, found)  # pyright: ignore[reportArgumentType]
    assert [one for (one,) in rows] == [*range(10), *range(1_000_000, 1_000_010)]
    assert [(one.first, one.last) for one in found] == [(10, 999_999)]
    assert pages.asked < 10_000


def test_holes_are_told_apart() -> None:
    """A hole has the reasons of what was lost in it; a gap that nothing explains is an import's."""
    events = [prompt(seq, "x") for seq in (0, 1, 5, 6, 9)]
    found = holes(events, 12, [Lost(2, 2, "one"), Lost(3, 3, "one"), Lost(4, 4, "two")], place="p")
    assert [(d.first_seq, d.last_seq, d.reason) for d in found] == [
        (2, 3, "one"),
        (4, 4, "two"),
        (10, 11, "records are missing"),
    ]
    assert {d.place for d in found} == {"p"}
