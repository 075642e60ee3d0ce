"""The small real model is talked to past its window, and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.local import require_local_model
from tests.unit.agent.scenes import assert_lawful
from turnlog import BasicCompactionEngine, ReactLoopAgent, Session, open_store
from turnlog.compaction.estimate import DEFAULT
from turnlog.compaction.history import compactions
from turnlog.compaction.meter import measure
from turnlog.events import CompactionStart, CompactionSummary
from turnlog.models import open_model

WINDOW = 768  # tokens
ASKED = (
    "My name is Ada and I live in Lisbon. Tell me one thing about Lisbon.",
    "What could I cook tonight with rice, eggs and tomatoes?",
    "Tell me something about the moon.",
    "Which colour do you get from blue and yellow?",
    "How do I keep tomatoes fresh?",
    "Give me the name of a famous painter, and say why.",
    "What is a good book for a rainy day?",
    "How far is the moon?",
)

pytestmark = pytest.mark.long


async def test_a_conversation_past_the_window_is_compacted_and_goes_on(tmp_path: Path) -> None:
    """Compaction brings each request back under the window; its own is mostly read from cache."""
    require_local_model()
    model = open_model("local:smollm2", context_window=WINDOW)
    engine = BasicCompactionEngine(model, threshold=0.7)
    runner = ReactLoopAgent(
        model,
        system="Answer in two short sentences.",
        temperature=0.0,
        max_output_tokens=64,
        compaction=engine,
    )
    url = f"sqlite:{tmp_path}/s.db"
    async with open_store(url) as store, store.session("s", load="all") as session:
        for number in range(24):
            result = await runner.run(session, ASKED[number % len(ASKED)])
            assert result.error is None, number
            assert result.text
            reported = measure(session).reported
            assert reported is not None
            assert reported < WINDOW
        assert said_in(session) > WINDOW * 5 // 4
        done = [each for each in compactions(session) if each.status == "done"]
        assert len(done) >= 2
        assert all((each.gain or 0) > 0 for each in done)
        used = [
            event.data.usage
            for event in session.events
            if isinstance(event.data, CompactionSummary)
            and event.data.usage is not None
            and event.data.attempt == 1
        ]
        assert used
        for usage in used:
            cached, fresh = usage.cache_read_tokens, usage.input_tokens
            assert cached is not None
            assert fresh is not None
            assert cached >= (cached + fresh) / 2
        assert_lawful(session)


def said_in(session: Session) -> int:
    """About how many tokens a person reads of the conversation."""
    return sum(DEFAULT.text(message.text) for message in session.extract_chat_messages())


async def test_a_prompt_that_overflows_for_real_is_recovered_from(tmp_path: Path) -> None:
    """The server refuses the request; what came before is compacted, and the step is answered."""
    require_local_model()
    model = open_model("local:smollm2", context_window=WINDOW)
    blind = BasicCompactionEngine(model, threshold=10 * WINDOW)
    runner = ReactLoopAgent(
        model, system="Be brief.", temperature=0.0, max_output_tokens=32, compaction=blind
    )
    async with open_store(f"sqlite:{tmp_path}/s.db") as store, store.session("s") as session:
        for number in range(12):
            session.add_user(f"Note {number}: {'the weather is fine and the sea is calm ' * 6}")
            session.add_assistant("Noted.")
        result = await runner.run(session, "How is the weather?")
        assert result.error is None
        assert result.text
        begun = [e.data for e in session.events if isinstance(e.data, CompactionStart)]
        assert [start.reason for start in begun] == ["overflow"]
        assert measure(session).tokens < WINDOW
        assert_lawful(session)
