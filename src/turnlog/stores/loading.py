"""From what a backend holds to a log: every readable event, and damage for the rest."""

from __future__ import annotations

from turnlog.errors import AdmissionError
from turnlog.events import DamageAcknowledged
from turnlog.log import Damage, SessionLog
from turnlog.stores.port import Stored


def build_log(stored: Stored) -> SessionLog:
    """The log of a stored session; never raises for a bad record, which becomes damage."""
    log = SessionLog(stored.header)
    holes = [hole for hole in stored.damage if hole.first_seq is not None]
    log.damage.extend(hole for hole in stored.damage if hole.first_seq is None)
    at = 0
    for event in stored.events:
        while event.seq > log.next_seq:
            if at < len(holes) and holes[at].first_seq == log.next_seq:
                log.lose(holes[at])
                at += 1
            else:
                log.lose(Damage("records are missing", log.next_seq, event.seq - 1))
        try:
            log.load(event)
        except AdmissionError as error:
            if event.seq == log.next_seq:
                log.lose(Damage(f"breaks a rule: {error}", event.seq, event.seq))
            else:
                log.damage.append(Damage(f"breaks a rule: {error}"))
    for hole in holes[at:]:
        if hole.first_seq == log.next_seq:
            log.lose(hole)
        else:
            log.damage.append(hole)
    return log


def unacknowledged(log: SessionLog) -> list[Damage]:
    """The damage that no `session/damage-acknowledged` covers."""
    accepted: set[tuple[object, object, object, object]] = set()
    for event in log.events:
        if event.type == "session/damage-acknowledged" and type(event.data) is DamageAcknowledged:
            accepted.update(
                (r.get("firstSeq"), r.get("lastSeq"), r.get("offset"), r.get("place"))
                for r in event.data.ranges
            )
    return [d for d in log.damage if _key(d) not in accepted]


def _key(damage: Damage) -> tuple[object, object, object, object]:
    return damage.first_seq, damage.last_seq, damage.offset, damage.place


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
