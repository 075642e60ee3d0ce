"""A disk that is full, or fails, at every single write and sync: whatever store lies on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from shutil import copytree

import pytest

from tests.store_urls import DURABLE, url_of
from tests.unit.stores.medium import KINDS, Medium, done, media
from turnlog import Prompt, Session, open_store
from turnlog.errors import StoreError, WriteFailed
from turnlog.events import AnyEvent
from turnlog.stores.live import StoredSession
from turnlog.stores.sqlite import connection
from turnlog.stores.store import Store
from turnlog.testing.conformance.samples import assert_same

NEVER = 1 << 60
MOVING = "sqlite-moving"
LONG = pytest.mark.long
SOME_KINDS = [
    kind if kind in ("full", "fsync") else pytest.param(kind, marks=LONG) for kind in KINDS
]


@pytest.fixture(params=[*DURABLE, pytest.param(MOVING, marks=LONG)])
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every store that keeps files, also an SQLite one that moves its WAL with each commit."""
    if request.param == MOVING:
        monkeypatch.setattr(connection, "_CHECKPOINT", 1)
        return "sqlite"
    return str(request.param)


@pytest.fixture
def medium(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Medium]:
    """What the store's files lie on."""
    found = media(name, monkeypatch)
    yield found
    done(found)


def begin(session: Session) -> None:
    """A turn begins, and streams."""
    session.append("turn/start", {"turn": 1})
    session.append("step/start", {"turn": 1, "step": 1})
    session.add_user("Go on, please. " * 20)
    for i in range(5):
        piece = {"type": "text-delta", "index": 0, "text": f"word {i} "}
        session.append("assistant/chunk", {"turn": 1, "step": 1, "chunk": piece})


def answer(session: Session) -> None:
    """The answer, and something large."""
    cited = [event.seq for event in session.events if event.type == "assistant/chunk"][-5:]
    text = "".join(f"word {i} " for i in range(5))
    session.add_assistant(text, turn=1, step=1, source_event_seqs=cited)
    large = f"{session.next_seq} 漢" * 9_000
    session.append("session/title", {"title": large, "messageSeqs": []})


def end(session: Session) -> None:
    """The turn ends."""
    session.append("step/end", {"turn": 1, "step": 1})
    session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})


TURN: Sequence[Callable[[Session], None]] = (begin, answer, end)


async def stored(url: str) -> list[AnyEvent]:
    """What a new handle reads, undamaged."""
    async with open_store(url) as store:
        found = await store.backend.load("s")
    assert list(found.damage) == []
    return list(found.events)


async def made(url: str) -> None:
    """A session "s" with a turn."""
    async with open_store(url) as store, store.session("s") as session:
        for act in TURN:
            act(session)


async def flushed(url: str, session: StoredSession, medium: Medium, *, broken: bool) -> None:
    """Flush; if that fails, what was acknowledged is there, and a retry succeeds."""
    acknowledged = session.durable_seq
    try:
        await session.flush()
    except WriteFailed:
        if broken:
            try:
                await session.flush()
            except WriteFailed:
                assert medium.hits > 1
            else:  # what had been reported as a failure was stored
                assert_same(await stored(url), session.events)
        medium.work()
        found = await stored(url)
        assert len(found) >= acknowledged
        assert_same(found, session.events[: len(found)])
        await session.flush()
    assert session.durable_seq == session.next_seq


@pytest.mark.parametrize("broken", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("kind", KINDS)
async def test_every_write_of_a_turn_may_fail(
    tmp_path: Path,
    name: str,
    medium: Medium,
    kind: str,
    broken: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Whichever fails: that flush says so, nothing acknowledged is lost, a retry stores it once."""
    number, hits = 0, 1
    await made(url_of(name, tmp_path / "before"))
    while hits:
        number += 1
        url = url_of(name, copytree(tmp_path / "before", tmp_path / str(number)))
        async with open_store(url) as store, store.session("s") as session:
            medium.fail(kind, number, NEVER if broken else None)
            for act in TURN:
                act(session)
                await flushed(url, session, medium, broken=broken)
            hits = medium.hits
            medium.work()
            session.add_user("more")
        assert_same(await stored(url), session.events)
        async with open_store(url) as store, store.session("s") as again:
            assert list(again.events) == list(session.events)
    assert number > len(TURN)


async def create(store: Store) -> None:
    """A new session."""
    async with store.session("new") as session:
        session.add_user("new")


async def fork(store: Store) -> None:
    """A child, cut in the middle of a turn."""
    name = "child again" if await store.backend.exists("child") else "child"
    await store.fork("s", at=9, new_id=name)


async def post(store: Store) -> None:
    """A command, which counts once however often it is posted."""
    await store.inbox("s").post(Prompt("again", id="p"))


async def steal(store: Store) -> None:
    """A session of another owner."""
    async with store.session("s", steal=True) as session:
        end(session)


async def search(store: Store) -> None:
    """An index that is made."""
    assert [hit.session for hit in await store.search("please")] == ["s"]


async def look(store: Store) -> None:
    """A listing."""
    assert "s" in [info.id async for info in store.sessions()]


OPERATIONS = (create, fork, post, steal, search, look)


async def everything(store: Store) -> None:
    """What the store holds is whole, or says that it is not, and what was asked for was done."""
    names = [info.id async for info in store.sessions()]
    assert {"s", "new", "child"} <= set(names) <= {"s", "new", "child", "child again"}
    whole = {"s": 14, "new": 1, "child again" if "child again" in names else "child": 11}
    for name in names:
        session = await store.read(name)
        if name in whole:
            assert session.damage == ()
            assert len(session) >= whole[name]
        elif session.damage:
            assert "fork it again" in session.damage[0].reason
        else:
            assert len(session) >= 10
    assert [queued.command.id for queued in await store.inbox("s").waiting()] == ["p"]
    await search(store)


@pytest.mark.parametrize("kind", SOME_KINDS)
async def test_every_write_of_any_other_operation_may_fail(
    tmp_path: Path, name: str, medium: Medium, kind: str
) -> None:
    """Whichever fails: it is raised as an error of ours or did no harm, and done when repeated."""
    number, hits = 0, 1
    await made(url_of(name, tmp_path / "before"))
    while hits:
        number += 1
        url = url_of(name, copytree(tmp_path / "before", tmp_path / str(number)))
        async with open_store(url) as store:
            medium.fail(kind, number)
            for operation in OPERATIONS:
                await repeated(operation, store, medium)
            hits = medium.hits
            medium.work()
            await everything(store)
        async with open_store(url) as store, store.session("s"), store.session("new") as session:
            assert session.writable
    assert number > len(OPERATIONS)


async def repeated(
    operation: Callable[[Store], Awaitable[None]], store: Store, medium: Medium
) -> None:
    """Try, and try again if it failed."""
    try:
        await operation(store)
    except StoreError:
        assert medium.hits
        await operation(store)


@pytest.mark.parametrize("kind", SOME_KINDS)
async def test_every_write_of_opening_a_new_store_may_fail(
    tmp_path: Path, name: str, medium: Medium, kind: str
) -> None:
    """Whichever fails: opening says so, or did no harm, and succeeds when tried again."""
    number, hits = 0, 1
    while hits:
        number += 1
        url = url_of(name, tmp_path / str(number))
        medium.fail(kind, number)
        try:
            async with open_store(url):
                pass
        except StoreError:
            assert medium.hits
        hits = medium.hits
        medium.work()
        await made(url)
        assert len(await stored(url)) == 12
