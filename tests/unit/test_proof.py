"""What was sent, built again and compared."""

from __future__ import annotations

from hashlib import sha256

import pytest
from msgspec.structs import replace

from turnlog import events as ev
from turnlog.content import Text, ToolCall
from turnlog.dialects import ENCODERS, encoder
from turnlog.errors import ConversionError, NoSuchEvent, UnknownEncoder
from turnlog.invariants import Finding
from turnlog.proof import finding, prove, rebuild
from turnlog.session import Session
from turnlog.testing.builders import CONFIG, Author

HEADER = ev.Header(CONFIG, "be brief")
CALL = ToolCall("call-1", "peek", "{}")


def send(
    author: Author,
    *,
    purpose: str = "step",
    instruction: str | None = None,
    stream: bool = True,
    name: str = ENCODERS[0],
) -> bytes:
    """Encode the next request and log it as sent; returns its bytes."""
    messages = author.session.request_messages()
    body = encoder(name).encode(HEADER, messages, instruction=instruction, stream=stream)
    digest = f"sha256:{sha256(body).hexdigest()}"
    sent = ev.RequestSent(purpose, digest, name, "parrot", author.turn, author.step)
    author.record("request/sent", replace(sent, instruction=instruction))
    return body


def conversation() -> tuple[Author, list[bytes]]:
    """Three requests: a step, one after a tool's result, and one for a compaction."""
    author = Author()
    author.begin_turn()
    author.begin_step()
    author.user("hello")
    author.record("request/header", ev.RequestHeader(HEADER, "initial"))
    bodies = [send(author)]
    author.answer([Text("Let me see"), CALL])
    author.dispatch(CALL)
    author.result(CALL)
    author.end_step()
    author.begin_step()
    bodies.append(send(author, stream=False))
    author.answer([Text("Seen")])
    author.end_step()
    author.end_turn()
    bodies.append(send(author, purpose="compaction", instruction="summarise"))
    author.compact(0, 1)
    return author, bodies


def test_every_request_is_built_again_byte_for_byte() -> None:
    """Whatever came after it: results, a compaction, a fork."""
    author, bodies = conversation()
    for session in (author.session, author.session.fork()):
        assert [rebuild(session, k) for k in range(3)] == bodies
        assert [prove(session, k) for k in range(3)] == ["matches"] * 3
        sent = [event for event in session.events if event.type == "request/sent"]
        assert [finding(session, event) for event in sent] == [None] * 3


def test_a_body_that_is_not_the_one_that_was_sent_is_a_fault() -> None:
    """A digest that does not fit the log is found, at its event."""
    author, _ = conversation()
    sent = ev.RequestSent("step", "sha256:" + "0" * 64, ENCODERS[0], "parrot")
    event = author.record("request/sent", sent)
    assert prove(author.session, 3) == "differs"
    found = finding(author.session, event)
    assert isinstance(found, Finding)
    assert (found.level, found.rule, found.seq) == ("fault", "request-proved", event.seq)


def test_an_encoder_that_is_not_here_is_a_note() -> None:
    """What cannot be built again is said to be unproved, not wrong."""
    author, _ = conversation()
    event = author.record("request/sent", ev.RequestSent("step", "sha256:0", "gone@1", "m"))
    assert prove(author.session, 3) == "no-encoder"
    found = finding(author.session, event)
    assert isinstance(found, Finding)
    assert found.level == "note"
    with pytest.raises(UnknownEncoder, match="gone@1"):
        rebuild(author.session, 3)


def test_an_inferred_request_has_no_digest() -> None:
    """It is built with the encoder that one names, and proves nothing."""
    author = Author()
    author.user("hello")
    author.record("request/header", ev.RequestHeader(HEADER, "initial"))
    before = author.session.request_messages()
    author.answer([Text("Hello")])
    assert prove(author.session, 0) == "no-digest"
    with pytest.raises(UnknownEncoder, match="names no encoder"):
        rebuild(author.session, 0)
    expected = encoder(ENCODERS[0]).encode(HEADER, before)
    assert rebuild(author.session, 0, ENCODERS[0]) == expected


def test_a_request_without_header_or_number_is_refused() -> None:
    """The error says what is missing."""
    session = Session.create("s")
    with pytest.raises(NoSuchEvent, match="'s': expected a request but it has none, got 0"):
        rebuild(session, 0)
    session.append("request/sent", ev.RequestSent("step", "sha256:0", ENCODERS[0], "m"))
    with pytest.raises(ConversionError, match="no request/header"):
        rebuild(session, 0)
    with pytest.raises(NoSuchEvent, match="from 0 to 0, got 1"):
        prove(session, 1)
