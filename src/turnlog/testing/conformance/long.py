"""Long sessions: opened by their surface, read where one looks, forked anywhere."""

from __future__ import annotations

import pytest

from turnlog.errors import NoSuchEvent
from turnlog.session import Session
from turnlog.stores.live import RECORD_EVERY
from turnlog.testing.conformance.base import Handles, StoreSuite
from turnlog.testing.conformance.samples import assert_same

TURNS = RECORD_EVERY // 8


def talk(session: Session, first: int, count: int) -> None:
    """Turns of a prompt, a streamed answer and a compaction now and then: eight events each."""
    for turn in range(first, first + count):
        session.append("turn/start", {"turn": turn})
        session.append("step/start", {"turn": turn, "step": 1})
        session.add_user(f"question {turn}")
        chunks = [
            session.append(
                "assistant/chunk",
                {
                    "turn": turn,
                    "step": 1,
                    "chunk": {"type": "text-delta", "index": 0, "text": text},
                },
            ).seq
            for text in ("answer ", str(turn))
        ]
        session.add_assistant(f"answer {turn}", turn=turn, step=1, source_event_seqs=chunks)
        session.append("step/end", {"turn": turn, "step": 1})
        if turn % 50 == 49:
            seqs = session.surface.seqs
            session.replace(seqs[0], seqs[-4], f"what was said before turn {turn}")
        session.append("turn/end", {"turn": turn, "reason": {"kind": "completed"}})


class LongTests(StoreSuite):
    """A session that is longer than what is held of it is the same session."""

    async def test_a_long_session_opens_as_what_it_is(self, handles: Handles) -> None:
        """Reopened by its surface, a long session shows what it showed, and goes on."""
        async with handles.store() as store, store.session("a") as session:
            talk(session, 0, TURNS + 40)
            await session.flush()
            talk(session, TURNS + 40, 3)
            await session.flush()
            said = session.derive_messages()
            events = list(session.events)
        async with handles.store() as store:
            reader = await store.read("a")
            kept = await store.backend.record("a")
            assert reader.first_held == (0 if kept is None else kept.seq)
            assert kept is None or kept.seq > RECORD_EVERY
            assert reader.derive_messages() == said
            assert len(reader) == len(events)
            async with store.session("a") as session:
                assert session.derive_messages() == said
                assert session.request_messages() == said
                talk(session, TURNS + 43, 1)
            whole = await store.read("a", load="all")
            assert len(whole.events) == len(events) + 8
            assert whole.derive_messages() == session.derive_messages()
            assert_same(whole.events[: len(events)], events)

    async def test_what_is_not_in_memory_is_read_when_asked_for(self, handles: Handles) -> None:
        """Old events, old views and the transcript are read from the store."""
        async with handles.store() as store, store.session("a") as session:
            talk(session, 0, TURNS + 40)
            await session.flush()
            talk(session, TURNS + 40, 1)
        async with handles.store() as store:
            whole = await store.read("a", load="all")
            reader = await store.read("a")
            middle = len(whole) // 2
            assert_same(await reader.read_events(), whole.events)
            assert_same(await reader.read_events(5, 9), whole.events[5:9])
            assert_same(await reader.read_events(middle), whole.events[middle:])
            for at in (-1, 0, 5, 8 * 50 + 3, middle, len(whole) - 3, len(whole) - 1):
                assert await reader.view(at) == whole.derive_messages(at)
            assert await reader.view() == whole.derive_messages()
            assert await reader.transcript() == whole.extract_chat_messages()
            with pytest.raises(NoSuchEvent):
                await reader.view(len(whole))

    async def test_a_long_session_is_forked_anywhere(self, handles: Handles) -> None:
        """A child cut early, late or at the end sees what the parent saw there, also reopened."""
        async with handles.store() as store, store.session("a") as session:
            talk(session, 0, TURNS + 40)
            await session.flush()
            talk(session, TURNS + 40, 2)
        async with handles.store() as store:
            parent = await store.read("a", load="all")
            for at in (7, len(parent) // 2, len(parent) - 1):
                child_id = await store.fork("a", at=at)
                grandchild_id = await store.fork(child_id)
                for name in (child_id, grandchild_id):
                    async with store.session(name) as child:
                        child.add_user("and now?")
                        seen = [m.text for m in child.derive_messages()]
                        assert seen == [*(m.text for m in parent.derive_messages(at)), "and now?"]
                    whole = await store.read(name, load="all")
                    assert_same(whole.events[: at + 1], parent.events[: at + 1])
                    assert [m.text for m in whole.derive_messages()] == seen
