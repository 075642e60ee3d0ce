"""From what a backend holds to a log: every readable event, and damage for the rest."""

from __future__ import annotations

import msgspec

from turnlog import jsontext
from turnlog.errors import AdmissionError
from turnlog.events import SessionHeader
from turnlog.log import Damage, SessionLog
from turnlog.stores.port import Stored

MISSING = "records are missing"
"""The reason of a gap in the seqs of which nothing else is known."""


def build_log(stored: Stored) -> SessionLog:
    """The log of a stored session; never raises for a bad record, which becomes damage.

    Damage is what the backend could not read, what the source of an import had lost already, and
    what lacks because an import or a fork was interrupted.
    """
    header = stored.header
    log = SessionLog(header)
    holes: dict[int, Damage] = {}
    for damage in (*stored.damage, *source_damage(header)):
        first, last = damage.first_seq, damage.last_seq
        if first is None or last is None:
            log.damage.append(damage)
        elif first not in holes or last >= (holes[first].last_seq or first):
            holes[first] = damage
    for event in stored.events:
        if event.seq > log.next_seq:
            _lose(log, event.seq, holes)
        try:
            log.load(event)
        except AdmissionError as error:
            if event.seq == log.next_seq:
                log.lose(Damage(f"breaks a rule: {error}", event.seq, event.seq))
            else:
                log.damage.append(Damage(f"breaks a rule: {error}"))
    ends = [damage.last_seq + 1 for damage in stored.damage if damage.last_seq is not None]
    _lose(log, max(ends, default=0), holes)  # also where nothing readable follows
    while (hole := holes.pop(log.next_seq, None)) is not None:
        log.lose(hole)
    missing = unfinished(header, log.next_seq)
    if missing is not None:
        log.lose(missing)
    return log


def _lose(log: SessionLog, upto: int, holes: dict[int, Damage]) -> None:
    """Lose the seqs before `upto`, each for the reason that is known."""
    while log.next_seq < upto:
        first = log.next_seq
        hole = holes.pop(first, None)
        if hole is None:
            last = min([seq for seq in holes if first < seq < upto], default=upto) - 1
            log.lose(Damage(MISSING, first, last))
        elif (hole.last_seq or first) < upto:
            log.lose(hole)
        else:
            log.lose(msgspec.structs.replace(hole, last_seq=upto - 1))


def unfinished(header: SessionHeader, next_seq: int) -> Damage | None:
    """What an import or a fork that was interrupted still lacks of its seed, else None."""
    seed = header.seed_length or 0
    if next_seq >= seed:
        return None
    what = "import" if header.source_format else "fork"
    reason = f"the {what} was interrupted at {next_seq} of {seed} events: {what} it again"
    return Damage(reason, next_seq, seed - 1)


def source_damage(header: SessionHeader) -> list[Damage]:
    """What could not be read of the source that a session was imported from."""
    return [_damage_of(wire) for wire in header.source_damage or ()]


def range_of(damage: Damage) -> dict[str, object]:
    """Damage as an acknowledgement records it."""
    found = {
        "firstSeq": damage.first_seq,
        "lastSeq": damage.last_seq,
        "offset": damage.offset,
        "length": damage.length,
        "place": damage.place,
        "reason": damage.reason,
    }
    return {key: value for key, value in found.items() if value is not None}


def _damage_of(wire: dict[str, object]) -> Damage:
    """The inverse of `range_of`; a field that is not what it must be counts as absent."""

    def integer(key: str) -> int | None:
        value = wire.get(key)
        return value if type(value) is int and 0 <= value < jsontext.INT_MAX else None

    first, last = integer("firstSeq"), integer("lastSeq")
    if first is None or last is None or last < first:
        first = last = None
    reason, place = wire.get("reason"), wire.get("place")
    return Damage(
        reason if isinstance(reason, str) else "damaged",
        first,
        last,
        integer("offset"),
        integer("length"),
        place if isinstance(place, str) else None,
    )
