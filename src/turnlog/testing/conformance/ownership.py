"""One live writer per session: claims, their tokens, and what the loser is told."""

from __future__ import annotations

import pytest

from turnlog.errors import SessionInUse, StaleWriter
from turnlog.stores.port import Batch, Owner
from turnlog.testing.conformance.base import Handles, StoreSuite, commit
from turnlog.testing.conformance.samples import FIRST, SECOND, assert_same, notes


class OwnershipTests(StoreSuite):
    """At any time at most one writer's batches are stored, and the others learn whose."""

    async def test_a_second_writer_is_refused_and_told_the_first(self, handles: Handles) -> None:
        """A session in use is refused to another handle, by process, host and since when."""
        await handles.write("a", notes(0, 2))
        first, second = await handles.open(), await handles.open()
        claim = await first.claim("a", FIRST)
        with pytest.raises(SessionInUse) as refusal:
            await second.claim("a", SECOND)
        owner = refusal.value.owner
        assert isinstance(owner, Owner)
        assert (owner.pid, owner.host, owner.since) == (FIRST.pid, FIRST.host, FIRST.since)
        for named in ("'a'", str(FIRST.pid), FIRST.host):
            assert named in str(refusal.value)
        await commit(first, claim, notes(2, 1))
        assert_same((await handles.load("a")).events, notes(0, 3))

    async def test_a_claim_leaves_other_sessions_free(self, handles: Handles) -> None:
        """Two handles own a session each of one storage."""
        for session_id in ("a", "b"):
            await handles.write(session_id)
        first, second = await handles.open(), await handles.open()
        mine, theirs = await first.claim("a", FIRST), await second.claim("b", SECOND)
        await commit(first, mine, notes(0, 1, "mine"))
        await commit(second, theirs, notes(0, 2, "theirs"))
        assert_same((await handles.load("a")).events, notes(0, 1, "mine"))
        assert_same((await handles.load("b")).events, notes(0, 2, "theirs"))

    async def test_reading_needs_no_claim(self, handles: Handles) -> None:
        """Every reading call and the inbox work while another handle owns the session."""
        await handles.write("a", notes(0, 2))
        owner, reader = await handles.open(), await handles.open()
        await owner.claim("a", FIRST)
        assert await reader.exists("a")
        assert await reader.next_seq("a") == 2
        assert_same((await reader.load("a")).events, notes(0, 2))
        assert_same(await reader.read("a", 1), notes(1, 1))
        assert [info.id async for info in reader.sessions()] == ["a"]
        assert await reader.inbox("a") == []
        assert await reader.pending() == []

    async def test_a_released_session_can_be_claimed(self, handles: Handles) -> None:
        """What one handle released another can claim and write to, and so on in turn."""
        await handles.write("a")
        first, second = await handles.open(), await handles.open()
        for turn in range(3):
            for i, (store, owner) in enumerate([(first, FIRST), (second, SECOND)]):
                claim = await store.claim("a", owner)
                await commit(store, claim, notes(2 * turn + i, 1))
                await store.release(claim)
        assert_same((await handles.load("a")).events, notes(0, 6))

    async def test_closing_gives_sessions_back(self, handles: Handles) -> None:
        """A handle that was closed without releasing owns nothing any more."""
        await handles.write("a", notes(0, 1))
        async with handles.another() as first:
            await first.claim("a", FIRST)
        second = await handles.open()
        claim = await second.claim("a", SECOND)
        await commit(second, claim, notes(1, 1))

    async def test_a_dead_owner_holds_nothing(self, handles: Handles) -> None:
        """A session whose owner's process died can be claimed without stealing."""
        await handles.write("a", notes(0, 1))
        doomed = await handles.open()
        await doomed.claim("a", FIRST)
        await handles.kill(doomed)
        heir = await handles.open()
        claim = await heir.claim("a", SECOND)
        await commit(heir, claim, notes(1, 1))
        assert_same((await handles.load("a")).events, notes(0, 2))

    async def test_stealing_takes_the_next_token(self, handles: Handles) -> None:
        """Each steal gives a greater token, and its owner is the one that others are told."""
        await handles.write("a")
        stores = [await handles.open() for _ in range(3)]
        claims = [await stores[0].claim("a", FIRST)]
        claims += [await store.claim("a", SECOND, steal=True) for store in stores[1:]]
        tokens = [claim.token for claim in claims]
        assert tokens == sorted(set(tokens))
        await commit(stores[2], claims[2], notes(0, 1))
        with pytest.raises(SessionInUse) as refusal:
            await stores[0].claim("a", SECOND)
        assert isinstance(refusal.value.owner, Owner)
        assert refusal.value.owner.pid == SECOND.pid

    async def test_a_robbed_writer_stores_nothing(self, handles: Handles) -> None:
        """After a steal the former owner's batches are refused, the new owner's are stored."""
        await handles.write("a", notes(0, 2))
        robbed, thief = await handles.open(), await handles.open()
        old = await robbed.claim("a", FIRST)
        await commit(robbed, old, notes(2, 1))
        new = await thief.claim("a", SECOND, steal=True)
        with pytest.raises(StaleWriter, match="a"):  # the seq is right, the token is not
            await commit(robbed, old, notes(3, 2, "robbed"))
        await commit(thief, new, notes(3, 1, "thief"))
        for seq in (3, 4):
            with pytest.raises(StaleWriter):
                await commit(robbed, old, notes(seq, 1, "robbed"))
        await commit(thief, new, notes(4, 1, "thief"))
        expected = [*notes(0, 3), *notes(3, 2, "thief")]
        assert_same((await handles.load("a")).events, expected)

    async def test_a_robbed_writer_is_told_by_whom(self, handles: Handles) -> None:
        """The refusal after a steal names the new owner."""
        await handles.write("a", notes(0, 2))
        robbed, thief = await handles.open(), await handles.open()
        old = await robbed.claim("a", FIRST)
        new = await thief.claim("a", SECOND, steal=True)
        await commit(thief, new, notes(2, 1))
        (refusal,) = await robbed.commit([Batch(old, notes(3, 1))])
        assert isinstance(refusal, StaleWriter)
        assert isinstance(refusal.owner, Owner)
        assert (refusal.owner.pid, refusal.owner.host) == (SECOND.pid, SECOND.host)
        assert SECOND.host in str(refusal)

    async def test_a_robbed_writer_stays_robbed(self, handles: Handles) -> None:
        """An old claim does not come to life again when its thief releases the session."""
        await handles.write("a")
        robbed, thief = await handles.open(), await handles.open()
        old = await robbed.claim("a", FIRST)
        new = await thief.claim("a", SECOND, steal=True)
        await commit(thief, new, notes(0, 1))
        await thief.release(new)
        with pytest.raises(StaleWriter):
            await commit(robbed, old, notes(1, 1))
        assert await thief.next_seq("a") == 1
        again = await robbed.claim("a", FIRST)
        await commit(robbed, again, notes(1, 1))

    async def test_releasing_a_lost_claim_frees_nothing(self, handles: Handles) -> None:
        """A robbed writer that releases its old claim leaves the session with its new owner."""
        await handles.write("a")
        robbed, thief, third = [await handles.open() for _ in range(3)]
        old = await robbed.claim("a", FIRST)
        new = await thief.claim("a", SECOND, steal=True)
        await commit(thief, new, notes(0, 1))
        await robbed.release(old)
        await robbed.release(old)
        with pytest.raises(SessionInUse):
            await third.claim("a", SECOND)
        await commit(thief, new, notes(1, 1))

    async def test_closing_a_robbed_handle_frees_nothing(self, handles: Handles) -> None:
        """A robbed writer's handle that closes leaves the session with its new owner."""
        await handles.write("a")
        thief, third = await handles.open(), await handles.open()
        async with handles.another() as robbed:
            await robbed.claim("a", FIRST)
            new = await thief.claim("a", SECOND, steal=True)
            await commit(thief, new, notes(0, 1))
        with pytest.raises(SessionInUse):
            await third.claim("a", SECOND)
        await commit(thief, new, notes(1, 1))
