"""Recall: what was compacted away, found by words or by seq."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.agent.scenes import agent, results
from turnlog import ReactLoopAgent, Session, open_store
from turnlog.agent.recalling import NOTHING, recall_tool
from turnlog.agent.tools import InvalidTool
from turnlog.compaction.recall import BUDGET, into_context, recall, text_of, told
from turnlog.content import Reasoning, Text, ToolCall
from turnlog.errors import InvalidSearch, NoMessage, NoSuchEvent, NotLoaded
from turnlog.models.scripted import Call, ScriptedModel
from turnlog.stores.resuming import WHOLE
from turnlog.testing.builders import Author
from turnlog.testing.strategies import histories
from turnlog.words import asked, terms


def compacted(*said: str) -> Session:
    """A session whose messages are all shadowed, and one that is not."""
    session = Session.create("s")
    for i, text in enumerate(said):
        session.add_assistant(text) if i % 2 else session.add_user(text)
    session.replace(0, len(said) - 1, "They talked about the database and its port.")
    session.add_user("And now the database again?")
    return session


# -- by words ----------------------------------------------------------------------------------


def test_words_find_what_the_model_no_longer_sees() -> None:
    """Neither the summary nor what is still on the surface is a hit."""
    session = compacted("The database listens on port 5433.", "Noted.", "Lunch is at noon.")
    (hit,) = recall(session, "Which port does the DATABASE have?")
    assert (hit.seq, hit.role, hit.text) == (0, "user", "The database listens on port 5433.")
    assert recall(session, "summary talked") == ()


def test_rare_words_count_more_than_frequent_ones() -> None:
    """The message with the word that hardly any other has comes first."""
    filler = [f"the build of the module {i} is the fastest of the builds" for i in range(20)]
    session = compacted(*filler, "zanzibar is the password", *filler)
    assert recall(session, "the build of the zanzibar")[0].seq == 20


def test_of_equals_the_latest_comes_first() -> None:
    """What was said last is more likely to hold still."""
    session = compacted("limit is ten", "limit is two", "noon")
    assert [hit.seq for hit in recall(session, "limit")] == [1, 0]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("部署の前にバックアップを取る", "バックアップ"),
        ("黒い猫がいる", "猫"),
        ("数据库端口是五四三三", "数据库端口"),
        ("Die Straße heißt Müllerweg", "strasse mullerweg"),
        ("пароль — ёлка", "елка"),
        ("use the read_file tool", "read_file"),
        ("two deployments failed", "deploy"),
    ],
)
def test_scripts_and_forms(text: str, query: str) -> None:
    """Pairs of characters where no spaces are, no accents, no case, beginnings of words."""
    session = compacted("nothing here", text, "もう一つの文章です", "иной текст")
    assert recall(session, query)[0].seq == 1


def test_calls_and_results_are_found_reasoning_is_not() -> None:
    """A call by its arguments, a result by its text."""
    session = Session.create("s")
    session.add_assistant([Reasoning("secret thought"), ToolCall("c", "grep", '{"word":"otter"}')])
    session.add_tool_result("c", "badger")
    session.replace(0, 1, "looked")
    assert [hit.seq for hit in recall(session, "otter")] == [0]
    assert [(hit.seq, hit.role) for hit in recall(session, "badger")] == [(1, "tool")]
    assert recall(session, "secret") == ()


def test_the_original_of_a_pruned_result_is_found() -> None:
    """What the pruner cut away is still in the original."""
    author = Author(Session.create("s"))
    session = author.session
    session.add_assistant(ToolCall("c", "cat", "{}"))
    whole = "head " + "x " * 5000 + "needle " + "y " * 5000 + "tail"
    seq = session.add_tool_result("c", whole).seq
    author.prune(seq, "head … tail")
    (hit,) = recall(session, "needle")
    assert (hit.seq, hit.text) == (seq, whole)
    assert "needle" in hit.snippet
    assert len(hit.snippet) < 250


def test_what_was_recalled_is_not_found_again() -> None:
    """A recalled message that is compacted does not stand beside its original."""
    session = compacted("the key is under the mat")
    session.append("turn/start", {"turn": 1})
    recalled = into_context(session, recall(session, "key"))
    session.replace(1, recalled.seq, "more was said")
    assert [hit.seq for hit in recall(session, "key mat")] == [0]


def test_pinned_copies_are_not_found() -> None:
    """Only the event itself is; what carries it repeats it."""
    session = Session.create("s")
    session.add_user("never touch prod")
    session.replace(0, 0, "they talked")
    session.pin(0)
    session.replace(1, session.surface.seqs[-1], "and talked")
    assert [hit.seq for hit in recall(session, "prod")] == [0]


def test_the_limit() -> None:
    """There are at most so many hits, and at least one may be asked for."""
    session = compacted(*(f"same words {i}" for i in range(9)))
    assert len(recall(session, "same", limit=3)) == 3
    with pytest.raises(InvalidSearch, match="limit"):
        recall(session, "same", limit=0)


@pytest.mark.parametrize("query", ["", " ", "…?!"])
def test_a_query_without_words(query: str) -> None:
    """It is refused rather than answered with nothing."""
    with pytest.raises(InvalidSearch, match="expected a word"):
        recall(compacted("a"), query)


@given(histories(), st.data())
def test_every_shadowed_word_is_found(session: Session, data: st.DataObject) -> None:
    """Whatever was said and is shadowed, some hit for one of its words holds that word."""
    gone = [
        event
        for event in session.events
        if event.surface_op == "append" and event.seq not in session.surface and event.message
    ]
    said = [(event.seq, asked(text_of(event.message))) for event in gone if event.message]
    said = [(seq, words) for seq, words in said if words]
    if said:
        seq, words = data.draw(st.sampled_from(said))
        word = data.draw(st.sampled_from(words))
        hits = recall(session, word, limit=1000)
        assert seq in {hit.seq for hit in hits}
        assert all(any(term.startswith(word) for term in terms(hit.text)) for hit in hits)
        assert hits == recall(Session.from_events(session.header, session.events), word, limit=1000)


def test_a_number_amid_chinese_is_a_word() -> None:
    """What stands right behind a script without spaces is found by itself."""
    session = compacted("我有37个苹果", "nothing of the kind")
    assert [hit.seq for hit in recall(session, "37")] == [0]


def test_a_needle_in_a_thousand() -> None:
    """One fact among much that is like it is the first hit for its question."""
    rng = random.Random(4)  # noqa: S311 - the same on every run
    names = [f"{a}{b}" for a in ("alpha", "beta", "gamma", "delta") for b in "abcdefghij"]
    lines = [
        f"service {n} runs on host {rng.choice(names)} port {rng.randrange(9999)}" for n in names
    ]
    session = compacted(*lines * 25, "service omega runs on host ganymede port 4711", *lines)
    assert recall(session, "on which host and port does service omega run?")[0].seq == 1000


# -- by seq ------------------------------------------------------------------------------------


def test_a_seq_finds_any_message() -> None:
    """Also the one that is on the surface, and the summary."""
    session = compacted("first words", "second")
    assert recall(session, 0)[0].text == "first words"
    assert recall(session, 2)[0].text.startswith("They talked")
    assert recall(session, 3)[0].text == "And now the database again?"


def test_a_seq_without_a_message() -> None:
    """What is no message, or not there, says so."""
    session = compacted("a")
    session.append("turn/start", {"turn": 1})
    with pytest.raises(NoMessage, match="turn/start"):
        recall(session, session.next_seq - 1)
    with pytest.raises(NoSuchEvent):
        recall(session, 99)


# -- told --------------------------------------------------------------------------------------


def test_a_long_text_is_told_in_parts_that_join() -> None:
    """Each part says how to have the next one; together they are the text."""
    text = "".join(f"{i:05d} " for i in range(1000))
    session = compacted(text, "short")
    joined, offset = "", 0
    while True:
        head, _, body = told(recall(session, 0), 1500, offset).partition(":\n")
        body, cut, rest = body.partition("\n[")
        assert "event 0" in head
        joined += body
        if not cut:
            break
        offset = len(joined)
        assert f"offset {offset}" in rest
    assert joined == text


def test_what_is_told_is_bounded() -> None:
    """However many and long the hits are; what has no room is shown by its snippet."""
    session = compacted(*(f"word {i} " + "x" * 5000 for i in range(9)))
    said = told(recall(session, "word", limit=9))
    assert len(said) < BUDGET + 9 * 400
    assert said.count("Recalled from event") == 9


def test_recalled_text_enters_the_context_with_its_provenance() -> None:
    """A context message cites the events, and the model reads their seqs."""
    session = compacted("the key is under the mat", "ok", "the key of the car is lost")
    hits = recall(session, "key")
    event = into_context(session, hits)
    assert event.type == "context/message"
    assert sorted(event.source_event_seqs or ()) == [0, 2]
    assert session.derive_messages()[-1].text.count("Recalled from event") == 2
    with pytest.raises(NoMessage):
        into_context(session, ())


# -- the tool ----------------------------------------------------------------------------------


async def test_a_model_recalls_by_words_and_by_seq() -> None:
    """The tool's results name the event, and wrong arguments are answered with what is right."""
    session = compacted("the key is under the mat", "ok")
    calls = [
        Call("recall", {"query": "where is the key"}, id="a"),
        Call("recall", {"seq": 0, "offset": 11}, id="b"),
        Call("recall", {"query": "unicorn"}, id="c"),
        Call("recall", {}, id="d"),
        Call("recall", {"seq": 77}, id="e"),
        Call("recall", {"query": "?"}, id="f"),
    ]
    tools = [recall_tool(session)]
    await agent(calls, ["thanks"], tools=tools).run(session, "find it")
    said = [text for _, text, _ in results(session)]
    assert said[0] == "Recalled from event 0 (user):\nthe key is under the mat"
    assert said[1].endswith("under the mat")
    assert "from character 11" in said[1]
    assert said[2] == NOTHING
    assert "either query or seq" in said[3]
    assert "77" in said[4]
    assert "expected a word" in said[5]


async def test_an_agent_gives_its_model_the_tool() -> None:
    """In each session it finds what was said there; a tool of the same name is refused."""
    model = ScriptedModel([Call("recall", {"query": "key"}), "thanks"] * 2)
    made = ReactLoopAgent(model, recall=True)
    for place in ("the mat", "the pot"):
        session = compacted(f"the key is under {place}", "ok")
        await made.run(session, "find it")
        assert [text for _, text, _ in results(session)] == [
            f"Recalled from event 0 (user):\nthe key is under {place}"
        ]
    assert b'"recall"' in model.requests[0]
    with pytest.raises(InvalidTool, match="two tools are called 'recall'"):
        ReactLoopAgent(model, recall=True, tools=[recall_tool()])


async def test_the_tool_reads_from_the_store_what_is_not_in_memory(tmp_path: Path) -> None:
    """A session that was opened again finds what was shadowed before."""
    async with open_store(f"sqlite:{tmp_path / 's.db'}") as store:
        async with store.session("s") as session:
            session.add_user("the key is under the mat")
            for i in range(WHOLE):
                session.add_user(f"filler {i}")
            session.replace(0, WHOLE, "they talked")
        async with store.session("s") as session:
            assert session.first_held > 0
            with pytest.raises(NotLoaded):
                recall(session, "key")
            found = recall_tool(session).function
            for said in (await found(query="key"), await found(seq=0)):
                assert said == "Recalled from event 0 (user):\nthe key is under the mat"


def test_text_of_a_message_without_text() -> None:
    """Nothing is said by reasoning alone."""
    session = Session.create("s")
    session.add_assistant([Reasoning("hm"), Text("yes")])
    (message,) = session.derive_messages()
    assert text_of(message) == "yes"
