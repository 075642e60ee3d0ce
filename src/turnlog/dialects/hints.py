"""What a provider's message list says beyond our messages, kept so that it can be given back.

Our blocks hold what they mean in common. The rest goes under the single key `wire` of the `extra`
of the message or block: which of several spellings was used, when it is not the usual one, and the
keys that we do not know. A message without anything unusual carries nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from turnlog.content import Block, Message, Text
from turnlog.errors import InvalidMessages
from turnlog.records import Opaque, plain

KEY: Final = "wire"
Wire = dict[str, Any]
_OURS: Final = frozenset({"text", "reasoning", "image", "tool-call", Opaque.__struct_config__.tag})


class Refused(Exception):
    """Why a message cannot be read; `read_each` says which one it was."""


def listed(messages: Any) -> list[Any]:
    """The messages as a list.

    Raises:
        InvalidMessages: nothing that lists messages.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        msg = f"expected a list of messages, got {type(cast('object', messages)).__name__}"
        raise InvalidMessages(msg)
    return list(cast("Iterable[Any]", messages))


def read_each(messages: Iterable[Any]) -> Iterator[tuple[int, Wire]]:
    """The messages with their places, as dicts that may be taken apart.

    Raises:
        InvalidMessages: no list of dicts with string keys.
    """
    for index, message in enumerate(listed(messages)):
        try:
            yield index, fields(message, "a message")
        except Refused as why:
            raise invalid(index, why) from None


def invalid(index: int, why: object) -> InvalidMessages:
    """The error that names the message."""
    return InvalidMessages(f"message {index}: {why}", index=index)


def fields(value: Any, what: str) -> Wire:
    """A copy of an object, one level deep."""
    if not isinstance(value, Mapping):
        raise Refused(f"expected {what} as a dict, got {type(value).__name__}")
    copy = cast("Wire", dict(cast("Mapping[Any, Any]", value)))
    for key in copy:
        if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Refused(f"expected string keys, got {key!r}")
    return copy


def text(wire: Wire, key: str, *, empty: bool = False) -> str:
    """Take a string out of an object."""
    value = wire.pop(key, None)
    if not isinstance(value, str) or not (value or empty):
        kind = "a string" if empty else "a non-empty string"
        raise Refused(f"expected {key} to be {kind}, got {value!r}")
    return value


def items(value: Any, what: str) -> list[Any]:
    """A list."""
    if not isinstance(value, list):
        raise Refused(f"expected {what} to be a list, got {type(value).__name__}")
    return cast("list[Any]", value)


def extra(**hints: Any) -> dict[str, Any] | None:
    """Hints as `extra`; None and empty dicts say nothing, and without any there is none."""
    told = {k: v for k, v in hints.items() if v is not None and v != {}}
    return {KEY: told} if told else None


def hints(holder: Message | Block) -> Wire:
    """The hints that a message or block carries, as plain JSON."""
    held = (holder.extra or {}).get(KEY) if not isinstance(holder, Opaque) else None
    return plain(held) if isinstance(held, Mapping) else {}


def hint(holder: Message | Block, name: str) -> Wire:
    """A hint that is an object."""
    value = hints(holder).get(name)
    return cast("Wire", value) if isinstance(value, dict) else {}


def is_plain(blocks: Sequence[Block]) -> bool:
    """Whether blocks are one text and nothing more: what is usually written as a string."""
    return len(blocks) == 1 and type(blocks[0]) is Text and not hints(blocks[0])


def wrap(dialect: str, part: Wire, *, always: bool = False) -> Opaque:
    """A part that we do not know; marked as the dialect's where its type means another of ours."""
    kind = part.get("type")
    if not isinstance(kind, str) or not kind:
        raise Refused(f"expected a content part with a type, got {part!r}")
    if always or kind in _OURS or kind.startswith(f"{dialect}/"):
        return Opaque({"type": f"{dialect}/{kind}", "part": part})
    return Opaque(part)


def unwrap(dialect: str, block: Opaque) -> Wire:
    """The part that `wrap` was given."""
    value = plain(block.value)
    if block.type.startswith(f"{dialect}/") and isinstance(value.get("part"), dict):
        return value["part"]
    return value
