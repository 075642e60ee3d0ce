"""What goes in comes out equal: headers, events, ids, numbers, hostile text."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from turnlog.commands import Prompt
from turnlog.errors import NoSuchSession, SessionExists
from turnlog.events import AnyEvent, Replace
from turnlog.jsontext import INT_MAX, INT_MIN
from turnlog.testing.conformance import samples
from turnlog.testing.conformance.base import Handles, StoreSuite
from turnlog.testing.conformance.samples import (
    FIRST,
    NOON,
    answer,
    assert_same,
    assert_same_header,
    chunk,
    conversation,
    event,
    header,
    notes,
    prompt,
)


class ContentTests(StoreSuite):
    """A session comes out of the store as it went in."""

    # -- sessions ------------------------------------------------------------------------------

    async def test_a_created_session_is_there_and_empty(self, handles: Handles) -> None:
        """A created session exists for every handle, without events, and its next seq is 0."""
        async with handles.another() as store:
            assert not await store.exists("a")
            await store.create(header("a"))
            assert await store.exists("a")
        async with handles.another() as store:
            assert await store.exists("a")
            assert await store.next_seq("a") == 0
            assert list((await store.load("a")).events) == []

    async def test_a_taken_id_is_refused(self, handles: Handles) -> None:
        """Creating an id again is refused and changes nothing of the session that has it."""
        await handles.write(header("a", cwd="first"), notes(0, 2))
        store = await handles.open()
        with pytest.raises(SessionExists, match="a"):
            await store.create(header("a", cwd="second"))
        stored = await handles.load("a")
        assert stored.header.cwd == "first"
        assert_same(stored.events, notes(0, 2))

    async def test_an_unknown_session_is_never_an_empty_one(self, handles: Handles) -> None:
        """Whatever is asked of an id that nobody created, it is refused by name."""
        await handles.write("a", notes(0, 1))
        store = await handles.open()
        assert not await store.exists("b")
        questions: list[Callable[[], Awaitable[Any]]] = [
            lambda: store.load("b"),
            lambda: store.next_seq("b"),
            lambda: store.read("b", 0),
            lambda: store.claim("b", FIRST),
            lambda: store.inbox("b"),
            lambda: store.wait("b", -1, 0.0),
        ]
        for question in questions:
            with pytest.raises(NoSuchSession, match="b"):
                await question()
        assert not await store.exists("b")

    async def test_a_header_keeps_every_field(self, handles: Handles) -> None:
        """Every field of a header comes back, those of a foreign header too."""
        made = header(
            "fork",
            cwd="/somewhere",
            parent_session="parent",
            seed_length=7,
            source_format="dsh/v4",
            source_length=5,
            source={"type": "session", "nested": {"list": [1, 2.5, None, True]}},
        )
        await handles.write(made)
        assert_same_header((await handles.load("fork")).header, made)

    async def test_a_header_keeps_unknown_keys(self, handles: Handles) -> None:
        """Keys of a header that this version does not know come back at their place."""
        made = header("a", extra={"futureKey": {"deep": [1, {"er": None}]}, "另": "x"})
        await handles.write(made)
        found = (await handles.load("a")).header
        assert_same_header(found, made)
        assert found.extra == made.extra

    async def test_a_callers_header_is_copied(self, handles: Handles) -> None:
        """What a caller does to a header before or after does not reach the store."""
        made = header("a", source={"list": [1]})
        before = header("a", source={"list": [1]})
        store = await handles.open()
        await store.create(made)
        assert made.source is not None
        made.source["list"].append(2)
        first = (await store.load("a")).header
        assert_same_header(first, before)
        assert first.source is not None
        with contextlib.suppress(TypeError):  # or it cannot be changed
            first.source["list"].append(3)
        assert_same_header((await handles.load("a")).header, before)

    # -- ids -----------------------------------------------------------------------------------

    async def test_ids_that_differ_in_case_differ(self, handles: Handles) -> None:
        """Ids that differ only in the case of a letter name different sessions."""
        await self._kept_apart(handles, ["Support", "support", "SUPPORT", "straße", "STRASSE"])

    async def test_ids_that_differ_in_blanks_differ(self, handles: Handles) -> None:
        """Ids that differ only in leading or trailing blanks name different sessions."""
        await self._kept_apart(handles, ["x", "x ", " x", "x  ", "x\t", "x\n", "x\u00a0", " "])

    async def test_ids_are_never_paths(self, handles: Handles) -> None:
        """Dots, slashes, drive letters and device names in ids lead nowhere."""
        names = [
            ".",
            "..",
            "../up",
            "/abs",
            "b",
            "a/b",
            "a\\b",
            "a%2Fb",
            "a%b",
            "~",
            "-rf",
            "a.",
            ".a",
        ]
        await self._kept_apart(handles, [*names, "C:\\x", "CON", "nul.txt", "a*?", "a'b\"c;--"])

    async def test_ids_in_other_normal_forms_differ(self, handles: Handles) -> None:
        """Ids that look the same and are spelled in other code points name different sessions."""
        await self._kept_apart(handles, ["\u00e9", "e\u0301", "\u212b", "\u00c5", "A\u030a"])

    async def test_ids_may_be_long(self, handles: Handles) -> None:
        """Ids of thousands of characters that differ in the last one name different sessions."""
        await self._kept_apart(handles, ["x" * 255, "x" * 256, *["漢" * 3000 + s for s in "abc"]])

    async def test_ids_may_be_any_text(self, handles: Handles) -> None:
        """NUL, lone surrogates, line separators and astral characters may be part of an id."""
        texts = [samples.NUL, samples.SURROGATES, samples.LINES, samples.CONTROLS, samples.PLANES]
        await self._kept_apart(handles, [*texts, "a", "a\x00", "\ud800", "\ufffd", "?"])

    async def _kept_apart(self, handles: Handles, ids: list[str]) -> None:
        async with handles.another() as store:
            for i, session_id in enumerate(ids):
                await store.create(header(session_id, cwd=str(i)))
                await store.post(session_id, Prompt(f"for {i}", id=f"c{i}"))
        for i, session_id in enumerate(ids):
            stored = await handles.load(session_id)
            assert (stored.header.id, stored.header.cwd) == (session_id, str(i))
        async with handles.another() as store:
            assert {info.id async for info in store.sessions()} == set(ids)
            for i, session_id in enumerate(ids):
                (queued,) = await store.inbox(session_id)
                assert queued.command == Prompt(f"for {i}", id=f"c{i}")

    # -- events --------------------------------------------------------------------------------

    async def test_a_conversation_comes_back(self, handles: Handles) -> None:
        """A turn with chunks, a tool call and a compaction comes back, event for event."""
        events = conversation()
        await handles.write("a", events[:4], events[4:8], events[8:])
        assert_same((await handles.load("a")).events, events)

    async def test_payloads_come_back_byte_for_byte(self, handles: Handles) -> None:
        """Blanks, escapes, spellings of numbers and doubled keys of a payload are not rewritten."""
        spelled = [
            rb'{ "a" : 1 ,  "b":[ ] }',
            rb'{"b":1,"a":2,"b":3}',
            rb'"\u00e9\/\u0041\u2028"',
            rb"[1.0,1e2,1E+2,100e-2,-0,-0.0,0.10]",
            rb"[ null,  [ ] , {} ]",
        ]
        events = [event(i, raw=raw) for i, raw in enumerate(spelled)]
        events.append(event(len(events), raw=spelled[0], extra={"k": 1}))
        await handles.write("a", events)
        assert_same((await handles.load("a")).events, events)

    async def test_provenance_keeps_its_order(self, handles: Handles) -> None:
        """What an event cites comes back in the order in which it was cited."""
        cited: list[Any] = [[9], [0, 1], [1, 0], [5, 4, 3, 9, 0], [2, 3, 4, 0, 6, 7, 8, 1]]
        cited += [range(3, 9), list(range(9, -1, -1))]
        events = notes(0, 10)
        events += [answer(10 + i, "x", cited=seqs) for i, seqs in enumerate(cited)]
        await handles.write("a", events)
        assert_same((await handles.load("a")).events, events)

    async def test_empty_provenance_is_not_absent(self, handles: Handles) -> None:
        """An empty list of cited events stays apart from none."""
        events = [answer(0, "nothing streamed", cited=[]), answer(1, "not recorded")]
        await handles.write("a", events)
        first, second = (await handles.load("a")).events
        assert first.source_event_seqs is not None
        assert list(first.source_event_seqs) == []
        assert second.source_event_seqs is None

    async def test_surface_operations_come_back(self, handles: Handles) -> None:
        """Append, replace of one node, replace of a range, and none at all stay what they are."""
        events = [
            prompt(0, "one"),
            prompt(1, "two"),
            event(2, {}),
            prompt(3, "both", op=Replace(0, 1), cited=[0, 1]),
            prompt(4, "again", op=Replace(3, 3), cited=[3]),
            event(5, {}, type_name="acme/shown", op="append"),
        ]
        await handles.write("a", events)
        assert_same((await handles.load("a")).events, events)

    async def test_ignorable_marks_come_back(self, handles: Handles) -> None:
        """An event that its writer marked as ignorable is still marked, and only that one."""
        events = [event(0, {}, ignorable=True), event(1, {}), prompt(2, "x", ignorable=True)]
        events += [chunk(3 + i, "x", ignorable=i in {0, 3}) for i in range(8)]
        await handles.write("a", events)
        assert_same((await handles.load("a")).events, events)

    async def test_unknown_types_are_kept(self, handles: Handles) -> None:
        """Events of types that nobody knows come back, whatever their payload is."""
        payloads: list[Any] = [None, True, 0, "text", [], {}, [[[]]], {"": {"": ""}}]
        events = [event(i, data, type_name=f"other/{i}") for i, data in enumerate(payloads)]
        events.append(event(len(events), {}, type_name="no slash"))
        await handles.write("a", events)
        assert_same((await handles.load("a")).events, events)

    async def test_misfit_payloads_are_kept(self, handles: Handles) -> None:
        """A core event whose payload has not its type's shape comes back as it is."""
        events = [
            event(0, {"turn": "one"}, type_name="turn/start"),
            event(1, None, type_name="turn/end"),
            event(2, ["text"], type_name="user/message", op="append"),
            event(3, {"title": 7}, type_name="session/title"),
            event(4, {"chunk": None}, type_name="assistant/chunk"),
        ]
        await handles.write("a", events)
        assert_same((await handles.load("a")).events, events)

    async def test_unknown_envelope_keys_are_kept(self, handles: Handles) -> None:
        """Keys of an envelope that this version does not know come back with their values."""
        events = [
            event(0, {}, extra={"futureKey": [1, {"a": None}], "空": "x"}),
            event(1, {}),
            prompt(2, "x", extra={"id": "not ours", "raw": {"data": 1}}),
            *[chunk(3 + i, "x", extra={"lane": i}) for i in range(4)],
        ]
        await handles.write("a", events)
        assert_same((await handles.load("a")).events, events)

    async def test_chunk_runs_come_back_one_by_one(self, handles: Handles) -> None:
        """Runs of chunks, however a store packs them, come back as the events they were."""
        texts = ["Hel", "lo", "", " \u2028 ", '"text":null', '\\"', "\ud83d", "\ude00", "{"] * 4
        events: list[AnyEvent] = [chunk(i, text) for i, text in enumerate(texts)]
        for text in texts:
            events.append(chunk(len(events), text, field="argumentsDelta"))
        odd = {"turn": 1, "step": 1, "chunk": {"type": "text-delta", "index": 0, "text": 7}}
        events.append(event(len(events), odd, type_name="assistant/chunk"))
        await handles.write("a", events[:10], events[10:11], events[11:])
        assert_same((await handles.load("a")).events, events)

    async def test_ten_thousand_chunks_and_their_citation(self, handles: Handles) -> None:
        """A batch of ten thousand chunks and the message that cites them all is stored whole."""
        events = [chunk(i, f"word {i} ") for i in range(self.many)]
        events.append(answer(self.many, "all of it", cited=range(self.many)))
        await handles.write("a", events)
        assert_same((await handles.load("a")).events, events)

    async def test_order_comes_from_seq(self, handles: Handles) -> None:
        """Events whose clock stood still, or ran backwards, keep the order of their seqs."""
        times = [NOON, NOON - 5, NOON, NOON, NOON - 99, 0, NOON + 1, -1]
        events = [event(i, {}, time=time) for i, time in enumerate(times)]
        await handles.write("a", events[:5], events[5:])
        assert_same((await handles.load("a")).events, events)

    # -- text and numbers ----------------------------------------------------------------------

    async def test_nul_is_kept(self, handles: Handles) -> None:
        """NUL comes back from every field that takes text."""
        await self._carries(handles, samples.NUL)

    async def test_lone_surrogates_are_kept(self, handles: Handles) -> None:
        """Lone and reversed surrogates come back from every field that takes text."""
        await self._carries(handles, samples.SURROGATES)

    async def test_line_separators_are_kept(self, handles: Handles) -> None:
        """CR, LF, U+0085, U+2028, U+2029, VT, FF and FS-RS separate nothing, in any field."""
        await self._carries(handles, samples.LINES)

    async def test_control_characters_are_kept(self, handles: Handles) -> None:
        """Control characters, byte order marks, quotes and backslashes come back."""
        await self._carries(handles, samples.CONTROLS)

    async def test_every_plane_is_kept(self, handles: Handles) -> None:
        """Astral characters, joiners and both directions of writing come back."""
        await self._carries(handles, samples.PLANES)

    async def test_text_is_not_normalised(self, handles: Handles) -> None:
        """Composed and decomposed spellings come back as they were spelled."""
        await self._carries(handles, samples.FORMS)

    async def test_blanks_are_not_trimmed(self, handles: Handles) -> None:
        """Leading and trailing blanks come back from every field that takes text."""
        await self._carries(handles, samples.BLANKS)

    async def _carries(self, handles: Handles, text: str) -> None:
        made = header(
            "a",
            cwd=text,
            parent_session=text,
            source_format=text,
            source={text: [text]},
            extra={f"x{text}": text},
        )
        events = [
            event(0, text, type_name=f"acme/{text}"),
            event(1, {text: {text: [text, {text: text}]}}),
            prompt(2, text),
            answer(3, text),
            event(4, {}, extra={f"x{text}": [text, {text: text}]}),
            event(5, {"title": text, "messageSeqs": []}, type_name="session/title"),
            *[chunk(6 + i, piece) for i, piece in enumerate([text, "x", text, text])],
        ]
        command = Prompt(text, id=text, extra={f"x{text}": text})
        await handles.write(made, events)
        async with handles.another() as store:
            assert await store.post("a", command)
        stored = await handles.load("a")
        assert_same_header(stored.header, made)
        assert_same(stored.events, events)
        async with handles.another() as store:
            assert [queued.command for queued in await store.inbox("a")] == [command]
            assert [info.id async for info in store.sessions()] == ["a"]
            assert_same(await store.read("a", 0), events)

    async def test_numbers_come_back_equal(self, handles: Handles) -> None:
        """The bounds of integers and of floats, -0.0, and 1 beside 1.0 and true stay apart."""
        integers = [INT_MIN, INT_MIN + 1, -1, 0, 1, 2**53 + 1, INT_MAX - 1, INT_MAX]
        floats = [1.0, -0.0, 0.1, 1e308, -1e308, 5e-324, 1e22, 123456789.123456789, 1e16]
        numbers: list[Any] = [*integers, *floats, True, False]
        made = header("a", source={"numbers": numbers}, extra={"numbers": numbers})
        events = [event(i, {"number": number}) for i, number in enumerate(numbers)]
        events.append(event(len(events), numbers, extra={"numbers": numbers}))
        await handles.write(made, events)
        stored = await handles.load("a")
        assert_same_header(stored.header, made)
        assert_same(stored.events, events)

    async def test_times_may_be_extreme(self, handles: Handles) -> None:
        """Times at the bounds of integers come back, within runs of chunks too."""
        times = [INT_MIN, INT_MIN, -1, 0, INT_MAX - 1, INT_MAX]
        events = [chunk(i, "x", time=time) for i, time in enumerate(times)]
        events += [event(len(times), {}, time=INT_MAX)]
        await handles.write("a", events)
        assert_same((await handles.load("a")).events, events)

    async def test_deep_nesting_is_kept(self, handles: Handles) -> None:
        """Payloads of 500 levels come back."""
        lists: Any = "core"
        objects: Any = "core"
        for _ in range(500):
            lists, objects = [lists], {"in": objects}
        events = [event(0, lists), event(1, objects), event(2, [None] * 500)]
        await handles.write("a", events)
        assert_same((await handles.load("a")).events, events)

    async def test_large_payloads_are_kept(self, handles: Handles) -> None:
        """A string of twenty million characters comes back, and so do its neighbours."""
        text = ("0123456789 漢\U0001f600\n" * (self.large // 14 + 1))[: self.large]
        events = [event(0, {"before": 1}), event(1, {"output": text}), prompt(2, "after")]
        await handles.write("a", events)
        assert_same((await handles.load("a")).events, events)
