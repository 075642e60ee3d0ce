"""Sessions given out: as a log of our own, which anyone can read, or as a page for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog import jsontext
from turnlog.codec import encode_lines
from turnlog.interop.markdown import page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turnlog.session import Session

LINES = 5_000


def to_jsonl(session: Session) -> Iterator[bytes]:
    """The whole log: a header line, then one line for each event or packed run.

    What was lost to damage is left out, as a gap between seqs.
    """
    yield jsontext.encode(session.header.to_dict()) + b"\n"
    events = session.events
    for start in range(0, len(events), LINES):
        yield encode_lines(events[start : start + LINES])


def to_markdown(session: Session) -> Iterator[bytes]:
    """The conversation as a person reads it, tool calls and results folded."""
    for part in page(session):
        yield jsontext.replace_surrogates(part).encode()
