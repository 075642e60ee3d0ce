"""Files that end too early, or in nothing: the WAL at every byte, the file at every page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.small_disk import small_disk
from tests.unit.stores.sqlite_files import FILE, opened, write
from turnlog.errors import StoreError, TurnlogError, WriteFailed
from turnlog.events import AnyEvent
from turnlog.stores.loading import build_log
from turnlog.stores.port import Batch
from turnlog.testing.conformance.base import commit
from turnlog.testing.conformance.samples import (
    FIRST,
    answer,
    assert_same,
    chunk,
    conversation,
    event,
    header,
    notes,
)

pytestmark = pytest.mark.anyio
LONG = pytest.mark.long
WAL = f"{FILE}-wal"
PAGE = 4096
TAIL = 4096


async def in_wal(folder: Path, batches: Sequence[Sequence[AnyEvent]]) -> tuple[bytes, bytes]:
    """The bytes of a file and of its WAL, as a crash leaves them after these commits."""
    await write(folder, "a", *batches[:1])
    async with opened(folder) as store:
        claim = await store.claim("a", FIRST)
        for batch in batches[1:]:
            await commit(store, claim, batch)
        return (folder / FILE).read_bytes(), (folder / WAL).read_bytes()


def put(folder: Path, content: bytes) -> None:
    """Make a file of this content, and nothing beside it."""
    for name in (FILE, WAL, f"{FILE}-shm"):
        (folder / name).unlink(missing_ok=True)
    (folder / FILE).write_bytes(content)


async def prefix(folder: Path, file: bytes, wal: bytes, events: Sequence[AnyEvent]) -> int:
    """How many events a file with that WAL holds; the next write after them is safe."""
    put(folder, file)
    (folder / WAL).write_bytes(wal)
    async with opened(folder) as store:
        stored = await store.load("a")
        count = len(stored.events)
        assert list(stored.damage) == []
        assert_same(stored.events, events[:count])
        await commit(store, await store.claim("a", FIRST), notes(count, 1, "on"))
    async with opened(folder) as store:
        stored = await store.load("a")
        assert list(stored.damage) == []
        assert_same(stored.events, [*events[:count], *notes(count, 1, "on")])
    return count


@pytest.mark.parametrize("step", [61, pytest.param(1, marks=LONG)])
async def test_a_wal_cut_anywhere_in_its_tail_ends_with_a_commit(tmp_path: Path, step: int) -> None:
    """Cut at each byte of its last 4 kB, or overwritten from there on: whole commits are left."""
    batches = [notes(i * 3, 3) for i in range(8)]
    events = [one for batch in batches for one in batch]
    file, wal = await in_wal(tmp_path / "written", batches)
    work = tmp_path / "cut"
    work.mkdir()
    assert await prefix(work, file, wal, events) == len(events)
    start = len(wal) - TAIL
    for at in range(start, len(wal), step):
        assert await prefix(work, file, wal[:at], events) == len(events) - 3
    frames = range(len(wal), start, -(PAGE + 24))
    for at in (*range(start, len(wal), 307), *(frame - 1 for frame in frames)):
        for tail in (b"\0" * (len(wal) - at), b"\xa5" * (len(wal) - at)):
            assert await prefix(work, file, wal[:at] + tail, events) == len(events) - 3


async def test_nul_and_noise_behind_the_end_change_nothing(tmp_path: Path) -> None:
    """What a file system leaves behind the end of the WAL, or of the file, is not read."""
    batches = [notes(i * 3, 3) for i in range(3)]
    events = [one for batch in batches for one in batch]
    file, wal = await in_wal(tmp_path / "written", batches)
    work = tmp_path / "cut"
    work.mkdir()
    for tail in (b"\0", b"\0" * PAGE, b"\0" * 100_000, b"\xff" * 5_000, wal[32:9_000]):
        assert await prefix(work, file, wal + tail, events) == len(events)
        assert await prefix(work, file + tail, wal, events) == len(events)


WRITTEN = {
    "a": [event(i, {"n": i, "text": f"{i} {i * i} {i**3} " * 40}) for i in range(120)],
    "b": conversation(),
    "c": [*[chunk(i, f"w {i} ") for i in range(40)], answer(40, "x", cited=range(40))],
}


async def told(folder: Path) -> int:
    """How many of the sessions can be read; what lacks in those is told, and none is invented."""
    found = 0
    try:
        async with opened(folder) as store:
            for session_id, events in WRITTEN.items():
                try:
                    stored = await store.load(session_id)
                except TurnlogError:
                    continue
                found += 1
                there = {one.seq for one in stored.events}
                assert_same(stored.events, [one for one in events if one.seq in there])
                log = build_log(stored)
                assert log.next_seq == len(events)
                assert all(log.is_lost(seq) or seq in there for seq in range(len(events)))
    except StoreError:
        return 0
    return found


async def test_a_file_cut_at_every_page_tells_what_lacks(tmp_path: Path) -> None:
    """Nothing is read that was not written, and nothing lacks in silence."""
    for session_id, events in WRITTEN.items():
        await write(tmp_path, session_id, events)
    whole = (tmp_path / FILE).read_bytes()
    found: list[int] = []
    cuts = [*range(PAGE, len(whole), PAGE), *range(len(whole) - PAGE, len(whole), 509)]
    for cut in cuts:
        for tail in (b"", b"\0" * (len(whole) - cut)):
            put(tmp_path, whole[:cut] + tail)
            found.append(await told(tmp_path))
    assert max(found) == 3
    assert sum(found) > len(found)


@pytest.mark.parametrize("noise", [b"\0", b"\xff", b"\xa5"])
async def test_every_page_may_be_garbled(tmp_path: Path, noise: bytes) -> None:
    """Whichever page is noise, what is on the others is read and what lacks is told."""
    for session_id, events in WRITTEN.items():
        await write(tmp_path, session_id, events)
    whole = (tmp_path / FILE).read_bytes()
    found: list[int] = []
    for at in range(0, len(whole), PAGE):
        put(tmp_path, whole[:at] + noise * PAGE + whole[at + PAGE :])
        found.append(await told(tmp_path))
    assert found[0] == 0  # the page that says what the file is
    assert found.count(3) > len(found) // 2


# -- disks that are full -----------------------------------------------------------------------


async def test_a_disk_that_is_full_loses_nothing() -> None:
    """On a small file system: flushes fail by name once it is full, and succeed with room again."""
    with small_disk(1) as disk:
        folder = disk.folder
        async with opened(folder) as store:
            await store.create(header("a"))
            claim = await store.claim("a", FIRST)
            (folder / "ballast").write_bytes(b"x" * 100_000)
            seq, error = 0, None
            while error is None:
                large = [event(seq, os.urandom(9_000).hex())]
                (error,) = await store.commit([Batch(claim, large)])
                seq += error is None
            assert type(error) is WriteFailed
            assert "the disk is full" in str(error)
            assert seq > 10
            assert len((await store.load("a")).events) == seq
            (folder / "ballast").unlink()
            await commit(store, claim, notes(seq, 1))
        async with opened(folder) as store:
            stored = await store.load("a")
            assert list(stored.damage) == []
            assert len(stored.events) == seq + 1
