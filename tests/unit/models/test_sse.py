"""Server-Sent Events from bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.models.sse import ServerEvent, SseDecoder


def read(*pieces: bytes) -> list[tuple[str, str]]:
    """Every event of a stream that arrives in these pieces and then ends."""
    decoder = SseDecoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return [tuple(event) for event in [*events, *decoder.close()]]  # type: ignore[misc]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_end_in_three_ways(end: bytes) -> None:
    """LF, CR LF and CR end a line; a blank one ends an event; data lines are joined."""
    raw = end.join([b": hello", b"event: x", b"data: a", b"data:b", b"id: 1", b"", b"data: c", b""])
    assert read(raw + end) == [("x", "a\nb"), ("message", "c")]


def test_the_last_event_needs_no_blank_line() -> None:
    """What the end of the stream completes is given."""
    assert read(b"data: a") == [("message", "a")]
    assert read(b"data: a\n") == [("message", "a")]


def test_other_separators_are_text() -> None:
    """U+2028, U+0085 and form feeds end no line."""
    text = "a\u2028b\u0085c\x0cd"
    assert read(f"data: {text}\n\n".encode()) == [("message", text)]


def test_what_says_nothing_gives_nothing() -> None:
    """Comments, blank lines and names without data are no events."""
    assert read(b"\n\n: ping\n\nevent: ping\n\nretry: 3\n\n") == []


def test_broken_utf8_is_replaced() -> None:
    """Bytes that are no UTF-8 do not stop the stream."""
    assert read(b"data: a\xffb\n\n") == [("message", "a\ufffdb")]


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.data(),
)
def test_cuts_make_no_difference(texts: list[str], end: str, data: st.DataObject) -> None:
    """However the bytes are cut into pieces, the events are the same."""
    raw = "".join(f"data: {text}{end}{end}" for text in texts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)))))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert read(*pieces) == [ServerEvent("message", text) for text in texts]
