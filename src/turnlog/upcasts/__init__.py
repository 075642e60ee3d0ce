"""Reading a foreign seed as ours: one pure function per generation of each source format.

An imported session keeps its source's payloads verbatim; what they mean to us is decided here, on
reading. To support another format, add its reader to `_READERS`; never change an old one's
meaning, for the same prefix must give the same view for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import msgspec

from turnlog import jsontext
from turnlog.events import AnyEvent, Event, SessionHeader, event_type
from turnlog.upcasts import dsh

Reader: TypeAlias = Callable[..., Any]  # (source type, data, session=, seq=) -> data in our shape

_READERS: dict[str, Reader] = {
    f"dsh/v{version}": partial(dsh.upcast, version) for version in range(5)
}


def reread(header: SessionHeader, event: AnyEvent) -> AnyEvent:
    """The event, set to read its payload by the rules of the format it was imported from."""
    read = _READERS.get(header.source_format or "")
    if read is None:
        return event
    kind = (event.extra or {}).get("sourceType")  # where an import renamed it
    source_type = kind if isinstance(kind, str) else event.type
    name = (header.source or {}).get("id")
    session = name if isinstance(name, str) else header.id  # the same in forks and renamed imports
    reading = partial(_read, partial(read, source_type), event.type, session, event.seq)
    return Event(
        event.type,
        event.seq,
        event.time,
        event.raw,
        event.surface_op,
        event.source_event_seqs,
        event.ignorable,
        event.extra,
        reading,
    )


def _read(read: Reader, type_name: str, session: str, seq: int, raw: bytes) -> Any:
    data = read(jsontext.decode(raw), session=session, seq=seq)
    kind = event_type(type_name)
    if kind is None or kind.codec is None:
        return data
    try:
        return kind.codec.convert(data)
    except msgspec.ValidationError:
        return data
