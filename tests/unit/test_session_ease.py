"""The everyday forms of a session: shadowing by hand, JSONL in and out, clear refusals."""

from __future__ import annotations

import pytest
from hypothesis import given

import turnlog
from turnlog.errors import (
    InvalidContent,
    InvalidHeader,
    InvalidPayload,
    NoSuchEvent,
    NotOnSurface,
    UnknownEventType,
)
from turnlog.testing.strategies import histories


def talk() -> turnlog.Session:
    """Two prompts, two answers."""
    session = turnlog.Session.create("s")
    for number in range(2):
        session.add_user(f"question {number}")
        session.add_assistant(f"answer {number}")
    return session


def test_replace_shadows_a_stretch_and_cites_it() -> None:
    """One call puts a summary in the place of nodes, with their provenance."""
    session = talk()
    event = session.replace(0, 2, "so far")
    assert event.source_event_seqs == (0, 1, 2) or event.source_event_seqs == range(3)
    assert session.surface.seqs == [4, 3]
    assert [m.text for m in session.derive_messages()] == ["so far", "answer 1"]


@pytest.mark.parametrize(("start", "end"), [(7, 7), (0, 9)])
def test_replace_refuses_what_is_not_on_the_surface(start: int, end: int) -> None:
    """A stretch that is not there is refused, and nothing changes."""
    session = talk()
    with pytest.raises(NotOnSurface):
        session.replace(start, end, "x")
    assert len(session) == 4


@pytest.mark.parametrize("content", ["", [], [""], 3, None, {"a": 1}, [{"type": "text"}]])
def test_content_that_says_nothing_is_refused(content: object) -> None:
    """An empty prompt is a typed error that shows what came."""
    session = talk()
    with pytest.raises((InvalidPayload, InvalidContent), match="expected text, a block"):
        session.add_user(content)  # pyright: ignore[reportArgumentType] - that is the test
    assert len(session) == 4


def test_a_misspelt_type_is_answered_with_the_one_that_was_meant() -> None:
    """The error of an unknown type names the nearest known one."""
    with pytest.raises(UnknownEventType, match="did you mean 'turn/start'"):
        talk().append("turn/strat", {"turn": 1})  # pyright: ignore[reportCallIssue, reportArgumentType]


@given(histories())
def test_jsonl_gives_back_the_same_session(session: turnlog.Session) -> None:
    """What `to_jsonl` writes, `from_jsonl` reads: header, events, views."""
    again = turnlog.Session.from_jsonl(session.to_jsonl())
    assert again.header == session.header
    assert list(again.events) == list(session.events)
    assert again.derive_messages() == session.derive_messages()


def test_bytes_that_are_no_session_are_refused() -> None:
    """A file of something else is a typed error."""
    with pytest.raises(InvalidHeader):
        turnlog.Session.from_jsonl(b'{"type":"session"}\n')


@pytest.mark.parametrize("wrong", [5, ["a"], ""])
def test_an_id_that_is_no_text_is_refused(wrong: object) -> None:
    """A session's id is a non-empty string, whoever makes it."""
    with pytest.raises(InvalidHeader):
        turnlog.Session.create(wrong)  # pyright: ignore[reportArgumentType] - that is the test


@pytest.mark.parametrize("wrong", [1.0, "2", -2, 99, None])
def test_a_seq_that_is_none_is_refused(wrong: object) -> None:
    """Views at something that is no seq of the log say what was expected."""
    with pytest.raises(NoSuchEvent):
        talk().surface.at(wrong)  # pyright: ignore[reportArgumentType] - that is the test


@pytest.mark.parametrize("wrong", [["x"], {}, 3, None])
def test_a_type_that_is_no_name_is_refused(wrong: object) -> None:
    """An event type is a string or what `register_event_type` returned."""
    with pytest.raises(UnknownEventType):
        talk().append(wrong, {})  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_a_lone_surrogate_in_the_wrong_place_is_refused_and_read_as_it_is() -> None:
    """Where the shape is wrong too, the error is ours, and a loaded event stays readable."""
    session = talk()
    with pytest.raises(InvalidPayload):
        session.append("turn/start", {"turn": "\ud800"})
    wire = {"type": "turn/start", "seq": 0, "time": 1, "data": {"turn": "\ud800"}}
    loaded = turnlog.Session.from_events(session.header, [wire])
    assert loaded.event_at(0).data == {"turn": "\ud800"}
    assert loaded.repair() == []


def test_what_was_loaded_does_not_alias_what_it_was_loaded_from() -> None:
    """Unknown envelope keys and a foreign header are copies that cannot be changed."""
    wire = {**talk().event_at(0).to_dict(), "custom": {"n": 1}}
    head = {**talk().header.to_dict(), "source": {"a": [1]}}
    session = turnlog.Session.from_events(head, [wire])
    before = session.to_jsonl()
    wire["custom"]["n"] = 2
    head["source"]["a"].append(2)
    assert session.to_jsonl() == before
    with pytest.raises(TypeError):
        (session.event_at(0).extra or {})["custom"] = 3
