"""Adopting a message list that a program has kept, as the seed of a session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from msgspec.structs import replace

from turnlog.dialects import anthropic_messages, openai_messages
from turnlog.dialects.hints import KEY, Wire, invalid, listed
from turnlog.errors import AdmissionError, ConversionError
from turnlog.events import (
    EVENT_TYPES,
    AnyEvent,
    AssistantMessage,
    SessionHeader,
    SystemMessage,
    ToolResult,
)
from turnlog.log import SessionLog, make_event

if TYPE_CHECKING:
    from turnlog.content import Message

ListDialect: TypeAlias = Literal["openai", "anthropic"]

_LISTS: Final[Mapping[str, Any]] = MappingProxyType(
    {"openai": openai_messages, "anthropic": anthropic_messages}
)
# What only one of the two writes.
_ROLES: Final = {"tool": "openai", "developer": "openai"}
_KEYS: Final = {"tool_calls": "openai", "tool_call_id": "openai", "reasoning_content": "openai"}
_PARTS: Final = {
    "image_url": "openai",
    "input_audio": "openai",
    "file": "openai",
    "refusal": "openai",
    "tool_use": "anthropic",
    "tool_result": "anthropic",
    "thinking": "anthropic",
    "redacted_thinking": "anthropic",
    "image": "anthropic",
    "document": "anthropic",
}


def guess_dialect(messages: Sequence[Any]) -> ListDialect:
    """Whose list this is, by what only one of them writes; "openai" where both read the same.

    Raises:
        InvalidMessages: it has signs of both.
    """
    found: str | None = None
    for index, message in enumerate(messages):
        for sign in _signs(message):
            if found not in (None, sign):
                raise invalid(index, f"looks like {sign}'s, those before it like {found}'s")
            found = sign
    return "anthropic" if found == "anthropic" else "openai"


def _signs(message: Any) -> Iterator[str]:
    if not isinstance(message, Mapping):
        return
    wire = cast("Mapping[Any, Any]", message)
    role, content = wire.get("role"), wire.get("content")
    if isinstance(role, str) and role in _ROLES:
        yield _ROLES[role]
    yield from (sign for key, sign in _KEYS.items() if key in wire)
    for part in cast("list[Any]", content) if isinstance(content, list) else []:
        if isinstance(part, Mapping):
            kind = cast("Mapping[Any, Any]", part).get("type")
            if isinstance(kind, str) and kind in _PARTS:
                yield _PARTS[kind]
            elif "cache_control" in part:
                yield "anthropic"


def adopt(
    messages: Iterable[Any],
    dialect: str | None,
    session_id: str,
    clock: Callable[[], int],
    new_id: Callable[[], str],
) -> SessionLog:
    """A log whose events are the messages: a seed, of which nothing is repaired yet.

    Raises:
        InvalidMessages: which message cannot be read, and why.
    """
    given = listed(messages)
    name = guess_dialect(given) if dialect is None else dialect
    read: list[Message] = _of(name).read_messages(given)
    header = SessionHeader(
        session_id,
        clock(),
        seed_length=len(read),
        source_format=f"{name}/messages",
        source_length=len(read) or None,
    )
    header.check()
    log = SessionLog(header)
    for message in read:
        log.load(_event(replace(message, id=new_id()), log.next_seq, clock()))
    return log


def write(messages: Iterable[Message], dialect: str) -> list[Wire]:
    """Messages as the list of a provider.

    Raises:
        ConversionError: no such dialect of lists.
    """
    return _of(dialect).write_messages(messages)


def is_said(message: Message) -> bool:
    """Whether a message belongs into a list: it says something, or was adopted saying nothing."""
    return bool(message.content) or message.role == "tool" or KEY in (message.extra or {})


def _of(dialect: str) -> Any:
    if dialect not in _LISTS:
        msg = f"expected a dialect of {', '.join(_LISTS)}, got {dialect!r}"
        raise ConversionError(msg)
    return _LISTS[dialect]


def _event(message: Message, seq: int, time: int) -> AnyEvent:
    match message.role:
        case "user":
            name, data = "user/message", message
        case "assistant":
            name, data = "assistant/message", AssistantMessage(message)
        case "tool":
            name, data = "tool/result", ToolResult(message)
        case _:
            name, data = f"{message.role}/message", SystemMessage(message)
    try:
        raw, _ = EVENT_TYPES[name].admit(data, seq)
    except AdmissionError as error:
        raise invalid(seq, error) from None
    return make_event(name, seq, time, raw, "append")
