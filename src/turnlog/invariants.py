"""`verify`: every law of a log, and what is legal but worth knowing.

Admission holds the rules of payload, surface and provenance; here they are held again against what
is stored, together with how events relate (`relations`); every view is derived anew, compared.
A fault is a broken law. What the source of an import broke is a note: an import repairs nothing.
What lost events may explain is one note for each gap, however much follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from turnlog.codec import decode_line, encode_event
from turnlog.errors import AdmissionError
from turnlog.events import SEED_END, AnyEvent, SessionHeader
from turnlog.log import Damage, SessionLog, unacknowledged
from turnlog.relations import ASKS_FOR_EARLIER, Relations
from turnlog.repair import is_suspended
from turnlog.session import Session

if TYPE_CHECKING:
    from turnlog.content import Message

Level: TypeAlias = Literal["fault", "note"]


class Finding(msgspec.Struct, frozen=True):
    """One thing that `verify` found: `rule` is its stable name, `seq` the event, if it is one."""

    level: Level
    rule: str
    seq: int | None
    message: str

    def __str__(self) -> str:
        where = "" if self.seq is None else f"event {self.seq}: "
        return f"{self.level}: {where}{self.message} [{self.rule}]"


#: Rebuilds the request that a `request/sent` event tells of: None when its digest is the same.
Prove: TypeAlias = Callable[[Session, AnyEvent], Finding | None]


def verify(session: Session, *, prove: Prove | None = None) -> list[Finding]:
    """Every broken law of a session and every note on it, in order of seq.

    Args:
        session: all of whose events are in memory.
        prove: how a `request/sent` is proved; without it none is, and a note says so.
    """
    found = [*check(session.header, session.events, session.damage)]
    found += _again(session)
    found += _mends(session)
    found += _worth_knowing(session)
    sent = [event for event in session.events if event.type == "request/sent"]
    if prove is not None:
        proofs = [finding for event in sent if (finding := prove(session, event)) is not None]
        found += [finding for finding in proofs if finding.level == "fault"]
        notes = [finding for finding in proofs if finding.level == "note"]
        found += _one(notes) if session.damage else notes
    elif sent:
        plural = "" if len(sent) == 1 else "s"
        message = f"{len(sent)} request{plural} not proved"
        found.append(Finding("note", "request-proved", None, message))
    return sorted(found, key=lambda f: -1 if f.seq is None else f.seq)


def check(
    header: SessionHeader, events: Sequence[AnyEvent], damage: Iterable[Damage] = ()
) -> list[Finding]:
    """How events of a log must relate: turns, steps, attempts, calls, brackets, pins, the seed.

    Args:
        header: the session's.
        events: all of them, in order.
        damage: what was lost; after a gap nothing is known until the next turn starts, and what
            asks for something earlier may ask for what was lost.
    """
    found = list(_seed(header, events))
    foreign = header.source_length or 0
    relations = Relations(header)
    known, gapped, expected = True, False, 0
    following: list[Finding] = []  # from the last gap
    gaps = [lost for lost in damage if lost.first_seq is not None]
    for event in events:
        if event.seq != expected:
            if not gaps:
                message = f"expected seq {expected}, got {event.seq}"
                found.append(Finding("fault", "dense-seq", event.seq, message))
            found += _one(following)
            following.clear()
            relations.forget()
            known, gapped = False, True
        expected = event.seq + 1
        known = known or event.type == "turn/start"
        for rule, message in relations.read(event):
            if not known or (gapped and rule in ASKS_FOR_EARLIER):
                following.append(Finding("note", rule, event.seq, message))
            else:
                level: Level = "fault" if event.seq >= foreign else "note"
                found.append(Finding(level, rule, event.seq, message))
    found += _one(following)
    last = events[-1].seq if events else None
    if relations.turn is not None:
        if is_suspended(header, events):
            message = f"turn {relations.turn} waits for approval"
            found.append(Finding("note", "suspended", last, message))
        else:
            found.append(Finding("note", "open-turn", last, f"turn {relations.turn} is open"))
    if relations.bracket is not None:
        message = f"compaction {relations.bracket!r} is open"
        found.append(Finding("note", "open-compaction", last, message))
    return found


def _one(following: list[Finding]) -> list[Finding]:
    """What may follow from the same lost events, as one note."""
    if len(following) < 2:
        return list(following)
    first = following[0]
    more = f"{first.message}; and {len(following) - 1} more that may follow from what was lost"
    return [Finding("note", first.rule, first.seq, more)]


def _seed(header: SessionHeader, events: Sequence[AnyEvent]) -> Iterator[Finding]:
    """An inherited or imported seed ends with its mark as soon as anything native follows."""
    length = header.seed_length
    if (header.source_length or 0) > (length or 0):
        message = f"sourceLength {header.source_length} is more than seedLength {length}"
        yield Finding("fault", "seed-length", None, message)
    if length is None:
        return
    first = next((event for event in reversed(events) if event.seq == length), None)
    if first is not None and first.type != SEED_END:
        message = f"expected {SEED_END} after the seed of {length} events, got {first.type}"
        yield Finding("fault", "seed-has-end", length, message)


def _again(session: Session) -> Iterator[Finding]:
    """Write, read and admit every event again; derive every view from that, and compare."""
    log = SessionLog(session.header)
    log.damage.extend(lost for lost in session.damage if lost.first_seq is None)
    gaps = sorted(
        (lost for lost in session.damage if lost.first_seq is not None),
        key=lambda lost: lost.first_seq or 0,
    )
    for event in session.events:
        while gaps and gaps[0].first_seq == log.next_seq:
            log.lose(gaps.pop(0))
        (read,) = decode_line(encode_event(event))
        if read != event or read.raw != event.raw:
            message = f"{event.type} reads otherwise than it was written"
            yield Finding("fault", "codec-round-trip", event.seq, message)
        try:
            log.load(read)
        except AdmissionError as error:
            yield Finding("fault", error.rule, event.seq, error.detail)
            return
    while gaps and gaps[0].first_seq == log.next_seq:
        log.lose(gaps.pop(0))
    for lost in unacknowledged(log):
        yield Finding("fault", "damage", lost.first_seq, _told(lost))
    yield from _views(session, Session(log))


def _views(kept: Session, anew: Session) -> Iterator[Finding]:
    same = {
        "surface": kept.surface.seqs == anew.surface.seqs,
        "derive_messages": kept.derive_messages() == anew.derive_messages(),
        "request_messages": kept.request_messages() == anew.request_messages()
        and kept.request_messages().mends == anew.request_messages().mends,
        "extract_chat_messages": all(
            kept.extract_chat_messages(include_tools=tools, include_context=context)
            == anew.extract_chat_messages(include_tools=tools, include_context=context)
            for tools in (False, True)
            for context in (False, True)
        ),
        "nodes": kept.nodes() == anew.nodes(),
        "requests": kept.requests() == anew.requests(),
        "usage": kept.usage() == anew.usage(),
    }
    for view, equal in same.items():
        if not equal:
            message = f"{view}: derived anew from the log it is another"
            yield Finding("fault", "view-is-a-fold", None, message)
    for message in _unpaired(anew.request_messages()):
        yield Finding("fault", "request-messages-valid", None, message)


def _unpaired(messages: Iterable[Message]) -> Iterator[str]:
    """What a provider would refuse: a call without result, a result without call, nothing said."""
    due: list[str] = []
    for message in messages:
        if not message.content:
            yield f"message {message.id!r} has no content"
        if message.role == "tool":
            expected = due.pop(0) if due else None
            if message.tool_call_id != expected:
                yield f"expected the result of {expected!r}, got {message.tool_call_id!r}"
            continue
        if due:
            yield f"calls {due} have no result before message {message.id!r}"
        due = [call.id for call in message.tool_calls]
    if due:
        yield f"calls {due} have no result"


def _mends(session: Session) -> Iterator[Finding]:
    mends = session.request_messages().mends
    if session.damage and len(mends) > 1:
        message = f"{len(mends)} mends in requests, which may follow from what was lost"
        yield Finding("note", mends[0].kind, None, message)
        return
    for mend in mends:
        call = "" if mend.call_id is None else f", call {mend.call_id!r}"
        yield Finding(
            "note", mend.kind, None, f"mended in requests: message {mend.message_id!r}{call}"
        )


def _worth_knowing(session: Session) -> Iterator[Finding]:
    for name, count in session.unknown_types.items():
        message = f"no one here knows {name!r} ({count} event{'' if count == 1 else 's'})"
        yield Finding("note", "unknown-type", None, message)
    for seq in session.flagged:
        message = "this replacement was placed around damage; views after it are uncertain"
        yield Finding("note", "placed-around-damage", seq, message)
    for event in session.events:
        if event.type == "session/damage-acknowledged":
            yield Finding("note", "damage-acknowledged", event.seq, "lost events were accepted")


def _told(lost: Damage) -> str:
    if lost.first_seq is None:
        return f"damage: {lost.reason}"
    if lost.first_seq == lost.last_seq:
        return f"damage: event {lost.first_seq} is lost: {lost.reason}"
    return f"damage: events {lost.first_seq} to {lost.last_seq} are lost: {lost.reason}"
