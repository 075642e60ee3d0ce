"""Long sessions in an SQLite file: what opening, listing and repair read, and the room it takes."""

from __future__ import annotations

import os
import tracemalloc
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.stores.medium import Disk
from tests.unit.stores.sqlite_files import connected
from turnlog import Session, open_store
from turnlog.stores.store import Store

CHUNKS = 400
"""In each answer."""


@pytest.fixture
def disk() -> Iterator[Disk]:
    """What every SQLite file lies on."""
    found = Disk()
    yield found
    found.unregister()


def url_of(folder: Path, name: str = "sessions") -> str:
    """The URL of a file."""
    return f"sqlite:{folder / name}.db"


def talk(session: Session, turn: int, *, ended: bool = True) -> None:
    """A turn with a streamed answer; or the beginning of one."""
    session.append("turn/start", {"turn": turn})
    session.append("step/start", {"turn": turn, "step": 1})
    session.add_user(f"question {turn}")
    said = [f"{turn * i * i % 9973} " for i in range(CHUNKS)]
    for text in said:
        piece = {"type": "text-delta", "index": 0, "text": text}
        session.append("assistant/chunk", {"turn": turn, "step": 1, "chunk": piece})
    if ended:
        seqs = range(session.next_seq - CHUNKS, session.next_seq)
        session.add_assistant("".join(said), turn=turn, step=1, source_event_seqs=seqs)
        session.append("step/end", {"turn": turn, "step": 1})
        session.append("turn/end", {"turn": turn, "reason": {"kind": "completed"}})


async def made(url: str, turns: int, *, interrupted: bool = False) -> None:
    """A session "s" of so many turns, half of which were compacted; its last one may be open."""
    async with open_store(url, durability="none") as store, store.session("s") as session:
        for turn in range(turns):
            talk(session, turn)
            if turn % 10 == 9:
                seqs = session.surface.seqs
                session.replace(seqs[0], seqs[-5], f"what was said before turn {turn}")
            if turn % 5 == 4:
                await session.flush()
        if interrupted:
            talk(session, turns, ended=False)
            await session.flush()
            path = Path(url.removeprefix("sqlite:"))
            for ending in ("", "-wal"):
                copy = path.with_name(f"killed.db{ending}")
                copy.write_bytes(path.with_name(path.name + ending).read_bytes())


async def reads_of(disk: Disk, url: str, act: Callable[[Store], Awaitable[object]]) -> int:
    """How many reads of the file something takes."""
    reads = 0

    def count(name: str, _file: str) -> None:
        nonlocal reads
        reads += name == "read"

    async with open_store(url) as store:
        disk.on_call = count
        await act(store)
        disk.on_call = lambda _name, _file: None
    return reads


async def memory_of(url: str, act: Callable[[Store], Awaitable[object]]) -> int:
    """How many bytes something takes at the most, of those that Python gives out."""
    async with open_store(url) as store:
        tracemalloc.start()
        try:
            await act(store)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


async def test_opening_costs_the_surface_whatever_the_log(tmp_path: Path, disk: Disk) -> None:
    """A log three times as long, nearly all of it chunks, is opened with the same few reads."""

    async def read(store: Store) -> None:
        session = await store.read("s")
        assert len(session.derive_messages()) < 25

    reads: list[int] = []
    for turns in (20, 60):
        await made(url_of(tmp_path, str(turns)), turns)
        reads.append(await reads_of(disk, url_of(tmp_path, str(turns)), read))
    assert reads[1] < 1.5 * reads[0]
    assert reads[1] < (tmp_path / "60.db").stat().st_size // 4096 // 2


async def test_opening_takes_the_memory_of_the_surface(tmp_path: Path) -> None:
    """A log six times as long, nearly all of it chunks, is opened in little more memory."""

    async def read(store: Store) -> None:
        session = await store.read("s")
        assert len(session.derive_messages()) < 25

    peaks: list[int] = []
    for turns in (20, 120):
        await made(url_of(tmp_path, str(turns)), turns)
        peaks.append(await memory_of(url_of(tmp_path, str(turns)), read))
    assert peaks[1] < 1.5 * peaks[0]


async def test_repair_takes_the_memory_of_the_last_turn(tmp_path: Path) -> None:
    """An interrupted session whose log is six times as long is repaired in little more memory."""

    async def repair(store: Store) -> None:
        async with store.session("s") as session:
            assert session.event_at(session.next_seq - 1).type == "turn/end"

    peaks: list[int] = []
    for turns in (20, 120):
        folder = tmp_path / str(turns)
        await made(url_of(folder), turns, interrupted=True)
        peaks.append(await memory_of(url_of(folder, "killed"), repair))
    assert peaks[1] < 2 * peaks[0]


async def test_a_listing_reads_a_line_of_each_session(tmp_path: Path, disk: Disk) -> None:
    """A listing of sixty sessions reads as much when one of them is three times as long."""

    async def look(store: Store) -> None:
        assert len([info async for info in store.sessions()]) == 61

    reads: list[int] = []
    for turns in (10, 30):
        url = url_of(tmp_path, str(turns))
        await made(url, turns)
        async with open_store(url, durability="none") as store:
            for number in range(60):
                async with store.session(f"s{number}") as session:
                    session.add_user(f"prompt {number}")
        reads.append(await reads_of(disk, url, look))
    assert reads[1] < 1.5 * reads[0]
    assert reads[1] < 61


async def test_a_line_that_is_redrawn_takes_little_more_than_its_last_state(
    tmp_path: Path,
) -> None:
    """Twenty thousand increments of one answer are packed: a few bytes each at the most."""
    url = url_of(tmp_path)
    bar = [f"\r{'#' * (i % 50)} {i / 200:.1f}%" for i in range(20_000)]
    async with open_store(url, durability="none") as store, store.session("s") as session:
        for i, text in enumerate(bar):
            piece = {"type": "text-delta", "index": 0, "text": text}
            session.append("assistant/chunk", {"turn": 1, "step": 1, "chunk": piece})
            if i % 1_000 == 999:
                await session.flush()
        session.add_assistant("".join(bar), turn=1, step=1, source_event_seqs=range(20_000))
    assert (tmp_path / "sessions.db").stat().st_size < len("".join(bar)) // 2


async def test_images_are_stored_once_whatever_the_forks(tmp_path: Path) -> None:
    """Twenty images in twenty forks, and sent again in each, take the room of one set."""
    url = url_of(tmp_path)
    images = [b64encode(os.urandom(30_000)).decode() for _ in range(20)]

    def show(session: Session) -> None:
        for image in images:
            block = {"type": "image", "mediaType": "image/png", "data": image}
            message = {
                "id": f"m{session.next_seq}",
                "role": "user",
                "content": [block],
                "source": {"kind": "user"},
            }
            session.append("user/message", message, surface_op="append")

    async with open_store(url, durability="none") as store:
        async with store.session("s") as session:
            show(session)
        sizes = [size_of(tmp_path)]
        for number in range(20):
            child = await store.fork("s", new_id=f"fork {number}")
            async with store.session(child) as session:
                show(session)
        sizes.append(size_of(tmp_path))
    assert sizes[1] < sizes[0] + len(images[0]) * 5


def size_of(folder: Path) -> int:
    """The bytes of the blobs in a file."""
    with connected(folder) as db:
        return db.execute("SELECT sum(length(data)) FROM blobs").fetchone()[0]


@pytest.mark.parametrize("damage", ["x'00'", "substr(data, 1, 40)", "(SELECT data FROM older)"])
async def test_a_wrong_or_stale_record_is_not_used(tmp_path: Path, damage: str) -> None:
    """Whatever stands in place of the opening record, the session is the same, and gets its own."""
    url = url_of(tmp_path)
    await made(url, 10)
    with connected(tmp_path) as db:
        db.execute("CREATE TABLE older AS SELECT * FROM records")
    async with open_store(url, durability="none") as store, store.session("s") as session:
        for turn in range(10, 20):
            talk(session, turn)
        session.replace(session.surface.seqs[0], session.surface.seqs[4], "what was said")
        expected = session.derive_messages()
    with connected(tmp_path) as db:
        db.execute(f"UPDATE records SET data = {damage}")  # noqa: S608
    async with open_store(url, durability="none") as store:
        assert (await store.read("s")).derive_messages() == expected
        async with store.session("s") as session:
            assert session.derive_messages() == expected
            for turn in range(20, 30):
                talk(session, turn)
            expected = session.derive_messages()
        found = await store.read("s")
        assert found.derive_messages() == expected
        assert found.first_held > 0
