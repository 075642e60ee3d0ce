"""What a search finds is what a plain look at the log finds, in every store."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, product
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnlog.content import Message, Reasoning, Text, ToolCall
from turnlog.errors import InvalidSearch
from turnlog.session import Session
from turnlog.stores.memory import MemoryStore
from turnlog.stores.sqlite import SqliteStore
from turnlog.stores.store import Store
from turnlog.testing.strategies import TEXTS, histories, mangled
from turnlog.views.transcript import said
from turnlog.words import terms

_number = count()
Found = set[tuple[int, int | None]]


def naive(session: Session, word: str, *, tools: bool, context: bool) -> Found:
    """The messages that hold a word, by reading each, with what shadows it."""
    found: Found = set()
    for event in session.events:
        message = event.message
        if event.surface_op is None or message is None:
            continue
        if event.surface_op != "append":
            texts = said_in(message) if context and message.role != "tool" else ()
        elif message.role == "tool":
            texts = said_in(message) if tools else ()
        elif message.role == "assistant":
            texts = [*said_in(message), *(workings_of(message) if tools else ())]
        else:
            texts = said_in(message) if said(event, context=context) else ()
        if any(word in terms(text) for text in texts):
            found.add((event.seq, seen_instead(session, event.seq)))
    return found


def seen_instead(session: Session, seq: int) -> int | None:
    """What the model sees in the place of a message: what replaced what replaced it."""
    last = None
    while (found := session.surface.shadowed_by(seq)) is not None:
        last = seq = found
    return last


def said_in(message: Message) -> Iterator[str]:
    """The text blocks."""
    return (block.text for block in message.content if type(block) is Text)


def workings_of(message: Message) -> Iterator[str]:
    """Reasoning and calls."""
    for block in message.content:
        if type(block) is Reasoning:
            yield block.text
        elif type(block) is ToolCall:
            yield from (block.name, block.arguments)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file for all examples: an index that grows."""
    return tmp_path_factory.mktemp("searching") / "sessions.db"


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(session=histories() | mangled(), texts=st.lists(TEXTS, max_size=3), data=st.data())
def test_every_store_finds_what_is_there(
    file: Path, session: Session, texts: list[str], data: st.DataObject
) -> None:
    """Each word is found in the messages that hold it, in each part that is asked for."""
    name = f"s{next(_number)}"
    child = Session.from_events(session.header.__class__(name, 0), session.events)
    messages = [event.message for event in child.events if event.message is not None]
    wordings = [text for m in messages for text in (*said_in(m), *workings_of(m))]
    spoken = sorted({term for text in wordings for term in terms(text)})
    words = [*texts, *(data.draw(st.sampled_from(spoken)) for _ in range(min(len(spoken), 3)))]

    async def search() -> None:
        async with (
            Store(MemoryStore()) as memory,
            Store(SqliteStore(file, durability="none")) as sqlite,
        ):
            for store in (memory, sqlite):
                await store.save(child)
            for word, tools, context in product(words, (False, True), (False, True)):
                options = {"include_tools": tools, "include_context": context}
                try:
                    plain = await memory.search(word, session=name, limit=1000, **options)
                except InvalidSearch:
                    assert terms(word) == []
                    continue
                hits = await sqlite.search(word, session=name, limit=1000, **options)
                by_seq = {hit.seq: hit for hit in plain}
                for hit in hits:
                    same = by_seq.pop(hit.seq)
                    assert (hit.kind, hit.snippet, hit.matches) == (
                        same.kind,
                        same.snippet,
                        same.matches,
                    )
                    assert (hit.shadowed_by, hit.time) == (same.shadowed_by, same.time)
                assert by_seq == {}
                if terms(word) == [word] and len(word) > 1:
                    expected = naive(child, word, tools=tools, context=context)
                    assert {(hit.seq, hit.shadowed_by) for hit in hits} == expected

    anyio.run(search)
