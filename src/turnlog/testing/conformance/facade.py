"""The `Store` of applications on top of the backend: what only both together can break."""

from __future__ import annotations

from contextlib import AsyncExitStack

import anyio
import pytest

from turnlog.commands import Cancel, Prompt
from turnlog.errors import (
    NoSuchSession,
    ReadOnly,
    SessionExists,
    SessionInUse,
    StaleWriter,
)
from turnlog.events import AnyEvent
from turnlog.testing.conformance.base import Handles, StoreSuite
from turnlog.testing.conformance.samples import FIRST, answer, assert_same, event, notes, prompt

TURN = [
    event(0, {"turn": 1}, type_name="turn/start"),
    prompt(1, "Hello"),
    answer(2, "Hello!"),
    event(3, {"turn": 1, "reason": {"kind": "completed"}}, type_name="turn/end"),
]


class FacadeTests(StoreSuite):
    """Sessions that are written through one store are what another store reads."""

    async def test_what_was_flushed_is_stored(self, handles: Handles) -> None:
        """After a flush every handle reads what was appended, while the session is still open."""
        async with handles.store() as store, store.session("a", cwd="/w") as session:
            session.add_user("Hello")
            session.append("turn/start", {"turn": 1})
            await session.flush()
            stored = await handles.load("a")
            assert stored.header == session.header
            assert_same(stored.events, session.events)

    async def test_leaving_a_session_flushes(self, handles: Handles) -> None:
        """What was appended and never flushed is stored when the session is left."""
        async with handles.store() as store:
            async with store.session("a") as session:
                for i in range(50):
                    session.add_user(f"message {i}")
            assert_same((await handles.load("a")).events, session.events)
            assert len(session.events) == 50

    async def test_leaving_under_cancellation_flushes(self, handles: Handles) -> None:
        """A task that is cancelled inside a session stores what it had appended."""
        appended: list[AnyEvent] = []
        async with handles.store() as store:
            with anyio.CancelScope() as scope:
                async with store.session("a") as session:
                    appended.append(session.add_user("Hello"))
                    scope.cancel()
                    await anyio.sleep_forever()
            assert_same((await handles.load("a")).events, appended)

    async def test_a_cancelled_flush_loses_nothing(self, handles: Handles) -> None:
        """After a flush was cancelled the next one stores every event once."""
        async with handles.store() as store, store.session("a") as session:
            for i in range(8):
                session.add_user(f"message {i}")
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    await session.flush()
                session.add_user(f"more {i}")
                await session.flush()
                assert_same((await handles.load("a")).events, session.events)

    async def test_one_writer_drains_many_sessions(self, handles: Handles) -> None:
        """Tasks with sessions of their own in one store each find their events stored."""

        async def write(session_id: str) -> None:
            async with store.session(session_id) as session:
                for i in range(10):
                    session.add_user(f"{session_id} {i}")
                    if i % 3 == 0:
                        await session.flush()

        async with handles.store() as store, anyio.create_task_group() as tasks:
            for i in range(8):
                tasks.start_soon(write, f"s{i}")
        for i in range(8):
            said = [e.message and e.message.text for e in (await handles.load(f"s{i}")).events]
            assert said == [f"s{i} {n}" for n in range(10)]

    async def test_a_session_goes_on_where_it_ended(self, handles: Handles) -> None:
        """Another store opens a session with all its events and appends behind them."""
        events = TURN
        await handles.write("a", events)
        async with handles.store() as store, store.session("a") as session:
            assert_same(session.events, events)
            session.add_user("And now?")
        stored = await handles.load("a")
        assert_same(stored.events[:-1], events)
        assert_same(stored.events, session.events)

    async def test_unknown_events_survive_an_owner(self, handles: Handles) -> None:
        """A session with types that nobody knows is opened, appended to and closed unharmed."""
        await handles.write("a", notes(0, 2), [event(2, {}, type_name="x/y", extra={"k": 1})])
        before = (await handles.load("a")).events
        async with handles.store() as store, store.session("a") as session:
            assert session.unknown_types == {"acme/noted": 2, "x/y": 1}
            session.add_user("Hello")
        assert_same((await handles.load("a")).events[:3], before)

    async def test_an_interrupted_turn_is_repaired_once(self, handles: Handles) -> None:
        """Opening a session closes an interrupted turn, durably; opening it again adds nothing."""
        await handles.write("a", [event(0, {"turn": 1}, type_name="turn/start")])
        for _ in range(3):
            async with handles.store() as store, store.session("a") as session:
                assert [e.type for e in session.events] == ["turn/start", "turn/end"]
            assert_same((await handles.load("a")).events, session.events)

    async def test_reading_repairs_nothing(self, handles: Handles) -> None:
        """A reader needs no claim, sees the log as it is and cannot append to it."""
        await handles.write("a", [event(0, {"turn": 1}, type_name="turn/start")])
        owner = await handles.open()
        await owner.claim("a", FIRST)
        async with handles.store() as store:
            session = await store.read("a")
            assert [e.type for e in session.events] == ["turn/start"]
            with pytest.raises(ReadOnly):
                session.add_user("Hello")
            with pytest.raises(NoSuchSession):
                await store.read("b")
        assert len((await handles.load("a")).events) == 1

    async def test_a_store_creates_as_it_is_told(self, handles: Handles) -> None:
        """create=False opens what exists only; create="only" makes what does not exist only."""
        async with handles.store() as store:
            with pytest.raises(NoSuchSession, match="a"):
                async with store.session("a", create=False):
                    pass
            async with store.session("a", create="only") as session:
                session.add_user("Hello")
            with pytest.raises(SessionExists, match="a"):
                async with store.session("a", create="only"):
                    pass
            async with store.session("a", create=False) as session:
                assert len(session.events) == 1

    async def test_two_stores_do_not_share_a_session(self, handles: Handles) -> None:
        """The second store is refused until the first one leaves; then it finds everything."""
        async with handles.store() as first, handles.store() as second:
            async with first.session("a") as session:
                session.add_user("Hello")
                await session.flush()
                with pytest.raises(SessionInUse, match="a"):
                    async with second.session("a"):
                        pass
                session.add_user("Still mine")
            async with second.session("a") as session:
                assert len(session.events) == 2

    async def test_a_robbed_session_is_told_at_its_flush(self, handles: Handles) -> None:
        """After a steal the former owner's flush fails, once, and nothing of it is stored."""
        async with handles.store() as first, handles.store() as second, AsyncExitStack() as stack:
            robbed = await stack.enter_async_context(first.session("a"))
            robbed.add_user("Hello")
            await robbed.flush()
            async with second.session("a", steal=True) as thief:
                thief.add_user("Mine now")
                await thief.flush()
                robbed.add_user("Still mine?")
                with pytest.raises(StaleWriter):
                    await robbed.flush()
            with pytest.raises(StaleWriter):
                robbed.add_user("Surely?")
            await stack.aclose()  # it has been told
        assert_same((await handles.load("a")).events, thief.events)
        said = [e.message and e.message.text for e in thief.events]
        assert said == ["Hello", "Mine now"]

    async def test_a_fork_is_stored(self, handles: Handles) -> None:
        """A durable child holds the shared prefix byte for byte; its parent does not change."""
        events = TURN
        await handles.write("a", events)
        async with handles.store() as store:
            assert await store.fork("a", at=2, new_id="b") == "b"
        child = await handles.load("b")
        assert_same(child.events[:3], events[:3])
        assert child.events[3].type == "session/end-seed"
        assert (child.header.parent_session, child.header.seed_length) == ("a", 3)
        assert_same((await handles.load("a")).events, events)

    async def test_a_tail_follows_another_store(self, handles: Handles) -> None:
        """A tail yields what other handles store, in order, each event once."""
        await handles.write("a", notes(0, 3))
        seen: list[AnyEvent] = []
        written: list[AnyEvent] = []

        async def follow() -> None:
            async with handles.store() as store:
                async for one in store.tail("a", after=0):
                    seen.append(one)
                    if one.seq == 12:
                        return

        with anyio.fail_after(self.patience):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow)
                async with handles.store() as store, store.session("a") as session:
                    for i in range(10):
                        session.add_user(f"message {i}")
                        await session.flush()
                    written.extend(session.events)
        assert_same(seen, written[1:])

    async def test_posted_commands_reach_the_owner(self, handles: Handles) -> None:
        """A command that one store posts is seen, once, and accepted by the session's owner."""
        async with handles.store() as mine, handles.store() as other, mine.session("a") as session:
            prompt_id = await other.inbox("a").post(Prompt("Do it."))
            assert await other.inbox("a").post(Cancel(id="stop")) == "stop"
            await other.inbox("a").post(Cancel(id="stop"))
            queued = await session.commands()
            assert [one.command.id for one in queued] == [prompt_id, "stop"]
            assert await other.pending() == ["a"]
            for one in queued:
                await session.accept([one.position])
            assert await other.pending() == []
            assert await other.inbox("a").waiting() == []
