"""Repair is a pure function of the log: idempotent, nothing on healthy logs, safe to interrupt."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.properties.views import violations
from turnlog import Session
from turnlog.repair import Closer, closers, is_suspended
from turnlog.testing.strategies import histories, prefix


def missing(session: Session) -> list[Closer]:
    """What repair would append."""
    on_surface = session.surface.__contains__
    return closers(session.header, session.events, session.next_seq, on_surface=on_surface)


@given(histories())
def test_pure(session: Session) -> None:
    """Two copies of a log are repaired by the same events, times and ids included."""
    one, other = prefix(session, len(session)), prefix(session, len(session))
    assert [e.to_dict() for e in one.repair()] == [e.to_dict() for e in other.repair()]


@given(histories())
def test_appends_what_it_announced(session: Session) -> None:
    """The closers are the events that are appended: nothing else changes."""
    announced, before = missing(session), list(session.events)
    added = session.repair()
    assert [(c.type, c.seq, c.data, c.time) for c in announced] == [
        (e.type, e.seq, e.data, e.time) for e in added
    ]
    assert list(session.events) == [*before, *added]


@given(histories())
def test_idempotent(session: Session) -> None:
    """A repaired log needs no repair."""
    session.repair()
    assert session.repair() == []


@given(histories(cut=False))
def test_nothing_on_healthy_logs(session: Session) -> None:
    """A log with nothing open is left alone."""
    assert session.repair() == []


@given(histories(), st.data())
def test_interrupted_repair(session: Session, data: st.DataObject) -> None:
    """A crash inside repair leaves a log whose repair appends exactly the rest."""
    whole = prefix(session, len(session))
    added = whole.repair()
    kept = data.draw(st.integers(0, len(added)))
    crashed = prefix(whole, len(session) + kept)
    assert crashed.repair() == added[kept:]
    assert crashed.derive_messages() == whole.derive_messages()


@given(histories())
def test_leaves_nothing_open(session: Session) -> None:
    """After repair no turn is open but one that waits for approval, and every call has a result."""
    session.repair()
    if is_suspended(session.header, session.events):
        return
    boundaries = [e.type for e in session.events if e.type in ("turn/start", "turn/end")]
    assert not boundaries or boundaries[-1] == "turn/end"
    assert not [m for m in session.request_messages().mends if m.kind == "open-call"]
    assert session.request_messages() == session.derive_messages()
    assert not violations(session.request_messages())


@given(histories())
def test_no_real_result_is_covered(session: Session) -> None:
    """A call that had settled gets its own result at repair, never an error in its place."""
    settled = {e.seq: e.data.message.content for e in session.events if e.type == "tool/settled"}
    for event in session.repair():
        if event.type == "tool/result":
            own = [settled[s] for s in event.source_event_seqs or () if s in settled]
            assert not own or event.data.message.content == own[-1]
            if not own:
                assert event.data.error.code in ("TOOL_NOT_STARTED", "TOOL_OUTCOME_UNKNOWN")
                started = bool(event.source_event_seqs)
                assert not (started and event.data.error.code == "TOOL_NOT_STARTED")
