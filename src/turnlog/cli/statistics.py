"""What a session or a store holds, counted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from turnlog.cli.sessions import read_session
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
        "bytes of payload": sum(len(event.raw) for event in session.events),
        "turns": types["turn/start"],
        "steps": types["step/start"],
        "tool calls": types["tool/call"],
        "requests": len(session.requests()),
        "messages the model sees": len(session.derive_messages()),
        "messages a person reads": len(session.extract_chat_messages()),
        "replacements": session.surface.replace_generation,
        "damaged stretches": len(session.damage),
        "unknown types": sum(session.unknown_types.values()),
        "events by type": dict(types.most_common()),
        "tokens by model": _usage(session.usage().everything),
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
            spent += (await read_session(store, info.id)).usage().own
        except TurnlogError:
            unread += 1
    found: dict[str, Any] = {
        "store": store.url,
        "sessions": sum(health.values()),
        "events": events,
        "bytes": "unknown" if sizes_unknown else bytes_known,
        "sessions by health": dict(health),
        "tokens by model": _usage(spent),
    }
    if unread:
        found["sessions not counted in tokens"] = unread
    return found


def _usage(spent: Spent) -> dict[str, dict[str, Any]]:
    """Tokens by model; what was not reported is named, never zero."""
    found: dict[str, dict[str, Any]] = {}
    for model, part in spent.by_model.items():
        tokens = part.total
        found[model or "unknown model"] = {
            "requests": tokens.requests,
            "input": _told(tokens.input),
            "cache read": _told(tokens.cache_read),
            "cache write": _told(tokens.cache_write),
            "output": _told(tokens.output),
            "reasoning": _told(tokens.reasoning),
        }
    return found


def _told(count: Count) -> int | str:
    if not count.unknown:
        return count.known
    return f"{count.known} and unknown" if count.known else "unknown"
