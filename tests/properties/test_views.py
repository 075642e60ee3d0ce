"""Views are pure folds of a prefix: incremental, reproducible, valid for every provider."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.views import (
    VIEWS,
    naive_messages,
    naive_surface,
    naive_transcript,
    violations,
)
from turnlog import Session
from turnlog.testing.strategies import histories, mangled, prefix

ANY = histories() | mangled()


def moments(session: Session) -> list[int]:
    """The seqs at which what is sent may change: before the first event, and at each message."""
    return [-1, *(event.seq for event in session.events if event.surface_op is not None)]


@settings(max_examples=60)
@given(ANY)
def test_incremental_equals_refold(session: Session) -> None:
    """A view that is read after every event equals one that is folded anew from that prefix."""
    growing = prefix(session, 0)
    for n, event in enumerate(session.events, 1):
        growing._log.load(event)  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001 - what a store does
        anew = prefix(session, n)
        for name, view in VIEWS.items():
            assert view(growing, None) == view(anew, None), (name, n)


@settings(max_examples=60)
@given(ANY)
def test_view_depends_on_the_prefix_alone(session: Session) -> None:
    """The view after event n is the same whether or not anything follows it."""
    for n in range(len(session) + 1):
        past = prefix(session, n)
        for name, view in VIEWS.items():
            assert view(session, n - 1) == view(past, None), (name, n)


@given(ANY)
def test_views_equal_the_plain_ones(session: Session) -> None:
    """Surface, model view and transcripts equal what a plain fold of the list gives."""
    events = session.events
    assert session.surface.seqs == naive_surface(events)
    assert session.derive_messages() == naive_messages(events)
    for tools in (False, True):
        for context in (False, True):
            said = session.extract_chat_messages(include_tools=tools, include_context=context)
            assert list(said) == list(naive_transcript(events, tools=tools, context=context))


@settings(max_examples=200)
@given(mangled())
def test_mangled_histories_are_sent_valid(session: Session) -> None:
    """At every seq of a mangled history, what would be sent breaks no rule of any provider."""
    for at in moments(session):
        assert not violations(session.request_messages(at))


@given(histories())
def test_legal_histories_are_sent_valid(session: Session) -> None:
    """At every seq of a legal history, what would be sent breaks no rule of any provider."""
    for at in moments(session):
        assert not violations(session.request_messages(at))


@given(histories(cut=False))
def test_nothing_to_mend_on_closed_logs(session: Session) -> None:
    """On a log of ours with no call open, what is sent is what the model view shows."""
    assert session.request_messages().mends == ()
    assert session.request_messages() == session.derive_messages()


@given(ANY, st.data())
def test_old_snapshots_never_change(session: Session, data: st.DataObject) -> None:
    """A view that was taken stays what it was, whatever is appended or replaced later."""
    growing = prefix(session, 0)
    taken = [(growing.derive_messages(), growing.request_messages())]
    for event in session.events:
        growing._log.load(event)  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001 - what a store does
        taken.append((growing.derive_messages(), growing.request_messages()))
    n = data.draw(st.integers(0, len(session)))
    past = prefix(session, n)
    assert taken[n][0] == past.derive_messages()
    assert taken[n][1] == past.request_messages()
