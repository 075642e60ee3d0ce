"""Views as plainly as can be written: what the incremental ones must equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from turnlog import Message, Session, ToolCall
from turnlog.events import AnyEvent
from turnlog.testing.providers import Rule, Violation, check_neutral


def naive_surface(events: Sequence[AnyEvent]) -> list[int]:
    """The surface, by list search and splice."""
    seqs: list[int] = []
    for event in events:
        if event.surface_op == "append":
            seqs.append(event.seq)
        elif event.surface_op is not None:
            start, end = seqs.index(event.surface_op.start), seqs.index(event.surface_op.end)
            seqs[start : end + 1] = [event.seq]
    return seqs


def naive_messages(events: Sequence[AnyEvent]) -> list[Message]:
    """What the model sees."""
    by_seq = {event.seq: event for event in events}
    messages = (by_seq[seq].message for seq in naive_surface(events))
    return [message for message in messages if message is not None and message.content]


def naive_transcript(
    events: Sequence[AnyEvent], *, tools: bool, context: bool
) -> Iterator[Message]:
    """What a person reads."""
    for event in events:
        message = event.message
        if event.surface_op != "append" or message is None or not message.content:
            continue
        if message.role == "tool":
            shown = tools
        elif message.role == "assistant":
            shown = True
            if not tools and message.tool_calls:
                said = tuple(b for b in message.content if not isinstance(b, ToolCall))
                message, shown = msgspec.structs.replace(message, content=said), bool(said)
        else:
            person = event.type == "user/message" and message.source.kind == "user"
            shown = person or context
        if shown:
            yield message


#: Each view, now and after an event.
VIEWS: dict[str, Callable[[Session, int | None], Any]] = {
    "derive": lambda session, at: list(session.derive_messages(at)),
    "request": lambda session, at: list(session.request_messages(at)),
    "nodes": lambda session, at: session.nodes(at),
    "requests": lambda session, at: session.requests(at),
    "usage": lambda session, at: session.usage(at),
    "mends": lambda session, at: session.request_messages(at).mends,
    "surface": lambda session, at: list(
        session.surface.seqs if at is None else session.surface.at(at)
    ),
    **{
        f"transcript-{tools}-{context}": lambda session, at, t=tools, c=context: list(
            session.extract_chat_messages(include_tools=t, include_context=c, at=at)
        )
        for tools in (False, True)
        for context in (False, True)
    },
}


def violations(messages: Sequence[Message]) -> list[Violation]:
    """What any provider would refuse; lone surrogates are the encoder's to replace."""
    found = check_neutral([message.to_dict() for message in messages])
    return [violation for violation in found if violation.rule != Rule.LONE_SURROGATE]
