"""Legal histories keep every law; illegal appends are refused and change nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.views import VIEWS
from turnlog import Session
from turnlog.errors import AdmissionError, InvalidEnvelope, SeqOutOfOrder
from turnlog.events import Event
from turnlog.invariants import verify
from turnlog.testing.strategies import histories, illegal_appends, mangled


def state(session: Session) -> dict[str, Any]:
    """All that a refused append must leave as it was."""
    return {
        "events": [event.to_dict() for event in session.events],
        "next_seq": session.next_seq,
        "generation": session.surface.replace_generation,
        "unknown": session.unknown_types,
        **{name: view(session, None) for name, view in VIEWS.items()},
    }


def faults(session: Session) -> list[str]:
    """The broken laws that `verify` finds."""
    return [str(found) for found in verify(session) if found.level == "fault"]


@given(histories())
def test_legal_histories_keep_every_law(session: Session) -> None:
    """Whatever the engine's own calls make legally, cut anywhere, has no fault."""
    assert not faults(session)


@given(histories(), st.data())
def test_repair_and_forks_keep_every_law(session: Session, data: st.DataObject) -> None:
    """A repaired session has no fault, and neither has a fork at any event."""
    if len(session):
        at = data.draw(st.integers(0, len(session) - 1))
        assert not faults(session.fork(session.events[at].seq, "child"))
    session.repair()
    assert not faults(session)


@given(histories() | mangled())
def test_what_is_sent_is_never_a_fault(session: Session) -> None:
    """On any history that loads, mangled or not, the views are folds and what is sent is valid."""
    about_views = {"view-is-a-fold", "request-messages-valid", "codec-round-trip"}
    assert not [found for found in verify(session) if found.rule in about_views]


@settings(max_examples=40)
@given(histories() | mangled())
def test_illegal_appends_change_nothing(session: Session) -> None:
    """Each rule is kept by its own error, with rule, seq and value; the state stays as it was."""
    before = state(session)
    for illegal in illegal_appends(session):
        with pytest.raises(AdmissionError) as caught:
            illegal.attempt(session)
        error = caught.value
        assert type(error) is illegal.error, (illegal, error)
        assert error.seq == session.next_seq
        assert error.rule == illegal.error.rule
        assert error.rule in str(error)
    assert state(session) == before


@settings(max_examples=40)
@given(histories())
def test_illegal_loads_change_nothing(session: Session) -> None:
    """An event out of order or with a broken envelope does not load."""
    before = state(session)
    wire: dict[str, Any] = {"type": "turn/start", "seq": session.next_seq, "time": 1, "data": {}}
    broken: list[tuple[type[AdmissionError], dict[str, Any]]] = [
        (SeqOutOfOrder, {"seq": session.next_seq + 1}),
        (InvalidEnvelope, {"seq": -1}),
        (InvalidEnvelope, {"seq": "0"}),
        (InvalidEnvelope, {"seq": True}),
        (InvalidEnvelope, {"time": 1.5}),
        (InvalidEnvelope, {"time": 2**63}),
        (InvalidEnvelope, {"type": ""}),
        (InvalidEnvelope, {"type": 7}),
        (InvalidEnvelope, {"ignorable": 1}),
    ]
    if session.next_seq:
        broken.append((SeqOutOfOrder, {"seq": 0}))
    for error, change in broken:
        with pytest.raises(error):
            Session.from_events(session.header, [*session.events, {**wire, **change}])
    assert state(session) == before


@given(histories())
def test_loading_is_appending(session: Session) -> None:
    """A session of the same events, by value or in wire form, is the same in every view."""
    wired = Session.from_events(session.header.to_dict(), [e.to_dict() for e in session.events])
    loaded = Session.from_events(session.header, session.events)
    assert state(wired) == state(loaded) == state(session)
    assert all(isinstance(event, Event) for event in wired.events)
