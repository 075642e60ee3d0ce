"""Copying between stores: exact, resumable, refused where the target holds something else."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import permutations
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings

import turnlog
from tests.store_urls import STORES, forget, url_of
from tests.unit.stores.jsonl_files import HEADER, lines, plain
from tests.unit.stores.sqlite_files import FILE, connected
from tests.unit.stores.sqlite_files import write as write_rows
from turnlog import sync
from turnlog.errors import (
    CopyConflict,
    CopyFailed,
    NoSuchSession,
    SessionInUse,
    StoreClosed,
    StoreError,
    WriteFailed,
)
from turnlog.events import AnyEvent, SessionHeader
from turnlog.interop.exporting import to_jsonl
from turnlog.session import Session
from turnlog.stores import copying, open_store
from turnlog.stores.copying import Copied, CopyProgress, parents_first
from turnlog.stores.memory import MemoryStore
from turnlog.stores.port import Batch
from turnlog.stores.store import Store
from turnlog.testing import strategies
from turnlog.testing.conformance.samples import FIRST, NOON, conversation, event, header, notes

PAIRS = [*permutations(STORES, 2), *((name, name) for name in STORES)]


@pytest.fixture(params=PAIRS, ids="-".join)
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Two stores, of each pair of kinds."""
    folders = tmp_path / "from", tmp_path / "to"
    for folder in folders:
        folder.mkdir()
    source, target = request.param
    yield url_of(source, folders[0]), url_of(target, folders[1])
    for folder in folders:
        forget(folder)


@asynccontextmanager
async def opened(urls: tuple[str, str]) -> AsyncGenerator[tuple[Store, Store]]:
    """Both stores, open."""
    async with open_store(urls[0]) as source, open_store(urls[1]) as target:
        yield source, target


async def exported(store: Store, session_id: str) -> bytes:
    """The session as `turnlog export` gives it out."""
    return b"".join(to_jsonl(await store.read(session_id, load="all")))


async def write(store: Store, session: str | SessionHeader, events: Sequence[AnyEvent]) -> None:
    """Make a session of these events."""
    made = header(session) if isinstance(session, str) else session
    await store.backend.create(made)
    await add(store, made.id, events)


async def add(store: Store, session_id: str, events: Sequence[AnyEvent]) -> None:
    """Add events to a session."""
    claim = await store.backend.claim(session_id, FIRST)
    after = await store.backend.next_seq(session_id)
    assert list(await store.backend.commit([Batch(claim, events, after)])) == [None]
    await store.backend.release(claim)


def ends(copied: Sequence[Copied]) -> dict[str, str]:
    """How each session ended."""
    return {one.id: one.done for one in copied}


async def refused(source: Store, target: Store) -> dict[str, Copied]:
    """What became of each session of a copy of which some must fail."""
    with pytest.raises(CopyFailed) as failed:
        await source.copy_to(target)
    return {one.id: one for one in failed.value.copied}


async def test_a_copy_is_exact(urls: tuple[str, str]) -> None:
    """Header, events and listing are the source's, and another copy has nothing to do."""
    async with opened(urls) as (source, target):
        await write(source, header("a", cwd="/w", extra={"x": [1]}), conversation())
        await write(source, "b \u2028/../\udc00", notes(0, 3))
        await write(source, "empty", [])
        copied = await source.copy_to(target)
        assert set(ends(copied).values()) == {"copied"}
        assert {one.id: one.events for one in copied} == {
            "a": len(conversation()),
            "b \u2028/../\udc00": 3,
            "empty": 0,
        }
        for one in copied:
            assert await exported(target, one.id) == await exported(source, one.id)
            mine, its = await source.backend.info(one.id), await target.backend.info(one.id)
            assert (mine.title, mine.events, mine.last_activity) == (
                its.title,
                its.events,
                its.last_activity,
            )
        assert set(ends(await source.copy_to(target)).values()) == {"identical"}
        assert set(ends(await target.copy_to(source)).values()) == {"identical"}


async def test_a_copy_goes_on_where_the_target_ends(urls: tuple[str, str]) -> None:
    """What the target holds already is not written again; what it lacks is."""
    async with opened(urls) as (source, target):
        await write(source, "a", notes(0, 10))
        await write(target, "a", notes(0, 4))
        (copied,) = await source.copy_to(target)
        assert (copied.done, copied.events) == ("continued", 6)
        assert await exported(target, "a") == await exported(source, "a")
        await add(source, "a", notes(10, 1))
        (copied,) = await source.copy_to(target)
        assert (copied.done, copied.events) == ("continued", 1)
        assert await exported(target, "a") == await exported(source, "a")


async def test_what_differs_is_refused_and_the_rest_is_copied(urls: tuple[str, str]) -> None:
    """Another event, another header, more events: each names its session, others are copied."""
    async with opened(urls) as (source, target):
        for name in ("event", "header", "more", "fine"):
            await write(source, name, notes(0, 3))
        await write(target, "event", [*notes(0, 1), *notes(1, 2, "other")])
        await write(target, header("header", cwd="/elsewhere"), notes(0, 2))
        await write(target, "more", notes(0, 5))
        before = {name: await exported(target, name) for name in ("event", "header", "more")}
        found = await refused(source, target)
        assert {name: one.done for name, one in found.items()} == {
            "event": "failed",
            "header": "failed",
            "more": "failed",
            "fine": "copied",
        }
        for name, why in (("event", "event 1"), ("header", "header"), ("more", "2 events more")):
            problem = found[name].problem
            assert isinstance(problem, CopyConflict)
            assert repr(name) in str(problem)
            assert why in str(problem)
            assert await exported(target, name) == before[name]
        assert await exported(target, "fine") == await exported(source, "fine")


async def test_the_smallest_difference_is_seen() -> None:
    """Events that differ in one facet alone, or in a byte of their JSON, are not the same."""
    (base,) = notes(0, 1)
    data = {"n": 0, "say": "note"}
    others = [
        event(0, data, time=NOON + 1),
        event(0, data, type_name="acme/other"),
        event(0, data, ignorable=True),
        event(0, data, extra={"k": 1}),
        event(0, data, op="append"),
        event(0, raw=b'{"n": 0,"say":"note"}'),
        event(0, raw=b'{"n":0.0,"say":"note"}'),
    ]
    for other in others:
        async with open_store("memory:") as source, open_store("memory:") as target:
            await write(source, "a", [base])
            await write(target, "a", [other])
            found = await refused(source, target)
            assert isinstance(found["a"].problem, CopyConflict), other


async def test_waiting_commands_are_copied_once(urls: tuple[str, str]) -> None:
    """The target's inbox holds what waits in the source's, in order, after two copies too."""
    async with opened(urls) as (source, target):
        await write(source, "a", notes(0, 2))
        for i in range(3):
            await source.inbox("a").post(turnlog.Prompt(f"do {i}", id=f"p{i}"))
        (copied,) = await source.copy_to(target)
        assert copied.commands == 3
        await source.inbox("a").post(turnlog.Cancel(id="stop"))
        (copied,) = await source.copy_to(target)
        assert (copied.done, copied.commands) == ("identical", 1)
        waiting = [one.command for one in await target.inbox("a").waiting()]
        assert waiting == [one.command for one in await source.inbox("a").waiting()]
        assert await target.pending() == ["a"]


async def test_a_fork_comes_after_its_parent(urls: tuple[str, str]) -> None:
    """A family is copied whole, and shares what it shared where the target can do that."""
    async with opened(urls) as (source, target):
        async with source.session("parent") as session:
            for i in range(10):
                session.add_user(f"message {i}")
        await source.fork("parent", at=4, new_id="child")
        await source.fork("child", at=2, new_id="grandchild")
        async with source.session("child") as session:
            session.add_user("the child's own, which makes it the last active")
        copied = await source.copy_to(target)
        assert [one.id for one in copied] == ["parent", "child", "grandchild"]
        shares = urls[1].startswith("sqlite:")
        assert [one.shared for one in copied] == ([0, 5, 3] if shares else [0, 0, 0])
        for one in copied:
            assert await exported(target, one.id) == await exported(source, one.id)


async def test_a_fork_whose_parent_differs_there_is_copied_whole(urls: tuple[str, str]) -> None:
    """What the target's parent does not share is not taken from it."""
    async with opened(urls) as (source, target):
        await write(source, "parent", notes(0, 5))
        await write(target, "parent", notes(0, 5, "another"))
        await source.fork("parent", at=3, new_id="child")
        (copied,) = await source.copy_to(target, ["child"])
        assert (copied.done, copied.shared) == ("copied", 0)
        assert await exported(target, "child") == await exported(source, "child")


async def test_ids_choose_what_is_copied(urls: tuple[str, str]) -> None:
    """Only the sessions that were named are copied; one that is not there fails by itself."""
    async with opened(urls) as (source, target):
        for name in "abc":
            await write(source, name, notes(0, 1))
        assert ends(await source.copy_to(target, ["b"])) == {"b": "copied"}
        assert [info.id async for info in target.sessions()] == ["b"]
        with pytest.raises(CopyFailed) as failed:
            await source.copy_to(target, ["c", "z"])
        assert ends(failed.value.copied) == {"c": "copied", "z": "failed"}
        assert isinstance(failed.value.copied[1].problem, NoSuchSession)


async def test_a_session_in_use_in_the_source_is_copied_as_far_as_it_is_durable(
    urls: tuple[str, str],
) -> None:
    """Its owner goes on undisturbed, and a later copy brings the rest."""
    async with opened(urls) as (source, target):
        async with source.session("a") as session:
            session.add_user("durable")
            await session.flush()
            (copied,) = await source.copy_to(target)
            assert (copied.done, copied.events) == ("copied", 1)
            session.add_user("later")
        (copied,) = await source.copy_to(target)
        assert (copied.done, copied.events) == ("continued", 1)
        assert await exported(target, "a") == await exported(source, "a")


async def test_a_session_in_use_in_the_target_is_refused(urls: tuple[str, str]) -> None:
    """What someone else writes to there is left alone, and copied once it is free."""
    async with opened(urls) as (source, target):
        await write(source, "a", notes(0, 3))
        await write(target, "a", notes(0, 1))
        async with target.session("a"):
            found = await refused(source, target)
            assert isinstance(found["a"].problem, SessionInUse)
            assert await target.backend.next_seq("a") == 1
        assert ends(await source.copy_to(target)) == {"a": "continued"}


async def test_gaps_stay_gaps(urls: tuple[str, str]) -> None:
    """Seqs that the source lacks, whose loss its header tells, lack in the copy, told likewise."""
    told = ({"firstSeq": 2, "lastSeq": 3, "reason": "garbled"}, {"firstSeq": 6, "lastSeq": 6})
    made = header("a", source_damage=told)
    async with opened(urls) as (source, target):
        await write(source, made, [*notes(0, 2), *notes(4, 2), *notes(7, 1)])
        assert ends(await source.copy_to(target)) == {"a": "copied"}
        assert await exported(target, "a") == await exported(source, "a")
        mine, its = await source.read("a"), await target.read("a")
        assert [(d.first_seq, d.last_seq, d.reason) for d in its.damage] == [
            (d.first_seq, d.last_seq, d.reason) for d in mine.damage
        ]
        assert ends(await source.copy_to(target)) == {"a": "identical"}
        assert ends(await target.copy_to(source)) == {"a": "identical"}


@pytest.mark.parametrize("name", list(STORES))
async def test_damage_is_copied_with_its_reason(name: str, tmp_path: Path) -> None:
    """What cannot be read in the source is as unreadable in the copy, which says why."""
    whole = lines(notes(0, 8))
    plain(tmp_path, HEADER, *whole[:3], b"\x00\x00 noise\n", *whole[4:7], b"{glued}\n")
    target_url = url_of(name, tmp_path / "to")
    async with opened((f"jsonl:{tmp_path}", target_url)) as (source, target):
        before = await source.read("a")
        assert len(before.damage) == 2
        assert ends(await source.copy_to(target, ["a"])) == {"a": "copied"}
        after = await target.read("a")
        assert [(d.first_seq, d.last_seq, d.reason) for d in after.damage] == [
            (d.first_seq, d.last_seq, d.reason) for d in before.damage
        ]
        assert after.next_seq == before.next_seq
        assert [event.raw for event in after.events] == [event.raw for event in before.events]
        assert ends(await source.copy_to(target, ["a"])) == {"a": "identical"}
        async with target.session("a") as session:
            assert not session.writable
            session.acknowledge_damage()
            session.add_user("and on")
        assert [e.type for e in (await target.read("a")).events][-2:] == [
            "session/damage-acknowledged",
            "user/message",
        ]
    forget(tmp_path / "to")


@pytest.mark.parametrize("name", list(STORES))
async def test_damaged_rows_are_copied_with_their_reasons(name: str, tmp_path: Path) -> None:
    """A listing of SQLite does not know of bad rows; a copy finds them, the last one too."""
    await write_rows(tmp_path, "a", notes(0, 30))
    with connected(tmp_path) as db:
        first, last = db.execute("SELECT min(id), max(id) FROM events").fetchall()[0]
        db.execute("UPDATE events SET data = x'ff' WHERE id IN (?, ?)", (first + 5, last))
        db.execute("DELETE FROM events WHERE id = ?", (first + 10,))
    urls = f"sqlite:{tmp_path / FILE}", url_of(name, tmp_path / "to")
    (tmp_path / "to").mkdir()
    async with opened(urls) as (source, target):
        before = await source.read("a", load="all")
        assert [(d.first_seq, d.last_seq) for d in before.damage] == [(5, 5), (10, 10), (29, 29)]
        assert ends(await source.copy_to(target)) == {"a": "copied"}
        after = await target.read("a", load="all")
        assert [(d.first_seq, d.last_seq, d.reason) for d in after.damage] == [
            (d.first_seq, d.last_seq, d.reason) for d in before.damage
        ]
        assert after.next_seq == before.next_seq == 30
        assert ends(await source.copy_to(target)) == {"a": "identical"}
    forget(tmp_path / "to")


async def test_an_import_that_grew_is_continued(urls: tuple[str, str]) -> None:
    """The header of a seed that was extended since the last copy takes the old one's place."""

    def seed(length: int) -> SessionHeader:
        return header("a", seed_length=length, source_format="acme/v1", source_length=length)

    async with opened(urls) as (source, target):
        await source.adopt(seed(2), notes(0, 2))
        assert ends(await source.copy_to(target)) == {"a": "copied"}
        await source.adopt(seed(5), notes(0, 5))
        assert ends(await source.copy_to(target)) == {"a": "continued"}
        assert await exported(target, "a") == await exported(source, "a")


async def test_progress_tells_each_session_and_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is told after each page, and once more with what became of the session."""
    monkeypatch.setattr(copying, "PAGE", 4)
    told: list[CopyProgress] = []
    async with open_store("memory:") as source, open_store("memory:") as target:
        await write(source, "a", notes(0, 10))
        await write(source, "b", [])
        copied = await source.copy_to(target, ["a", "b"], on_progress=told.append)
    assert [(one.id, one.number, one.sessions, one.seq, one.end) for one in told[:-1]] == [
        ("a", 1, 2, 4, 10),
        ("a", 1, 2, 8, 10),
        ("a", 1, 2, 10, 10),
        ("a", 1, 2, 0, 0),
    ]
    assert [one.copied for one in told if one.copied] == copied


class Counting(MemoryStore):
    """A memory store that knows how much was read at once."""

    most = 0

    async def read(
        self, session_id: str, start: int, stop: int | None = None, *, chunks: bool = True
    ) -> list[AnyEvent]:
        """The events."""
        events = await super().read(session_id, start, stop, chunks=chunks)
        self.most = max(self.most, sum(len(event.raw) for event in events))
        return events


async def test_large_events_are_read_few_at_a_time() -> None:
    """Pages shrink where events are large: never is all of a session in memory."""
    backend = Counting()
    async with Store(backend) as source, open_store("memory:") as target:
        await write(source, "a", notes(0, 400, "x" * 100_000))
        await source.copy_to(target)
        assert backend.most < 2 * copying.PAGE_BYTES
        assert await target.backend.next_seq("a") == 400


class Failing(MemoryStore):
    """A memory store whose medium fails after some commits."""

    left = 2

    async def commit(self, batches: Sequence[Batch]) -> list[StoreError | None]:
        """Store, or fail."""
        self.left -= 1
        if self.left < 0:
            return [WriteFailed("the disk is full") for _ in batches]
        return await super().commit(batches)


async def test_a_target_that_fails_is_continued_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was stored before the failure stays, is free, and is not written again."""
    monkeypatch.setattr(copying, "PAGE", 4)
    backend = Failing()
    async with open_store("memory:") as source, Store(backend) as target:
        await write(source, "a", notes(0, 20))
        found = await refused(source, target)
        assert isinstance(found["a"].problem, WriteFailed)
        assert await target.backend.next_seq("a") == 8
        backend.left = 100
        (copied,) = await source.copy_to(target)
        assert (copied.done, copied.events) == ("continued", 12)
        assert await exported(target, "a") == await exported(source, "a")


async def test_a_cancelled_copy_gives_back_what_it_claimed(
    urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a cancel in the middle the target's session is free, and the next copy goes on."""
    monkeypatch.setattr(copying, "PAGE", 4)
    async with opened(urls) as (source, target):
        await write(source, "a", notes(0, 20))
        with anyio.CancelScope() as scope:

            def stop(progress: CopyProgress) -> None:
                if progress.seq >= 8:
                    scope.cancel()

            await source.copy_to(target, on_progress=stop)
        assert scope.cancelled_caught or await target.backend.next_seq("a") == 20
        await source.copy_to(target)
        assert await exported(target, "a") == await exported(source, "a")


async def test_a_store_copies_while_it_is_open() -> None:
    """A closed target, and a closed source, are refused."""
    closed = open_store("memory:")
    async with open_store("memory:") as store:
        with pytest.raises(StoreClosed):
            await store.copy_to(closed)
        with pytest.raises(StoreClosed):
            await closed.copy_to(store)


def test_sync_stores_copy_to_each_other(urls: tuple[str, str]) -> None:
    """Each store in its own event loop: the copy is as exact."""
    with sync.open_store(urls[0]) as source, sync.open_store(urls[1]) as target:
        with source.session("a") as session:
            for i in range(10):
                session.add_user(f"message {i}")
        source.fork("a", at=3, new_id="b")
        source.inbox("b").post(turnlog.Prompt("more", id="p"))
        assert ends(source.copy_to(target)) == {"a": "copied", "b": "copied"}
        for name in "ab":
            assert target.read(name).to_jsonl() == source.read(name).to_jsonl()
        assert target.pending() == ["b"]
        assert ends(source.copy_to(target)) == {"a": "identical", "b": "identical"}
        assert ends(source.copy_to(source)) == {"a": "identical", "b": "identical"}


def test_parents_come_first() -> None:
    """In whichever order, and even where parents go in a circle, each id is there once."""
    assert parents_first({"c": "b", "b": "a", "a": None, "d": "elsewhere"}) == ["a", "b", "c", "d"]
    assert parents_first({"x": "x"}) == ["x"]
    assert sorted(parents_first({"x": "y", "y": "z", "z": "x"})) == ["x", "y", "z"]
    chain = {str(i): str(i + 1) for i in range(50_000)}
    assert parents_first(chain) == [str(i) for i in reversed(range(50_000))]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(strategies.histories(), strategies.mangled())
def test_there_and_back_nothing_changes(
    tmp_path_factory: pytest.TempPathFactory, history: Session, mangled: Session
) -> None:
    """Whatever a session holds, a copy through every store and back is equal to it."""
    folder = tmp_path_factory.mktemp("copies")

    async def travel() -> None:
        async with open_store("memory:") as first, open_store("memory:") as last:
            sessions = {history.id: history}
            sessions.setdefault(mangled.id, mangled)
            for session in sessions.values():
                await first.save(session)
            here, opened_anew = first, AsyncExitStack()
            async with opened_anew:
                for name in STORES:
                    async with open_store(url_of(name, folder)) as there:
                        await here.copy_to(there)
                    here = await opened_anew.enter_async_context(open_store(url_of(name, folder)))
                await here.copy_to(last)
            for session in sessions.values():
                assert await exported(last, session.id) == await exported(first, session.id)

    try:
        anyio.run(travel)
    finally:
        forget(folder)
