"""What a session or a store holds, counted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from turnlog.compaction.prefix import Replaced, replacements
from turnlog.errors import TurnlogError
from turnlog.views.usage import Count, Spent

if TYPE_CHECKING:
    from turnlog.session import Session
    from turnlog.stores.store import Store


def of_session(session: Session) -> dict[str, Any]:
    """Counts, sizes and usage of one session."""
    types = Counter(event.type for event in session.events)
    return {
        "id": session.id,
        "events": len(session),
        "payloadBytes": sum(len(event.raw) for event in session.events),
        "turns": types["turn/start"],
        "steps": types["step/start"],
        "toolCalls": types["tool/call"],
        "requests": len(session.requests()),
        "messagesForModel": len(session.derive_messages()),
        "messagesForPerson": len(session.extract_chat_messages()),
        "replacements": session.surface.replace_generation,
        "damagedStretches": len(session.damage),
        "unknownTypes": sum(session.unknown_types.values()),
        "prefixCache": [_broken(each) for each in replacements(session)],
        "eventsByType": dict(types.most_common()),
        "tokensByModel": _usage(session.usage().everything),
    }


async def of_store(store: Store) -> dict[str, Any]:
    """Counts of all sessions; what forks share is counted once."""
    health: Counter[str] = Counter()
    events = bytes_known = 0
    sizes_unknown = False
    spent, unread = Spent({}), 0
    for info in [info async for info in store.sessions()]:
        health[info.health] += 1
        events += info.events
        sizes_unknown |= info.bytes is None
        bytes_known += info.bytes or 0
        try:
            spent += (await store.read(info.id, load="all")).usage().own
        except TurnlogError:
            unread += 1
    return {
        "store": store.url,
        "sessions": sum(health.values()),
        "events": events,
        "bytes": None if sizes_unknown else bytes_known,
        "sessionsByHealth": dict(health),
        "sessionsWithoutTokens": unread,
        "tokensByModel": _usage(spent),
    }


def _broken(found: Replaced) -> dict[str, Any]:
    """A replacement, and what it cost in prefix cache, in estimated tokens."""
    return {
        "seq": found.seq,
        "kind": found.kind,
        "broke": found.broke,
        "shadowed": len(found.shadowed),
        "removed": found.removed,
        "added": found.added,
        "resent": found.resent,
    }


def _usage(spent: Spent) -> list[dict[str, Any]]:
    """Tokens by model. Where none are known they are null, never zero."""
    return [
        {
            "model": model,
            "answers": part.total.answers,
            "input": _wire(part.total.input),
            "cacheRead": _wire(part.total.cache_read),
            "cacheWrite": _wire(part.total.cache_write),
            "output": _wire(part.total.output),
            "reasoning": _wire(part.total.reasoning),
        }
        for model, part in spent.by_model.items()
    ]


def _wire(count: Count) -> dict[str, int | None]:
    """The tokens that were reported, and how many answers did not say."""
    known = None if count.unknown and not count.known else count.known
    return {"tokens": known, "unknown": count.unknown}


# -- for a person ------------------------------------------------------------------------------


_LABELS = {
    "payloadBytes": "bytes of payload",
    "messagesForModel": "messages the model sees",
    "messagesForPerson": "messages a person reads",
    "sessionsWithoutTokens": "sessions not counted in tokens",
    "prefixCache": "prefix cache: tokens to read anew",
}
_LISTED = 10  # replacements, the last ones


def told(found: dict[str, Any]) -> Iterator[tuple[str, str | list[tuple[str, str]]]]:
    """Names and values for a person; several values with names of their own where there are."""
    for key, value in found.items():
        name = _LABELS.get(key) or _words(key)
        if key == "tokensByModel":
            models = [(part["model"] or "unknown model", _tokens(part)) for part in value]
            yield name, models
        elif key == "prefixCache":
            yield name, list(_cache(value)) or "no replacements"
        elif isinstance(value, dict):
            counts = cast("dict[str, int]", value)
            yield name, [(kind, str(count)) for kind, count in counts.items()]
        elif key != "sessionsWithoutTokens" or value:
            yield name, "unknown" if value is None else str(value)


def _cache(found: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """What replacements cost: the sum, and the last ones."""
    if found:
        yield "all", str(sum(each["resent"] for each in found))
    for each in found[-_LISTED:]:
        what = f"{each['removed']} became {each['added']}"
        yield f"{each['kind']} #{each['seq']}", f"{each['resent']} behind #{each['broke']}; {what}"
    if len(found) > _LISTED:
        yield "earlier", f"{len(found) - _LISTED} more; --json lists them"


def _words(key: str) -> str:
    return re.sub("[A-Z]", lambda capital: f" {capital[0].lower()}", key)


def _tokens(part: dict[str, Any]) -> str:
    said = [f"answers {part['answers']}"]
    for key in ("input", "cacheRead", "cacheWrite", "output", "reasoning"):
        known, unknown = part[key]["tokens"], part[key]["unknown"]
        count = "unknown" if known is None else f"at least {known}" if unknown else str(known)
        said.append(f"{_words(key)} {count}")
    return ", ".join(said)
