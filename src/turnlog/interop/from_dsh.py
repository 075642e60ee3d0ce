"""A session of DeepSeek Harness as one to import: event k of the source is event k here.

Payloads are the source's own bytes. Only the two types that were renamed within version 0 get
their later names, and keep their own as `sourceType`; `turnlog.upcasts` reads payloads as ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog import jsontext
from turnlog.errors import AdmissionError
from turnlog.events import AnyEvent, Replace, SessionHeader
from turnlog.interop.dsh import DshSource, SourceEvent, upcast_type
from turnlog.interop.incoming import DamageKeeper, Progress, checked_header, counted
from turnlog.log import make_event

if TYPE_CHECKING:
    from collections.abc import Iterator


class FromDsh:
    """The session, read through once to know its length and its damage; see `Incoming`."""

    def __init__(self, source: DshSource, progress: Progress | None = None) -> None:
        self.path = source.path
        self._source = source
        self._progress = progress
        self.header, self.notes = self._survey()

    def __iter__(self) -> Iterator[AnyEvent]:
        """The events that can be read, in order of seq."""
        return counted(self._events(), self._progress)

    def _events(self, damage: DamageKeeper | None = None) -> Iterator[AnyEvent]:
        for event in self._source.events():
            try:
                yield to_event(event)
            except AdmissionError as error:
                if damage is not None:
                    damage.add(error.detail, event.seq, event.seq, data=event.data)

    def _survey(self) -> tuple[SessionHeader, list[str]]:
        source = self._source
        refused = DamageKeeper(self.path)
        length = 0
        for event in counted(self._events(refused), self._progress):
            length = event.seq + 1
        damage = DamageKeeper(self.path)
        for lost in source.damage:
            data = source.read_bytes(lost)
            damage.add(
                lost.reason,
                lost.first_seq,
                lost.last_seq,
                offset=lost.offset,
                length=lost.length,
                data=data,
            )
        kept = sorted(
            [*damage.kept, *refused.kept],
            key=lambda stretch: stretch.get("firstSeq", stretch.get("offset", 0)),
        )
        length = max([length, *(stretch.get("lastSeq", -1) + 1 for stretch in kept)])
        notes: list[str] = []
        if source.torn is not None:
            notes.append(f"a torn tail of {source.torn.length} bytes was left out")
        wire = source.header
        created, cwd, parent = wire.get("createdAt"), wire.get("cwd"), wire.get("parentSession")
        header = SessionHeader(
            source.id,
            created if type(created) is int and 0 <= created <= jsontext.INT_MAX else 0,
            cwd=cwd if isinstance(cwd, str) else None,
            parent_session=parent if isinstance(parent, str) else None,
            seed_length=length,
            source_format=source.source_format,
            source_length=length,
            source=wire,
            source_damage=tuple(kept) or None,
        )
        return checked_header(self.path, header), notes


def to_event(source: SourceEvent) -> AnyEvent:
    """A source's event as one of ours, its payload verbatim.

    Raises:
        AdmissionError: it is not what an event may be.
    """
    name = upcast_type(source.type)
    extra = dict(source.extra or {})
    if name != source.type:
        extra["sourceType"] = source.type
    jsontext.check_bytes(source.data, seq=source.seq)
    op = source.surface_op
    return make_event(
        name,
        source.seq,
        source.time,
        source.data,
        Replace(*op) if isinstance(op, tuple) else op,
        source.source_event_seqs,
        ignorable=source.ignorable,
        extra=extra or None,
    )
