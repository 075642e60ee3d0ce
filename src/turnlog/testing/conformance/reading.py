"""Reading ranges, following, listing."""

from __future__ import annotations

import anyio

from turnlog.events import AnyEvent
from turnlog.testing.conformance.base import Handles, StoreSuite, commit
from turnlog.testing.conformance.samples import (
    FIRST,
    NOON,
    assert_same,
    chunk,
    event,
    header,
    notes,
    prompt,
)


class ReadingTests(StoreSuite):
    """Readers see what is stored, by range, as it grows, and in a listing."""

    async def test_ranges_are_half_open(self, handles: Handles) -> None:
        """`read` gives the events from start up to, not including, stop, wherever batches end."""
        events = notes(0, 5) + [chunk(5 + i, f"{i}") for i in range(20)] + notes(25, 5)
        await handles.write("a", events[:3], events[3:15], events[15:])
        store = await handles.open()
        bounds = [(0, 30), (0, 1), (4, 5), (3, 15), (6, 7), (10, 24), (15, 30), (29, 30), (7, 7)]
        for start, stop in bounds:
            assert_same(await store.read("a", start, stop), events[start:stop])
        for start in (0, 4, 12, 29):
            assert_same(await store.read("a", start), events[start:])

    async def test_ranges_may_lie_outside(self, handles: Handles) -> None:
        """A range that reaches beyond the log gives what there is of it."""
        await handles.write("a", notes(0, 3))
        store = await handles.open()
        assert_same(await store.read("a", 2, 99), notes(2, 1))
        assert_same(await store.read("a", -5, 2), notes(0, 2))
        assert_same(await store.read("a", -1), notes(0, 3))
        for start, stop in [(3, None), (99, None), (3, 9), (2, 1), (-5, 0), (0, -1)]:
            assert list(await store.read("a", start, stop)) == []

    async def test_a_handle_sees_what_another_wrote(self, handles: Handles) -> None:
        """A handle that has read a session sees what another handle stored since."""
        await handles.write("a", notes(0, 2))
        reader, store = await handles.open(), await handles.open()
        assert_same((await reader.load("a")).events, notes(0, 2))
        assert not await reader.exists("b")
        claim = await store.claim("a", FIRST)
        await commit(store, claim, notes(2, 3))
        await store.create(header("b"))
        assert_same((await reader.load("a")).events, notes(0, 5))
        assert_same(await reader.read("a", 1), notes(1, 4))
        assert await reader.next_seq("a") == 5
        assert await reader.exists("b")

    async def test_wait_wakes_when_another_handle_writes(self, handles: Handles) -> None:
        """Whoever waits for the next event is woken when another handle stores it."""
        await handles.write("a", notes(0, 2))
        reader, store = await handles.open(), await handles.open()
        claim = await store.claim("a", FIRST)
        seen: list[AnyEvent] = []

        async def follow() -> None:
            while len(seen) < 4:
                await reader.wait("a", 1 + len(seen), 10 * self.patience)
                seen.extend(await reader.read("a", 2 + len(seen)))

        with anyio.fail_after(self.patience):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow)
                for seq in range(2, 6):
                    await anyio.wait_all_tasks_blocked()
                    await commit(store, claim, notes(seq, 1))
        assert_same(seen, notes(2, 4))

    async def test_wait_ends(self, handles: Handles) -> None:
        """`wait` returns at once when the event is there, and at its timeout when it is not."""
        await handles.write("a", notes(0, 2))
        store = await handles.open()
        with anyio.fail_after(self.patience):
            await store.wait("a", 0, 10 * self.patience)
            await store.wait("a", -1, 10 * self.patience)
            await store.wait("a", 1, 0.0)
            await store.wait("a", 1, 0.01)

    async def test_sessions_are_listed_by_last_activity(self, handles: Handles) -> None:
        """The last active session comes first, whatever was created first."""
        last = {"a": 30, "b": 50, "c": 10, "d": 40}
        for session_id, time in last.items():
            await handles.write(session_id, [event(0, {}, time=NOON + time)])
        store = await handles.open()
        assert [info.id async for info in store.sessions()] == ["b", "d", "a", "c"]
        claim = await store.claim("c", FIRST)
        await commit(store, claim, [event(1, {}, time=NOON + 60)])
        await store.release(claim)
        reader = await handles.open()
        assert [info.id async for info in reader.sessions()] == ["c", "b", "d", "a"]
        assert [info.last_activity async for info in reader.sessions()] == [
            NOON + 60,
            NOON + 50,
            NOON + 40,
            NOON + 30,
        ]

    async def test_a_listing_says_what_a_session_is(self, handles: Handles) -> None:
        """A session's line has its title, counts, creation, health, parent and source."""
        titled = [
            prompt(0, "First\nprompt"),
            event(1, {"turn": 1}, type_name="turn/start"),
            event(2, {"title": "A title", "messageSeqs": [0]}, type_name="session/title"),
            prompt(3, "Second"),
            event(4, {"turn": 1, "reason": {"kind": "completed"}}, type_name="turn/end"),
        ]
        await handles.write(header("a", parent_session="p", source_format="dsh/v4"), titled)
        running = [prompt(0, "First\nprompt"), event(1, {"turn": 1}, type_name="turn/start")]
        await handles.write("b", running)
        await handles.write("c")
        store = await handles.open()
        infos = {info.id: info async for info in store.sessions()}
        assert {i.id: (i.events, i.messages) for i in infos.values()} == {
            "a": (5, 2),
            "b": (2, 1),
            "c": (0, 0),
        }
        assert [infos[i].title for i in "abc"] == ["A title", "First prompt", ""]
        assert [infos[i].health for i in "abc"] == ["ok", "open", "ok"]
        assert [infos[i].parent for i in "abc"] == ["p", None, None]
        assert [infos[i].source_format for i in "abc"] == ["dsh/v4", None, None]
        assert {info.created_at for info in infos.values()} == {NOON}
        assert [await store.info(i) for i in "abc"] == [infos[i] for i in "abc"]

    async def test_a_bad_session_hides_no_other(self, handles: Handles) -> None:
        """A session that cannot be read is listed as unreadable, and the others as ever."""
        for session_id in "abc":
            await handles.write(session_id, notes(0, 2))
        await self.spoil(handles.folder, "b")
        store = await handles.open()
        infos = {info.id: info async for info in store.sessions()}
        healths = {session_id: infos[session_id].health for session_id in "ac"}
        assert healths == {"a": "ok", "c": "ok"}
        (bad,) = [info for session_id, info in infos.items() if session_id not in {"a", "c"}]
        assert bad.health == "unreadable"
        assert bad.problem
        assert_same((await handles.load("c")).events, notes(0, 2))
