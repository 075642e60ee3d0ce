"""A session opened from a record is the session: only what is in memory differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from turnlog import Session, opening
from turnlog.errors import NotLoaded
from turnlog.events import AnyEvent
from turnlog.log import SessionLog
from turnlog.repair import Closer, closers
from turnlog.standing import STANDING
from turnlog.testing.strategies import histories, mangled, prefix

ANY = histories() | histories(cut=False) | mangled()


def resumed(session: Session, at: int) -> Session | None:
    """The session as it is opened from a record made after its first `at` events, if one can be."""
    data = prefix(session, at).opening_record()
    if data is None:
        return None
    known = opening.read(data)
    assert known is not None
    events = list(session.events)
    wanted = {*known.seqs(), known.next_seq - 1}
    nodes = [event for event in events if event.seq in wanted]
    tail = [event for event in events if event.seq >= known.next_seq]
    log = opening.open_log(session.header, known, nodes, tail)
    assert log is not None
    return Session(log, standing=known.folds)


def pairs(session: Session) -> list[tuple[int, Session]]:
    """Every place where a record can be made, and the session as it is opened from it."""
    found = ((at, resumed(session, at)) for at in range(1, len(session) + 1))
    return [(at, child) for at, child in found if child is not None]


def missing(log: SessionLog, held: Sequence[AnyEvent]) -> list[Closer]:
    """What repair would append."""
    asked = None if log.base is None else log.base.asked
    on_surface = log.surface.__contains__
    return closers(log.header, held, log.next_seq, on_surface=on_surface, asked=asked)


@settings(max_examples=150)
@given(ANY)
def test_opened_from_a_record_it_shows_the_same(session: Session) -> None:
    """Surface, messages, requests, length, closers and standing folds equal those of the log."""
    for at, child in pairs(session):
        assert len(child) == len(session)
        assert child.next_seq == session.next_seq
        assert child.surface.seqs == session.surface.seqs
        assert child.surface.replace_generation == session.surface.replace_generation
        assert child.derive_messages() == session.derive_messages()
        assert child.request_messages() == session.request_messages()
        assert child.request_messages().mends == session.request_messages().mends
        assert child.unknown_types == session.unknown_types
        for fold in STANDING.values():
            assert fold.dump(child.fold(fold)) == fold.dump(session.fold(fold)), at
        log, whole = child._log, session._log  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        assert missing(log, child.held) == missing(whole, list(session.events))


@settings(max_examples=80)
@given(ANY)
def test_what_came_after_the_record_can_be_looked_at_in_time(session: Session) -> None:
    """Views at every seq from the record on equal the log's; before it they raise NotLoaded."""
    for _, child in pairs(session):
        first = child.first_held
        for seq in range(first - 1, session.next_seq):
            assert child.derive_messages(seq) == session.derive_messages(seq)
            assert child.request_messages(seq) == session.request_messages(seq)
            assert child.surface.at(seq) == session.surface.at(seq)
        for event in session.events[first:]:
            assert child.event_at(event.seq) is event
        if first > 1:
            with pytest.raises(NotLoaded):
                child.derive_messages(first - 2)
            with pytest.raises(NotLoaded):
                list(child.events)
            with pytest.raises(NotLoaded):
                child.extract_chat_messages()


@settings(max_examples=60)
@given(histories(cut=False), histories(cut=False))
def test_appends_are_taken_or_refused_alike(session: Session, more: Session) -> None:
    """Whatever is appended next, the same is accepted, refused, and seen afterwards."""
    found = pairs(session)
    assume(found)
    _, child = found[len(found) // 2]
    whole = prefix(session, len(session))
    for event in list(more.events)[:12]:
        outcomes: list[object] = []
        for each in (whole, child):
            append: Any = each.append
            try:
                append(
                    event.type,
                    event.data,
                    surface_op=event.surface_op,
                    source_event_seqs=event.source_event_seqs,
                )
            except Exception as error:  # noqa: BLE001 - what is compared
                outcomes.append((type(error), str(error)))
            else:
                outcomes.append(None)
        assert outcomes[0] == outcomes[1]
        assert child.derive_messages() == whole.derive_messages()


@given(histories(cut=False), st.data())
def test_a_changed_record_is_not_used(session: Session, data: st.DataObject) -> None:
    """A flipped byte anywhere, or another session's record, is found out."""
    record = session.opening_record()
    assume(record is not None)
    assert record is not None
    at = data.draw(st.integers(0, len(record) - 1))
    flipped = bytes([*record[:at], record[at] ^ data.draw(st.integers(1, 255)), *record[at + 1 :]])
    assert opening.read(flipped) is None
    known = opening.read(record)
    assert known is not None
    assert opening.open_log(session.header, known, [], []) is None


@given(histories(cut=False), st.integers(0, 200))
def test_a_fork_of_a_partly_loaded_session_is_the_fork(session: Session, back: int) -> None:
    """A child made of a session opened from a record shows what a child of the whole log shows."""
    found = pairs(session)
    assume(found)
    _, child = found[0]
    at = max(child.first_held - 1, session.next_seq - 1 - back)
    one, other = session.fork(at, "child"), child.fork(at, "child")
    assert one.derive_messages() == other.derive_messages()
    assert one.surface.seqs == other.surface.seqs
    assert [e.type for e in one.events[at + 1 :]] == [e.type for e in other.events[at + 1 :]]
