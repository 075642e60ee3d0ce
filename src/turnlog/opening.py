"""The opening record: what a session must know to go on, without its log.

Derived from all events before some seq, and disposable: opening a session from a record and the
events after it gives what reading the whole log gives, and takes as long as the surface and those
events are long. A record that is damaged, of another version or of another log is not used.

A record is made only where the log is at rest, so that whatever repair may have to close lies
behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import accumulate, pairwise
from typing import Any

import msgspec

from turnlog import jsontext
from turnlog.errors import AdmissionError
from turnlog.events import AnyEvent, SessionHeader
from turnlog.log import Base, Damage, SessionLog, unacknowledged
from turnlog.repair import at_rest, last_asked
from turnlog.standing import STANDING, StandingFold
from turnlog.upcasts import reread

VERSION = 1
_DIGEST = 32  # bytes of the SHA-256 that a record begins with


class Opening(msgspec.Struct, rename="camel", omit_defaults=True):
    """A record that was read; see `Base` for what its fields are.

    Attributes:
        surface: the seqs of the surface, each but the first as the step from its predecessor.
        last: the digest of the last event before `next_seq`: whose log it is.
        folds: the states of the standing folds, by name.
    """

    version: int
    next_seq: int
    count: int
    last: str
    surface: list[int]
    folds: dict[str, Any]
    anchors: list[tuple[int, int]] = []
    generation: int = 0
    calls: dict[str, list[list[int]]] = {}
    unknown: dict[str, int] = {}
    flagged: list[int] = []
    damage: list[Damage] = []
    asked: tuple[str, str] | None = None

    def seqs(self) -> list[int]:
        """The seqs of the surface, in surface order."""
        return list(accumulate(self.surface))

    def base(self, header: SessionHeader, events: Sequence[AnyEvent]) -> Base | None:
        """What the log begins with; None when these are not the events that the record is about.

        Args:
            header: the session's.
            events: those of the surface and the last one before `next_seq`, in any order.
        """
        source = header.source_length or 0
        found = {e.seq: reread(header, e) if e.seq < source else e for e in events}
        last = found.get(self.next_seq - 1)
        if last is None or _digest(last) != self.last:
            return None
        try:
            nodes = [found[seq] for seq in self.seqs()]
        except KeyError:
            return None
        if any(node.surface_op is None for node in nodes):
            return None
        return Base(
            self.next_seq,
            self.count,
            nodes,
            dict(self.anchors),
            self.generation,
            self.calls,
            self.unknown,
            self.flagged,
            self.damage,
            self.asked,
        )


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Opening)


def make(log: SessionLog, fold: Callable[[StandingFold[Any]], Any]) -> bytes | None:
    """A record of the whole log; None where none can be: the log is not at rest, or damaged.

    Args:
        log: the session's.
        fold: gives the state of a standing fold after its last event.
    """
    held = log.held
    if not held or held[-1].seq != log.next_seq - 1:
        return None
    if not at_rest(log.header, held) or unacknowledged(log):
        return None
    surface = log.surface
    seqs = list(surface.seqs)
    known = surface.anchors
    asked = last_asked(held)
    if asked is None and log.base is not None:
        asked = log.base.asked
    opening = Opening(
        VERSION,
        log.next_seq,
        len(log),
        _digest(held[-1]),
        [*seqs[:1], *(after - before for before, after in pairwise(seqs))],
        {name: each.dump(fold(each)) for name, each in STANDING.items()},
        [(seq, known[seq]) for seq in seqs if seq in known],
        surface.replace_generation,
        {call: [list(each) for each in calls] for call, calls in log.open_calls.items()},
        log.unknown,
        log.flagged,
        log.damage,
        asked,
    )
    try:
        body = _encoder.encode(opening)
    except UnicodeEncodeError:
        body = jsontext.encode(msgspec.to_builtins(opening))
    return sha256(body).digest() + body


def read(data: bytes) -> Opening | None:
    """The record in these bytes; None when it cannot be used."""
    digest, body = data[:_DIGEST], data[_DIGEST:]
    if sha256(body).digest() != digest:
        return None
    try:
        try:
            opening = _decoder.decode(body)
        except msgspec.DecodeError:
            opening = msgspec.convert(jsontext.decode(body), Opening)
    except (ValueError, RecursionError):
        return None
    usable = opening.version == VERSION and opening.folds.keys() == STANDING.keys()
    return opening if usable else None


def open_log(
    header: SessionHeader, opening: Opening, events: Sequence[AnyEvent], tail: Sequence[AnyEvent]
) -> SessionLog | None:
    """The log that goes on from a record; None when what is there does not fit together.

    Args:
        header: the session's.
        opening: the record.
        events: those of its surface and the last one before `next_seq`.
        tail: all events from `next_seq` on.
    """
    base = opening.base(header, events)
    if base is None:
        return None
    log = SessionLog(header, base)
    try:
        for event in tail:
            log.load(event)
        for name, state in opening.folds.items():
            STANDING[name].restore(state)
    except (AdmissionError, KeyError, TypeError, ValueError):
        return None
    return log


def _digest(event: AnyEvent) -> str:
    """What tells an event from another in its place."""
    return sha256(b"%d %d %b" % (event.seq, event.time, event.raw)).hexdigest()[:32]
