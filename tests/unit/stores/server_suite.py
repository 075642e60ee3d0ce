"""What every store on a database server does when its server, its line or its clock misbehaves.

A database's test file subclasses `ServerTests` and says how its server is spoken to.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, ClassVar, Protocol

import anyio
import pytest
from anyio import to_thread

from tests.servers.proxy import Proxy
from turnlog.commands import Prompt
from turnlog.errors import (
    NoSuchSession,
    SessionInUse,
    StaleWriter,
    StoreError,
    UnsupportedVersion,
    WriteFailed,
)
from turnlog.events import AnyEvent
from turnlog.stores import open_store
from turnlog.stores.port import Batch, Claim
from turnlog.stores.server.schema import VERSION
from turnlog.stores.server.store import ServerStore
from turnlog.testing.conformance.base import commit
from turnlog.testing.conformance.samples import FIRST, SECOND, assert_same, header, notes

HOUR = 3_600
MICRO = 1_000_000
PATIENCE = 60.0  # seconds after which what must happen counts as never happening


class Place(Protocol):
    """An empty database, or schema of one, on a server of the tests' own."""

    port: int

    def store(self, *, port: int | None = None, **options: Any) -> ServerStore:
        """A new handle, connected by TCP with a password; to a proxy's port if one is named."""
        ...

    def url(self, *, word: str | None = None, port: int | None = None) -> str:
        """Its URL, with the right password or another."""
        ...

    def sql(self, statement: str) -> list[str]:
        """Run a statement there; the first column of its rows as text."""
        ...

    def indexes(self) -> dict[str, list[str]]:
        """By index and table, the columns of every index that is no full-text index."""
        ...

    def tables(self) -> set[str]:
        """The tables that are there."""
        ...

    def stop(self) -> None:
        """Kill the server."""
        ...

    def start(self) -> None:
        """Start it again."""
        ...


@asynccontextmanager
async def opened(store: ServerStore) -> AsyncGenerator[ServerStore]:
    """The store, open for the time of a `with`."""
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def begun(store: ServerStore, session_id: str = "a") -> Claim:
    """A new session that the store owns, with two notes."""
    await store.create(header(session_id))
    claim = await store.claim(session_id, FIRST)
    await commit(store, claim, notes(0, 2))
    return claim


def said(events: Sequence[AnyEvent]) -> tuple[bytes, bytes]:
    """What goes over the line when short events are stored, with COMMIT or in its place."""
    return events[0].raw, events[0].raw.hex().encode()


class ServerTests:
    """A store on a server; every test gets a `place`."""

    pytestmark: ClassVar = [pytest.mark.anyio]

    # -- leases --------------------------------------------------------------------------------

    async def test_a_silent_owner_loses_its_session(self, place: Place) -> None:
        """A session whose lease has run out can be claimed, and its owner is told so."""
        async with opened(place.store()) as silent, opened(place.store()) as heir:
            old = await begun(silent)
            with pytest.raises(SessionInUse):
                await heir.claim("a", SECOND)
            place.sql("UPDATE sessions SET lease_until = 1")
            new = await heir.claim("a", SECOND)
            assert new.token == old.token + 1
            with pytest.raises(StaleWriter, match=r"second\.example"):
                await commit(silent, old, notes(2, 1))
            await commit(heir, new, notes(2, 1, "heir"))
            assert_same((await heir.load("a")).events, [*notes(0, 2), *notes(2, 1, "heir")])

    async def test_an_owner_that_was_only_late_goes_on(self, place: Place) -> None:
        """A lease that ran out and that nobody took is renewed by the next commit."""
        async with opened(place.store()) as late, opened(place.store()) as other:
            claim = await begun(late)
            place.sql("UPDATE sessions SET lease_until = 1")
            await commit(late, claim, notes(2, 1))
            with pytest.raises(SessionInUse):
                await other.claim("a", SECOND)

    async def test_a_session_is_free_when_its_lease_has_run_out(self, place: Place) -> None:
        """Who looks for work is sent to none whose owner lives, and to each of a silent one."""
        async with opened(place.store()) as store, opened(place.store()) as other:
            await begun(store, "held")
            await store.post("held", Prompt("x", id="1"))
            assert await other.pending(only_free=True) == []
            place.sql("UPDATE sessions SET lease_until = 1")
            assert await other.pending(only_free=True) == ["held"]
            await store.renew()
            assert await other.pending(only_free=True) == []

    async def test_one_statement_renews_all_leases(self, place: Place) -> None:
        """Renewing prolongs the leases of all sessions of a handle, and of no other."""
        async with opened(place.store()) as mine, opened(place.store()) as theirs:
            for name in "abc":
                await begun(mine, name)
            await begun(theirs, "d")
            await theirs.claim("a", SECOND, steal=True)
            place.sql("UPDATE sessions SET lease_until = 1")
            await mine.renew()
            renewed = place.sql("SELECT count(*) FROM sessions WHERE lease_until > 1")
            assert renewed == ["2"]
            for name, is_free in {"a": True, "b": False, "c": False, "d": True}.items():
                async with opened(place.store()) as third:
                    if is_free:
                        await third.claim(name, SECOND)
                    else:
                        with pytest.raises(SessionInUse):
                            await third.claim(name, SECOND)

    @pytest.mark.parametrize("hours", [-5, 5])
    async def test_a_clients_clock_does_not_matter(
        self, place: Place, monkeypatch: pytest.MonkeyPatch, hours: int
    ) -> None:
        """An owner, and who wants its session, may have clocks that are hours off."""
        really = time.time
        monkeypatch.setattr(time, "time", lambda: really() + hours * HOUR)
        async with opened(place.store()) as owner, opened(place.store()) as other:
            claim = await begun(owner)
            monkeypatch.setattr(time, "time", lambda: really() - hours * HOUR)
            with pytest.raises(SessionInUse):
                await other.claim("a", SECOND)
            await commit(owner, claim, notes(2, 1))
            await owner.release(claim)
            await other.claim("a", SECOND)

    # -- lost answers --------------------------------------------------------------------------

    @pytest.mark.parametrize("when", ["before", "after"])
    async def test_a_batch_whose_commit_was_lost_is_stored_once(
        self, place: Place, when: Any
    ) -> None:
        """A connection cut at a commit, before or after it was done, costs and doubles nothing."""
        async with Proxy.before(place.port) as proxy, opened(place.store(port=proxy.port)) as store:
            claim = await begun(store)
            proxy.cut(when, *said(notes(2, 3)))
            await commit(store, claim, notes(2, 3))
            assert proxy.cuts == 1
            await commit(store, claim, notes(5, 1))
            assert_same((await store.load("a")).events, notes(0, 6))

    async def test_a_lost_session_does_not_hold_up_the_others(self, place: Place) -> None:
        """Of sessions committed together only that is refused which another owner has."""
        async with opened(place.store()) as store, opened(place.store()) as thief:
            claims = [await begun(store, name) for name in "abc"]
            stolen = await thief.claim("b", SECOND, steal=True)
            results = await store.commit([Batch(claim, notes(2, 1)) for claim in claims])
            assert [type(result) for result in results] == [type(None), StaleWriter, type(None)]
            assert "second.example" in str(results[1])
            await commit(thief, stolen, notes(2, 1, "thief"))
            for name, last in {"a": "note", "b": "thief", "c": "note"}.items():
                assert_same((await store.load(name)).events, [*notes(0, 2), *notes(2, 1, last)])

    async def test_a_row_that_is_in_the_way_refuses_the_whole_batch(self, place: Place) -> None:
        """A batch whose place is taken is refused whole, and the one beside it is stored."""
        async with opened(place.store()) as store:
            claims = [await begun(store, name) for name in "ab"]
            taken = Batch(claims[0], notes(2, 3))
            place.sql("UPDATE events SET seq = 4 WHERE seq = 1")  # of both: what a fault leaves
            results = await store.commit([taken, Batch(claims[1], notes(2, 1))])
            assert isinstance(results[0], WriteFailed)
            assert results[1] is None
            assert place.sql("SELECT count(*) FROM events WHERE seq IN (2, 3)") == ["1"]

    async def test_a_lost_commit_does_not_excuse_another_batch(self, place: Place) -> None:
        """What another owner stored while the answer was lost is not taken for one's own."""
        async with Proxy.before(place.port) as proxy, opened(place.store()) as thief:
            async with opened(place.store(port=proxy.port)) as store:
                claim = await begun(store)
                proxy.refusing = True
                proxy.cut("before", *said(notes(2, 1)))
                results: list[StoreError | None] = []

                async def write() -> None:
                    results.extend(await store.commit([Batch(claim, notes(2, 1))]))

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(write)
                    await proxy.was_cut.wait()
                    stolen = await thief.claim("a", SECOND, steal=True)
                    await commit(thief, stolen, notes(2, 1, "thief"))
                    proxy.refusing = False
                (refusal,) = results
                assert isinstance(refusal, StaleWriter)
                assert "second.example" in str(refusal)
            assert_same((await thief.load("a")).events, [*notes(0, 2), *notes(2, 1, "thief")])

    @pytest.mark.parametrize("when", ["before", "after"])
    async def test_calls_whose_answer_was_lost_are_settled(self, place: Place, when: Any) -> None:
        """To create, claim, post, accept and release is done once, also where a line was cut."""
        async with Proxy.before(place.port) as proxy, opened(place.store(port=proxy.port)) as store:
            proxy.cut(when, b"COMMIT")
            await store.create(header("a"))
            proxy.cut(when, b"COMMIT")
            claim = await store.claim("a", FIRST)
            proxy.cut(when, b"COMMIT")
            assert await store.post("a", Prompt("once", id="1"))
            assert not await store.post("a", Prompt("once", id="1"))
            proxy.cut(when, b"COMMIT")
            await commit(store, claim, notes(0, 1))
            assert proxy.cuts == 4
            (queued,) = await store.inbox("a")
            proxy.cut(when, b"DELETE")
            await store.accept(claim, [queued.position])
            proxy.cut(when, b"SET holder = NULL")
            await store.release(claim)
            assert proxy.cuts == 6
            assert await store.inbox("a") == []
            async with opened(place.store()) as other:
                await other.claim("a", SECOND)

    # -- a server that goes away ---------------------------------------------------------------

    async def test_a_broken_line_is_mended(self, place: Place) -> None:
        """When all connections break, reading and writing go on over new ones."""
        async with Proxy.before(place.port) as proxy, opened(place.store(port=proxy.port)) as store:
            claim = await begun(store)
            proxy.cut_all()
            assert await store.next_seq("a") == 2
            proxy.cut_all()
            await commit(store, claim, notes(2, 1))
            proxy.cut_all()
            assert_same((await store.load("a")).events, notes(0, 3))

    async def test_a_server_may_restart(self, place: Place) -> None:
        """A server that is killed and started again in the middle loses nothing it acknowledged."""
        async with opened(place.store()) as store:
            claim = await begun(store)
            await to_thread.run_sync(place.stop)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(commit, store, claim, notes(2, 2))
                await to_thread.run_sync(place.start)
            assert_same((await store.load("a")).events, notes(0, 4))

    async def test_a_server_that_stays_away_fails_the_write(self, place: Place) -> None:
        """What could not be written is refused as such, and can be written when it is back."""
        async with AsyncExitStack() as stack:
            proxy = await stack.enter_async_context(Proxy.before(place.port))
            store = place.store(port=proxy.port, patience=0.1)
            await stack.enter_async_context(opened(store))
            claim = await begun(store)
            proxy.refusing = True
            proxy.cut_all()
            with pytest.raises(WriteFailed, match="cannot be reached"):
                await commit(store, claim, notes(2, 1))
            with pytest.raises(StoreError, match="cannot be reached"):
                await store.load("a")
            proxy.refusing = False
            await commit(store, claim, notes(2, 1))
            assert_same((await store.load("a")).events, notes(0, 3))

    async def test_what_was_written_is_heard_of_by_others(self, place: Place) -> None:
        """Who waits learns of another handle's commit, also after its line was cut."""
        async with Proxy.before(place.port) as proxy, opened(place.store()) as store:
            claim = await begun(store)
            async with opened(place.store(port=proxy.port)) as reader:
                with anyio.fail_after(PATIENCE):
                    for seq in range(2, 6):
                        async with anyio.create_task_group() as tasks:
                            tasks.start_soon(reader.wait, "a", seq - 1, PATIENCE)
                            await commit(store, claim, notes(seq, 1))
                        assert await reader.next_seq("a") == seq + 1
                        proxy.cut_all()

    async def test_many_tails_are_one_question(self, place: Place) -> None:
        """Hundreds who wait are told of what grew, each of its own session."""
        async with opened(place.store()) as store, opened(place.store()) as reader:
            claims = {name: await begun(store, name) for name in (f"s{i}" for i in range(40))}
            heard: list[str] = []
            results: list[StoreError | None] = []

            async def wait(name: str) -> None:
                while await reader.wait(name, 1, PATIENCE) is not True:
                    pass
                heard.append(name)

            with anyio.fail_after(PATIENCE):
                async with anyio.create_task_group() as tasks:
                    for name in claims:
                        for _ in range(5):
                            tasks.start_soon(wait, name)
                    batches = [Batch(claim, notes(2, 1)) for claim in claims.values()]
                    results += await store.commit(batches)
            assert results == [None] * len(claims)
            assert sorted(heard) == sorted(list(claims) * 5)

    # -- the schema ----------------------------------------------------------------------------

    async def test_every_index_begins_with_the_session(self, place: Place) -> None:
        """Every key and index of every table begins with a session's key."""
        async with opened(place.store()):
            indexes = place.indexes()
            assert len(indexes) >= len(place.tables()) >= 8
            assert [name for name, columns in indexes.items() if columns[0] != "session"] == []

    async def test_many_open_a_new_store_at_once(self, place: Place) -> None:
        """Handles that open an empty database at the same time all find its tables."""
        stores = [place.store() for _ in range(6)]
        async with AsyncExitStack() as stack:
            async with anyio.create_task_group() as tasks:
                for store in stores:
                    stack.push_async_callback(store.close)
                    tasks.start_soon(store.open)
            await begun(stores[0])
            for store in stores:
                assert await store.next_seq("a") == 2
        assert place.sql("SELECT version FROM turnlog_meta") == [str(VERSION)]

    async def test_a_newer_schema_is_refused_by_name(self, place: Place) -> None:
        """A store of a newer turnlog is not touched, and the error names both versions."""
        async with opened(place.store()):
            pass
        place.sql("UPDATE turnlog_meta SET version = version + 1")
        with pytest.raises(UnsupportedVersion, match=rf"{VERSION + 1}.*{VERSION}"):
            await place.store().open()

    async def test_tables_of_others_are_left_alone(self, place: Place) -> None:
        """A database that has a table of another program's under a name of ours is refused."""
        place.sql("CREATE TABLE events (id int)")
        with pytest.raises(StoreError, match="not turnlog's"):
            await place.store().open()
        assert place.tables() == {"events"}

    # -- what is in the tables -----------------------------------------------------------------

    async def test_a_key_that_is_anothers_is_no_session(self, place: Place) -> None:
        """Where two ids had the same key, the second is unknown, and cannot be made."""
        async with opened(place.store()) as store:
            await begun(store)
            place.sql("UPDATE sessions SET id = header")
            with pytest.raises(NoSuchSession):
                await store.load("a")
            assert not await store.exists("a")
            with pytest.raises(StoreError, match="choose another id"):
                await store.create(header("a"))

    async def test_a_row_that_was_changed_is_damage(self, place: Place) -> None:
        """An event whose row is not what was written is a range of damage; the rest is there."""
        async with opened(place.store()) as store:
            claim = await begun(store)
            await commit(store, claim, notes(2, 3))
            place.sql("UPDATE events SET time = time + 1 WHERE seq = 1")
            place.sql("DELETE FROM events WHERE seq = 3")
            stored = await store.load("a")
            assert [event.seq for event in stored.events] == [0, 2, 4]
            assert [(d.first_seq, d.last_seq) for d in stored.damage] == [(1, 1)]
            assert [event.seq for event in await store.read("a", 1, 5)] == [2, 4]
            assert [event.seq for event in await store.read_seqs("a", [0, 1, 4])] == [0, 4]

    async def test_one_batch_that_is_refused_hurts_no_other(self, place: Place) -> None:
        """When the database refuses one session's rows, those of the others are stored."""
        async with opened(place.store()) as store:
            first, guilty = await begun(store, "a"), await begun(store, "b")
            place.sql("UPDATE sessions SET next_seq = 1 WHERE id = 'b'")
            batches = [Batch(first, notes(2, 1)), Batch(guilty, notes(1, 1, "again"))]
            (fine, refused) = await store.commit(batches)
            assert fine is None
            assert isinstance(refused, WriteFailed)
            assert_same((await store.load("a")).events, notes(0, 3))

    # -- secrets -------------------------------------------------------------------------------

    async def test_passwords_are_not_shown(self, place: Place) -> None:
        """Neither a store's URL nor what is said of a wrong password or place has one in it."""
        for url in (
            place.url(word="hunter2"),
            place.url(word="hunter2", port=1),
            place.url(word="hunter2").replace(":", "x:", 1),
        ):
            with pytest.raises(StoreError) as refusal:
                async with open_store(url):
                    pass
            assert "hunter2" not in f"{refusal.value} {refusal.value!r}"
            assert "***" in str(refusal.value)
