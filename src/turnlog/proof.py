"""What was sent, built again from the log, and whether it is what the log says was sent.

An encoder is a pure function of the header in force, the messages of the prefix and an auxiliary
request's instruction, so a body that was logged by its digest alone can be had again, byte by byte.
"""

from __future__ import annotations

from bisect import bisect_left
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, TypeAlias

from turnlog.dialects import encoder as named
from turnlog.errors import ConversionError, NoSuchEvent, UnknownEncoder
from turnlog.invariants import Finding
from turnlog.views.requests import shown

if TYPE_CHECKING:
    from turnlog.events import AnyEvent
    from turnlog.session import Session
    from turnlog.views.requests import Request

RULE = "request-proved"

Proof: TypeAlias = Literal[
    "matches",
    "differs",
    "no-encoder",  # this turnlog does not have the one that was logged
    "no-digest",  # the request is inferred: nothing was logged to compare with
]


def rebuild(session: Session, index: int, encoder: str | None = None) -> bytes:
    """The body of request `index` of `session.requests()`.

    Args:
        session: all of whose events are in memory.
        index: from 0.
        encoder: "name@version" to build it with, if not the one that was logged.

    Raises:
        NoSuchEvent: there is no such request.
        UnknownEncoder: none was logged or given, or this turnlog does not have it.
        ConversionError: no `request/header` was in force, or there was nothing to say.
    """
    return _body(session, _request(session, index), encoder)


def prove(session: Session, index: int) -> Proof:
    """Build request `index` of `session.requests()` again and compare digests.

    Raises:
        NoSuchEvent: there is no such request.
    """
    request = _request(session, index)
    if request.digest is None:
        return "no-digest"
    try:
        body = _body(session, request)
    except UnknownEncoder:
        return "no-encoder"
    except ConversionError:
        return "differs"  # the prefix does not give what was sent, or anything that could be
    return "matches" if _digest(body) == request.digest else "differs"


def finding(session: Session, sent: AnyEvent) -> Finding | None:
    """What `verify` says of a `request/sent`: None when the digest is the same.

    An encoder that this turnlog does not have is a note; so is a difference after damage, which
    may have taken a part of what was sent.
    """
    requests = session.requests()
    at = bisect_left(requests, sent.seq - 1, key=lambda request: request.at)
    found = next((r for r in requests[at : at + 2] if r.seq == sent.seq), None)
    if found is None:
        return Finding("note", RULE, sent.seq, "the payload cannot be read, so it is not proved")
    proof = prove(session, found.index)
    if proof == "no-encoder":
        said = f"request {found.index} is not proved: no encoder {found.encoder!r} here"
        return Finding("note", RULE, sent.seq, said)
    if proof == "differs":
        said = f"request {found.index}, built again, is not what was sent ({found.digest})"
        return Finding("note" if session.damage else "fault", RULE, sent.seq, said)
    return None


def _request(session: Session, index: int) -> Request:
    requests = session.requests()
    if not 0 <= index < len(requests):
        there = f"from 0 to {len(requests) - 1}" if requests else "but it has none"
        msg = f"session {session.id!r}: expected a request {there}, got {index}"
        raise NoSuchEvent(msg)
    return requests[index]


def _body(session: Session, request: Request, encoder: str | None = None) -> bytes:
    name = encoder or request.encoder
    if name is None:
        msg = f"request {request.index}: the log names no encoder; say which"
        raise UnknownEncoder(msg)
    encode = named(name).encode
    if request.header is None:
        msg = f"request {request.index}: no request/header was in force"
        raise ConversionError(msg)
    messages = shown(session, request.from_seq, request.through_seq, request.at)
    said = request.instruction
    body = encode(request.header, messages, instruction=said)
    if request.digest is not None and _digest(body) != request.digest:
        # The log does not say whether the answer was to be streamed; the digest does.
        whole = encode(request.header, messages, instruction=said, stream=False)
        return whole if _digest(whole) == request.digest else body
    return body


def _digest(body: bytes) -> str:
    return f"sha256:{sha256(body).hexdigest()}"
