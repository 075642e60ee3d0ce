"""What is written is what is read: events, payload bytes, packed runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnlog import Session, jsontext
from turnlog.codec import decode_line, encode_lines, pack_seqs, unpack_seqs
from turnlog.content import Text
from turnlog.events import AnyEvent
from turnlog.testing.builders import Author
from turnlog.testing.strategies import JSON, TEXTS, histories, mangled


def lines_of(raw: bytes) -> list[AnyEvent]:
    """The events in lines."""
    assert raw.endswith(b"\n") or not raw
    return [event for line in raw.split(b"\n")[:-1] for event in decode_line(line)]


def same(read: list[AnyEvent], session: Session) -> None:
    """Equal events with the same payload bytes."""
    assert read == list(session.events)
    assert [event.raw for event in read] == [event.raw for event in session.events]
    assert [event.data for event in read] == [event.data for event in session.events]


@given(histories() | mangled())
def test_round_trip(session: Session) -> None:
    """Every event comes back equal, its payload verbatim, whatever was packed."""
    raw = encode_lines(session.events)
    same(lines_of(raw), session)
    assert encode_lines(lines_of(raw)) == raw


@given(st.lists(TEXTS, min_size=1, max_size=6), st.integers(1, 4))
def test_runs_of_hostile_chunks(texts: list[str], size: int) -> None:
    """A stream cut anywhere, in the middle of a character too, is packed and comes back."""
    author = Author()
    author.begin_turn()
    author.begin_step()
    author.stream([Text(text) for text in texts if text], size)
    raw = encode_lines(author.session.events)
    same(lines_of(raw), author.session)


@given(JSON)
def test_payloads_come_out_equal(value: object) -> None:
    """Any JSON goes in and comes out equal, but for surrogates that make a pair."""
    raw = jsontext.admit(value)
    assert jsontext.decode(raw) == value
    assert jsontext.admit(jsontext.decode(raw)) == raw


@given(st.lists(st.integers(0, 50), unique=True))
def test_packed_seqs(seqs: list[int]) -> None:
    """Cited seqs keep their order through ranges."""
    assert list(unpack_seqs(pack_seqs(seqs))) == seqs
    assert list(unpack_seqs(pack_seqs(tuple(sorted(seqs))))) == sorted(seqs)
