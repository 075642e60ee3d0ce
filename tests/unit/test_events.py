"""The vocabulary, the envelope and the header."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from turnlog import Event, Record, Session, SessionHeader, TurnlogError, register_event_type
from turnlog import events as ev
from turnlog.content import Extra, extra_field
from turnlog.errors import InvalidHeader, InvalidPayload, UnknownEventType, UnsupportedVersion
from turnlog.events import CORE_TYPES, LogOnlyPayload, LogOnlyType, unregister_event_type
from turnlog.testing.builders import new_session


class Deployed(Record, frozen=True):
    """An application's payload."""

    version: str
    seqs: tuple[int, ...] = ()
    extra: Extra = extra_field()


def test_the_types_that_overloads_name_are_those_of_the_vocabulary() -> None:
    """The literal types of `append` and the registry tell the same of which types are log-only."""
    assert set(get_args(LogOnlyType)) == {n for n, kind in CORE_TYPES.items() if not kind.surface}
    payloads = {kind.payload for kind in CORE_TYPES.values() if not kind.surface}
    assert set(get_args(LogOnlyPayload)) == payloads


def test_seq_fields_are_fields() -> None:
    """A field that is said to hold seqs is one of its payload."""
    for kind in CORE_TYPES.values():
        assert kind.payload is not None
        wire = {field.encode_name for field in msgspec.structs.fields(kind.payload)}
        assert {path.partition(".")[0] for path in kind.seq_fields} <= wire


def test_registered_types() -> None:
    """An application's type is admitted, read as its struct, and unknown once it is forgotten."""
    deployed = register_event_type("acme/deployed-2", Deployed, seq_fields=["seqs"])
    session = new_session()
    append: Any = session.append
    event = session.append(deployed, Deployed("1"))
    append("acme/deployed-2", {"version": "2", "by": "bot"})
    assert event.data == Deployed("1")
    assert session.events[1].data.extra == {"by": "bot"}
    with pytest.raises(InvalidPayload):
        session.append(deployed, {"version": 2})
    unregister_event_type("acme/deployed-2")
    unregister_event_type("acme/deployed-2")
    for forgotten in (deployed, "acme/deployed-2"):
        with pytest.raises(UnknownEventType, match="register_event_type"):
            append(forgotten, {"version": "3"})
    wires = [event.to_dict() for event in session.events]
    loaded = Session.from_events(session.header, wires)
    assert loaded.unknown_types == {"acme/deployed-2": 2}
    assert loaded.events[0].data == {"version": "1"}


@pytest.mark.parametrize("name", ["turn/mine", "session/x", "deployed", "/x", "x/", ""])
def test_names_that_cannot_be_registered(name: str) -> None:
    """A type has a prefix of the application's own."""
    with pytest.raises(TurnlogError, match=r"event type|prefix"):
        register_event_type(name)


def test_payloads_are_read_when_first_asked_for() -> None:
    """A payload is kept as its bytes; one that does not fit its type is plain JSON."""
    session = Session.from_events(
        {"format": "turnlog", "id": "a", "createdAt": 1},
        [{"type": "turn/start", "seq": 0, "time": 1, "data": {"turn": "one"}}],
    )
    assert session.events[0].data == {"turn": "one"}
    assert session.events[0].message is None


def test_equality_is_of_what_is_written() -> None:
    """Events are equal if their wire forms are, whatever was decoded already."""
    one, other = new_session(), new_session()
    a, b = one.add_user("hi"), other.add_user("hi")
    assert a == b
    assert not a != b  # noqa: SIM202 - the operator is what is tested
    assert hash(a) == hash(b)
    assert a != other.add_user("hi")
    assert a != "hi"


def test_an_event_shows_itself_briefly() -> None:
    """What a person sees of an event in a shell is its seq, its type and how its data begins."""
    session = new_session()
    title = session.append("session/title", {"title": "Tides"})
    assert repr(title) == '<Event 0 session/title {"title":"Tides"}>'
    assert len(repr(session.add_user("x" * 500))) < 150


def test_wire_form() -> None:
    """The wire form has the optional keys only where they say something."""
    session = new_session("s")
    session.add_user("hi")
    message: dict[str, Any] = {"id": "m", "role": "user", "content": []}
    message["source"] = {"kind": "user"}
    op = {"op": "replace", "start": 0, "end": 0}
    event = session.append("user/message", message, surface_op=op, source_event_seqs=[0])
    assert event.to_dict() == {
        "type": "user/message",
        "seq": 1,
        "time": event.time,
        "data": message,
        "sourceEventSeqs": [0],
        "surfaceOp": op,
    }
    assert session.append("turn/start", {"turn": 1}).to_dict().keys() == {
        "type",
        "seq",
        "time",
        "data",
    }


def test_events_cannot_be_changed() -> None:
    """An event and its payload are frozen."""
    event: Any = new_session().add_user("hi")
    with pytest.raises(AttributeError):
        event.seq = 7
    with pytest.raises(AttributeError):
        event.data.id = "x"
    assert isinstance(event, Event)


HEADER: dict[str, Any] = {"format": "turnlog", "version": 0, "id": "a", "createdAt": 5}


def test_header_round_trip() -> None:
    """A header comes back equal, with what we do not know."""
    wire = {**HEADER, "cwd": "/x", "seedLength": 3, "source": {"version": 4}, "later": [1]}
    assert SessionHeader.from_dict(wire).to_dict() == wire


@pytest.mark.parametrize(
    "change",
    [
        {"format": "other"},
        {"format": None},
        {"id": ""},
        {"id": 7},
        {"createdAt": -1},
        {"createdAt": "now"},
        {"createdAt": 1.5},
        {"seedLength": -1},
        {"version": -1},
        {"version": "0"},
    ],
)
def test_bad_headers(change: dict[str, Any]) -> None:
    """A header that does not say what the law asks for is refused."""
    with pytest.raises(InvalidHeader):
        SessionHeader.from_dict({**HEADER, **change})
    with pytest.raises(InvalidHeader):
        SessionHeader.from_dict([HEADER])


def test_newer_headers() -> None:
    """A newer format says that a newer turnlog is needed."""
    with pytest.raises(UnsupportedVersion, match="newer turnlog"):
        SessionHeader.from_dict({**HEADER, "version": 1})


def test_an_id_is_asked_for_in_memory_too() -> None:
    """A session without id is refused, however it is made."""
    with pytest.raises(InvalidHeader):
        Session.create("")
    with pytest.raises(InvalidHeader):
        Session.from_events(SessionHeader("", 1), [])
    with pytest.raises(InvalidHeader):
        new_session().fork(session_id="")


def test_the_reasons_of_ends_are_open() -> None:
    """A reason that we do not know is kept."""
    end = new_session().append("turn/end", {"turn": 1, "reason": {"kind": "novel", "why": 1}})
    assert end.data == ev.TurnEnd(1, ev.EndReason("novel", extra={"why": 1}))
