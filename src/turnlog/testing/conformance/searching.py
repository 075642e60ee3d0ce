"""Full-text search: every store finds the same messages, whether it has an index or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from turnlog.errors import InvalidSearch, NoSuchSession
from turnlog.testing.conformance.base import Handles, StoreSuite
from turnlog.testing.conformance.samples import (
    BLANKS,
    CONTROLS,
    FORMS,
    LINES,
    NOON,
    NUL,
    PLANES,
    SURROGATES,
    answer,
    conversation,
    event,
    prompt,
)

if TYPE_CHECKING:
    from turnlog.stores.searching import Hit

HOSTILE = (NUL, SURROGATES, LINES, CONTROLS, PLANES, FORMS, BLANKS)
OPERATORS = ('a" OR "b', "said : x", "NEAR(p q, 2)", "^first -not +must", "x AND", "'; --", "100%_")


class SearchTests(StoreSuite):
    """What is found, where, and in which order."""

    async def test_words_are_found(self, handles: Handles) -> None:
        """A hit says where it is, who said it and when, and shows the words as written."""
        await handles.write("a", [prompt(0, "Where is the Café?"), answer(1, "In the old town.")])
        async with handles.store() as store:
            (hit,) = await store.search("CAFE")
            assert (hit.session, hit.seq) == ("a", 0)
            assert (hit.kind, hit.time, hit.shadowed_by) == ("user", NOON, None)
            assert hit.snippet == "Where is the Café?"
            assert [hit.snippet[start:end] for start, end in hit.matches] == ["Café"]
            (hit,) = await store.search("town")
            assert (hit.kind, hit.seq, hit.time) == ("assistant", 1, NOON + 1)
            assert await store.search("village") == []

    async def test_all_words_must_occur(self, handles: Handles) -> None:
        """A message that lacks one of the words is not found; their order does not matter."""
        await handles.write("a", [prompt(0, "red and green"), answer(1, "red and blue")])
        async with handles.store() as store:
            assert places(await store.search("red")) == {("a", 0), ("a", 1)}
            assert places(await store.search("blue red")) == {("a", 1)}

    async def test_a_phrase_is_words_in_a_row(self, handles: Handles) -> None:
        """Quoted words are found only where they follow on each other, and so are parts of one."""
        await handles.write("a", [prompt(0, "to be or not"), answer(1, "be quick to_be")])
        async with handles.store() as store:
            assert places(await store.search('"be or"')) == {("a", 0)}
            assert places(await store.search('"be quick"')) == {("a", 1)}
            assert places(await store.search('"to be"')) == {("a", 0), ("a", 1)}
            assert places(await store.search("be_quick")) == {("a", 1)}
            assert await store.search('"be to"') == []

    async def test_a_star_asks_for_a_beginning(self, handles: Handles) -> None:
        """A word is a whole word, unless a star follows."""
        await handles.write("a", [prompt(0, "scattering"), answer(1, "scatter")])
        async with handles.store() as store:
            assert places(await store.search("scatter")) == {("a", 1)}
            assert places(await store.search("scatter*")) == {("a", 0), ("a", 1)}

    async def test_scripts_without_spaces(self, handles: Handles) -> None:
        """Of Chinese, Japanese and Korean any two characters in a row are found, and any one."""
        texts = ["全文检索系统的设计", "東京都に行きました。", "한국어를 배워요", "Python入門"]
        await handles.write("a", [prompt(seq, text) for seq, text in enumerate(texts)])
        async with handles.store() as store:
            for seq, queries in enumerate(
                (
                    ("全文", "检索", "设计", "全文检索系统", "文", "计"),
                    ("京都", "東京都", "行き", "た", "都に"),
                    ("한국어", "국어", "배워요", "요"),
                    ("入門", "python入門", "門"),
                )
            ):
                for query in queries:
                    assert places(await store.search(query)) == {("a", seq)}, query
            for query in ("文全", "东京", "全检", "京東"):
                assert await store.search(query) == [], query

    async def test_tools_and_context_are_found_when_asked_for(self, handles: Handles) -> None:
        """Results of tools, and what stands for compacted messages, are found only on demand."""
        await handles.write("a", conversation())
        async with handles.store() as store:
            assert await store.search("readme") == []
            (hit,) = await store.search("readme", include_tools=True)
            assert (hit.kind, hit.seq, hit.snippet) == ("tool", 8, "README.md")
            assert await store.search("summary", include_tools=True) == []
            (hit,) = await store.search("summary", include_context=True)
            assert (hit.kind, hit.seq, hit.snippet) == ("summary", 11, "A summary.")

    async def test_what_was_compacted_is_found_and_marked(self, handles: Handles) -> None:
        """What the model sees no longer is found with what it sees instead, or left out."""
        await handles.write("a", [*conversation(), prompt(12, "What else?")])
        async with handles.store() as store:
            found = {hit.seq: hit.shadowed_by for hit in await store.search("what")}
            assert found == {2: 11, 12: None}
            assert places(await store.search("what", include_shadowed=False)) == {("a", 12)}

    async def test_a_fork_is_searched_without_what_it_inherited(self, handles: Handles) -> None:
        """What a fork shares is found once, in its parent; inside the fork it is found, too."""
        await handles.write("a", [prompt(0, "shared words"), answer(1, "later words")])
        async with handles.store() as store:
            await store.fork("a", at=0, new_id="b")
            async with store.session("b") as session:
                seq = session.add_user("own words").seq
            assert places(await store.search("words")) == {("a", 0), ("a", 1), ("b", seq)}
            inside = await store.search("words", session="b")
            assert places(inside) == {("b", 0), ("b", seq)}
            assert {hit.title for hit in inside} == {"shared words"}
            assert places(await store.search("words", session="a")) == {("a", 0), ("a", 1)}

    async def test_the_best_come_first_page_by_page(self, handles: Handles) -> None:
        """Where a word stands more densely is better; pages follow on each other."""
        filler = " ".join(f"filler{i}" for i in range(40))
        texts = [f"apple {filler}", "apple apple apple", f"apple {filler} {filler} {filler}"]
        await handles.write("a", [prompt(seq, text) for seq, text in enumerate([*texts, "pear"])])
        async with handles.store() as store:
            hits = await store.search("apple")
            assert [hit.seq for hit in hits] == [1, 0, 2]
            assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
            assert await store.search("apple", limit=2) == hits[:2]
            assert await store.search("apple", limit=2, skip=1) == hits[1:]
            assert await store.search("apple", skip=3) == []

    async def test_what_was_said_since_is_found(self, handles: Handles) -> None:
        """A search finds what became durable since the last one, by this store or another."""
        async with handles.store() as store, handles.store() as other:
            assert await store.search("word") == []
            async with store.session("a") as session:
                session.add_user("a first word")
                await session.flush()
                assert places(await store.search("word")) == {("a", 0)}
                session.add_assistant("another word")
            async with other.session("b") as session:
                session.add_user("a word elsewhere")
            expected = {("a", 0), ("a", 1), ("b", 0)}
            assert places(await store.search("word")) == expected
            assert places(await other.search("word")) == expected
        async with handles.store() as store:
            assert places(await store.search("word")) == expected

    async def test_queries_and_texts_may_hold_anything(self, handles: Handles) -> None:
        """No text is an operator or an error; one without a word is refused as that."""
        events = [prompt(seq, f"needle {text}") for seq, text in enumerate(HOSTILE)]
        broken = event(len(events), {"id": 1, "role": []}, type_name="user/message", op="append")
        await handles.write("a", [*events, broken])
        async with handles.store() as store:
            assert places(await store.search("needle")) == {("a", e.seq) for e in events}
            for text in (*HOSTILE, *OPERATORS):
                for query in (text, f'"{text}', f"{text}*", f"x{text}x"):
                    try:
                        await store.search(query, include_tools=True, include_context=True)
                    except InvalidSearch:
                        assert not any(char.isalnum() for char in query)
            for query in ("", '"', "*", "\x00", "\ud800", "👍"):
                with pytest.raises(InvalidSearch):
                    await store.search(query)
            with pytest.raises(InvalidSearch, match="limit"):
                await store.search("needle", limit=0)

    async def test_searching_in_no_session(self, handles: Handles) -> None:
        """Searching in a session that does not exist is an error, not an empty answer."""
        await handles.write("a", [prompt(0, "needle")])
        async with handles.store() as store:
            with pytest.raises(NoSuchSession, match="b"):
                await store.search("needle", session="b")


def places(hits: Sequence[Hit]) -> set[tuple[str, int]]:
    """Where hits are; no place twice."""
    found = [(hit.session, hit.seq) for hit in hits]
    assert len(found) == len(set(found)), found
    return set(found)
