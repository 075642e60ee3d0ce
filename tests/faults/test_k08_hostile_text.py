"""Text that breaks readers, writers, hashes and databases, by whatever way it comes."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from tests.faults.scenes import agent, assert_lawful, bodies, results, sent
from tests.store_urls import STORES, url_of
from turnlog import Session, ToolCall, open_store, register_event_type, user_message
from turnlog.errors import AdmissionError
from turnlog.events import unregister_event_type
from turnlog.interop.exporting import to_jsonl
from turnlog.interop.importing import find
from turnlog.testing import Call, Think
from turnlog.testing.builders import Author

HALF = "half \ud83d of a character"
HOSTILE = {
    "separators": "a\u2028b\u2029c\x85d\ve\ff\x1cg\x1dh\x1ei\r\nj\rk\nl",
    "nul": "a\x00b",
    "surrogates": HALF,
    "controls": "\x01\x1b[31m\ufeff\ufffe\uffff",
}
every_store = pytest.mark.parametrize("name", STORES)
hostile = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())


@hostile
@every_store
async def test_every_read_path_finds_the_same_events(name: str, tmp_path: Path, text: str) -> None:
    """Loading, listing, following, exporting, importing, forking and repair agree on the log."""
    async with open_store(url_of(name, tmp_path / "store")) as store:
        async with store.session("s") as session:
            session.add_user(text)
            session.add_assistant(ToolCall("c1", "read", "{}"))
            session.add_tool_result("c1", text)
            expected = list(session.events)
        async with store.session("s") as session:
            assert list(session.events) == expected
        assert list((await store.read("s")).events) == expected
        (info,) = [info async for info in store.sessions()]
        assert (info.events, info.messages, info.health) == (3, 1, "ok")
        followed: list[Any] = []
        async for event in store.tail("s", after=-1):
            followed.append(event)
            if len(followed) == 3:
                break
        assert followed == expected
        child = await store.read(await store.fork("s", at=2))
        assert list(child.events[:3]) == expected
        exported = tmp_path / "exported.jsonl"
        exported.write_bytes(b"".join(to_jsonl(await store.read("s"))))
    (found,) = find(exported)
    assert list(found.read(None)) == expected


@hostile
async def test_a_list_that_is_built_again_says_the_same(tmp_path: Path, text: str) -> None:
    """With its side data gone a session is neither untitled nor empty."""
    async with open_store(f"jsonl:{tmp_path}") as store:
        async with store.session("s") as session:
            session.add_user(f"title {text}")
        before = [info async for info in store.sessions()]
        for path in (tmp_path / "s").glob("*.json"):
            path.unlink()
        assert [info async for info in store.sessions()] == before
        assert before[0].title.startswith("title ")
        assert before[0].events == 1


@hostile
@every_store
async def test_a_hostile_tool_result_is_taken_and_resumed_three_times(
    name: str, tmp_path: Path, text: str
) -> None:
    """What the log took once it takes always: the result is equal each time, and is sent."""

    def dump() -> str:
        return text

    async with open_store(url_of(name, tmp_path)) as store:
        async with store.session("s") as session:
            await agent([Call("dump", id="c1")], ["seen"], tools=[dump]).run(session, "go")
        for _ in range(3):
            async with store.session("s") as session:
                assert results(session)[0][1] == text
                await agent(["on"], tools=[dump]).run(session, "again")
                assert_lawful(session)


REFUSED = {
    "2^63": 2**63,
    "2^64": 2**64,
    "-2^63 - 1": -(2**63) - 1,
    "nan": float("nan"),
    "infinity": float("inf"),
    "bytes": b"x",
    "set": {1},
    "key": {1: 2},
    "deep": reduce(lambda inner, _: [inner], range(600), 0),
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED.keys())
@every_store
async def test_what_is_no_payload_is_refused_before_anything_is_stored(
    name: str, tmp_path: Path, value: Any
) -> None:
    """In every field that takes any value: the append is refused, and the log stays as it was."""
    kind = register_event_type("acme/said")
    try:
        async with open_store(url_of(name, tmp_path)) as store:
            async with store.session("s") as session:
                session.add_user("before")
                await session.flush()
                for data in (value, [value], {"in": {"deep": [value]}}):
                    with pytest.raises(AdmissionError):
                        session.append(kind, data)
                assert len(session) == session.durable_seq == 1
                session.add_user("after")
            stored = await store.read("s")
            assert [message.text for message in stored.derive_messages()] == ["before", "after"]
    finally:
        unregister_event_type("acme/said")


async def test_half_a_character_in_a_prompt_is_kept_and_replaced_when_sent() -> None:
    """The log has the lone surrogate; only the outgoing copy has U+FFFD, and is sent once."""
    session = Session.create("s")
    runner = agent(["fine"])
    await runner.run(session, HALF)
    assert session.derive_messages()[0].text == HALF
    (body,) = sent(runner)
    assert HALF.replace("\ud83d", "\ufffd").encode() in body
    assert_lawful(session)


async def test_half_a_character_from_the_model_is_stored_and_proved(tmp_path: Path) -> None:
    """Chunks, message, digest and proof take it, live and from disk."""
    async with open_store(f"jsonl:{tmp_path}") as store:
        async with store.session("s") as session:
            runner = agent([Think(HALF), HALF], ["fine"])
            await runner.run(session, "hi")
            await runner.run(session, "and?")
        async with store.session("s") as session:
            assert session.derive_messages()[1].text == HALF
            assert_lawful(session)


def test_half_a_character_enters_by_every_way_alike() -> None:
    """Tool results, arguments, summaries, imports, context and an application's own events."""
    kind = register_event_type("acme/said")
    try:
        author = Author(Session.create("s"))
        session = author.session
        session.add_user(HALF)
        session.add_context(HALF)
        session.add_assistant(ToolCall("c1", "read", f'{{"path": "{HALF}"}}'))
        session.add_tool_result("c1", HALF)
        session.append(kind, {"said": HALF, HALF: 1})
        author.compact(0, 0, HALF)
        imported = Session.from_messages([{"role": "user", "content": HALF}])
        for made in (session, imported):
            again = Session.from_events(made.header, [e.to_dict() for e in made.events])
            assert list(again.events) == list(made.events)
            assert bodies(again) == bodies(made)
            assert user_message(HALF).text in [m.text for m in again.derive_messages()]
            assert_lawful(again)
    finally:
        unregister_event_type("acme/said")
