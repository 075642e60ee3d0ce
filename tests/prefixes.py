"""The law of the prefix: what a request said, the next one says again, and then more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from turnlog import Session, proof
from turnlog.events import Replace
from turnlog.views.requests import Request


def broken_prefixes(session: Session) -> list[str]:
    """The step requests that do not extend the last one with their header and encoder."""
    found: list[str] = []
    alike: dict[tuple[str, str | None], list[Request]] = {}
    for request in session.requests():
        if request.purpose == "step" and request.digest is not None:
            alike.setdefault((repr(request.header), request.encoder), []).append(request)
    for requests in alike.values():
        said = [list(elements(proof.rebuild(session, request.index))) for request in requests]
        for i, (earlier, later) in enumerate(pairwise(requests)):
            if _replaced(session, earlier.at, later.at):
                continue
            if said[i + 1][: len(said[i])] != said[i]:
                found.append(f"request {later.index} does not extend request {earlier.index}")
    return found


def elements(body: bytes) -> Iterator[str]:
    """System text, tools and content blocks of a request, one by one."""
    wire: dict[str, Any] = json.loads(body)
    yield json.dumps(wire.get("system"))
    for tool in wire.get("tools", ()):
        yield json.dumps(tool)
    for message in wire["messages"]:
        content = message.get("content")
        if isinstance(content, list):
            yield json.dumps({**message, "content": None})
            yield from map(json.dumps, content)  # pyright: ignore[reportUnknownArgumentType]
        else:
            yield json.dumps(message)


def _replaced(session: Session, start: int, stop: int) -> bool:
    return any(
        isinstance(event.surface_op, Replace)
        for event in session.events
        if start < event.seq <= stop
    )
