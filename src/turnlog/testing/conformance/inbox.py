"""The durable queue of commands that each session has."""

from __future__ import annotations

import pytest

from turnlog.commands import Approve, Cancel, Command, Compact, Deny, Prompt, Steer
from turnlog.errors import NoSuchSession
from turnlog.testing.conformance.base import Handles, StoreSuite
from turnlog.testing.conformance.samples import FIRST, notes

EVERY: list[Command] = [
    Prompt("Do it.", id="c0"),
    Steer("Rather this way.", turn=3, id="c1"),
    Cancel(turn=3, reason="user", id="c2"),
    Approve("call-1", id="c3"),
    Deny("call-2", reason="not today", id="c4"),
    Compact(instruction="Keep the names.", id="c5"),
    Prompt("And then that.", id="c6", extra={"priority": [1, {"a": None}]}),
]


class InboxTests(StoreSuite):
    """Commands wait in order, once each, until the session's owner takes them."""

    async def test_commands_wait_in_order(self, handles: Handles) -> None:
        """Commands of every kind, posted by several handles, wait in the order of posting."""
        await handles.write("a")
        posted = EVERY[::-1]
        for command in posted:
            async with handles.another() as store:
                assert await store.post("a", command)
        store = await handles.open()
        queued = await store.inbox("a")
        assert [one.command for one in queued] == posted
        positions = [one.position for one in queued]
        assert positions == sorted(set(positions))

    async def test_commands_survive_the_process(self, handles: Handles) -> None:
        """A command that was posted is there after the death of the process that posted it."""
        await handles.write("a")
        doomed = await handles.open()
        assert await doomed.post("a", EVERY[0])
        await handles.kill(doomed)
        store = await handles.open()
        assert [queued.command for queued in await store.inbox("a")] == [EVERY[0]]

    async def test_a_command_is_queued_once(self, handles: Handles) -> None:
        """Posting an id again queues nothing, from any handle, whatever the command says."""
        await handles.write("a")
        store = await handles.open()
        assert await store.post("a", Prompt("once", id="same"))
        assert not await store.post("a", Prompt("once", id="same"))
        async with handles.another() as other:
            assert not await other.post("a", Cancel(id="same"))
            assert await other.post("a", Prompt("once", id="Same"))
        ids = [queued.command.id for queued in await store.inbox("a")]
        assert sorted(ids) == ["Same", "same"]

    async def test_a_command_is_taken_once(self, handles: Handles) -> None:
        """Posting an id whose command was accepted already queues nothing."""
        await handles.write("a")
        store = await handles.open()
        assert await store.post("a", Prompt("once", id="same"))
        claim = await store.claim("a", FIRST)
        (queued,) = await store.inbox("a")
        await store.accept(claim, [queued.position])
        assert not await store.post("a", Prompt("once", id="same"))
        assert await store.inbox("a") == []

    async def test_ids_are_a_sessions_own(self, handles: Handles) -> None:
        """The same command id in two sessions is two commands."""
        for session_id in ("a", "b"):
            await handles.write(session_id)
        store = await handles.open()
        for session_id in ("a", "b"):
            assert await store.post(session_id, Prompt(f"for {session_id}", id="same"))
        for session_id in ("a", "b"):
            (queued,) = await store.inbox(session_id)
            assert queued.command == Prompt(f"for {session_id}", id="same")

    async def test_accepted_commands_leave(self, handles: Handles) -> None:
        """What the owner accepted is gone for every handle; the rest waits in its order."""
        await handles.write("a")
        store = await handles.open()
        for command in EVERY:
            await store.post("a", command)
        claim = await store.claim("a", FIRST)
        queued = await store.inbox("a")
        await store.accept(claim, [queued[1].position, queued[4].position])
        await store.accept(claim, [queued[0].position, queued[1].position])
        left = [EVERY[2], EVERY[3], EVERY[5], EVERY[6]]
        async with handles.another() as other:
            assert [one.command for one in await other.inbox("a")] == left
            assert await other.post("a", Prompt("later", id="c9"))
        again = await store.inbox("a")
        assert [one.command for one in again] == [*left, Prompt("later", id="c9")]
        assert again[-1].position > queued[-1].position

    async def test_an_inbox_is_no_log(self, handles: Handles) -> None:
        """Posting and accepting change neither the events nor the next seq."""
        await handles.write("a", notes(0, 2))
        store = await handles.open()
        await store.post("a", EVERY[0])
        claim = await store.claim("a", FIRST)
        (queued,) = await store.inbox("a")
        await store.accept(claim, [queued.position])
        assert await store.next_seq("a") == 2
        assert len((await handles.load("a")).events) == 2

    async def test_pending_names_sessions_with_prompts(self, handles: Handles) -> None:
        """Only sessions whose inbox holds a prompt are pending, and no more once it is taken."""
        for session_id in ("steered", "asked", "empty", "both"):
            await handles.write(session_id)
        store = await handles.open()
        await store.post("steered", Steer("x", id="1"))
        await store.post("steered", Cancel(id="2"))
        await store.post("asked", Prompt("x", id="3"))
        await store.post("both", Cancel(id="4"))
        await store.post("both", Prompt("x", id="5"))
        async with handles.another() as other:
            assert set(await other.pending()) == {"asked", "both"}
        claim = await store.claim("both", FIRST)
        _, queued = await store.inbox("both")
        await store.accept(claim, [queued.position])
        async with handles.another() as other:
            assert await other.pending() == ["asked"]

    async def test_pending_names_what_a_loop_can_do(self, handles: Handles) -> None:
        """Asked for more than prompts: decisions, cancels, compactions, but no steering."""
        commands = {command.type: command for command in EVERY}
        store = await handles.open()
        for kind, command in commands.items():
            await handles.write(kind)
            await store.post(kind, command)
        named = set(commands) - {"steer"}
        async with handles.another() as other:
            assert set(await other.pending(only_prompts=False)) == named
        claim = await store.claim("deny", FIRST)
        await store.accept(claim, [(await store.inbox("deny"))[0].position])
        named.remove("deny")
        assert set(await store.pending(only_prompts=False)) == named

    async def test_the_longest_waiting_is_first(self, handles: Handles) -> None:
        """Pending sessions come in the order in which their oldest prompts were posted."""
        for session_id in ("a", "b", "c"):
            await handles.write(session_id)
        store = await handles.open()
        for i, session_id in enumerate(["c", "a", "b", "c"]):
            assert await store.post(session_id, Prompt(f"{i}", id=f"{i}"))
        assert await store.pending() == ["c", "a", "b"]
        claim = await store.claim("c", FIRST)
        await store.accept(claim, [(await store.inbox("c"))[0].position])
        assert await store.pending() == ["a", "b", "c"]

    async def test_who_asks_for_free_sessions_misses_none(self, handles: Handles) -> None:
        """At most those are left out that a live owner has, and none that was given back."""
        everything = ("free", "held", "given back")
        store = await handles.open()
        for session_id in everything:
            await handles.write(session_id)
            await store.post(session_id, Prompt("x", id=session_id))
        async with handles.another() as owner:
            claim = await owner.claim("held", FIRST)
            await owner.release(await owner.claim("given back", FIRST))
            left = set(everything) - set(await store.pending(only_free=True))
            assert left <= {"held"}
            assert set(await store.pending()) == set(everything)
            await owner.release(claim)
        assert set(await store.pending(only_free=True)) == set(everything)

    async def test_posting_to_an_unknown_session_is_refused(self, handles: Handles) -> None:
        """Posting to an id that nobody created is refused and creates nothing."""
        await handles.write("a")
        store = await handles.open()
        with pytest.raises(NoSuchSession, match="b"):
            await store.post("b", Prompt("x", id="1"))
        assert not await store.exists("b")
        assert await store.pending() == []
