"""What every dialect's encoder is made of: JSON out, and stand-ins for what cannot be said.

Everything here belongs to encoders of version 1 and must give the same bytes for ever: a request
that was logged is proved by encoding it again. What has to change becomes a function of its own.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from turnlog import jsontext
from turnlog.content import Image, Message, Text, assistant_message, user_message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turnlog.events import Header, ModelConfig

OPEN_CALL: Final = "No result was recorded for this call; whether it ran is unknown."
NO_OUTPUT: Final = "(no output)"
RAW: Final = "_raw"  # the member under which arguments that are no JSON object are sent

_encode = msgspec.json.Encoder().encode
_NESTING = 400  # deeper arguments are sent as a string
_NOT_IN_NAME = re.compile(r"[^a-zA-Z0-9_-]")


def dump(value: Any) -> bytes:
    """Plain JSON as compact UTF-8, lone surrogates as U+FFFD."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(scrub(value))


def scrub(value: Any) -> Any:
    """A copy of a plain value without lone surrogates, in keys too."""
    if isinstance(value, str):
        return jsontext.replace_surrogates(value)
    if isinstance(value, dict):
        return {scrub(k): scrub(v) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, (list, tuple)):
        return [scrub(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def arguments_object(arguments: str) -> dict[str, Any]:
    """A call's arguments as an object.

    The raw string is a model's and may be anything: nothing becomes `{}`, what is no JSON object
    (or nests absurdly) becomes `{"_raw": the string}`.
    """
    if not arguments.strip():
        return {}
    try:
        value = jsontext.decode(arguments.encode("utf-8", "surrogatepass"))
        if isinstance(value, dict):
            if arguments.count("[") + arguments.count("{") > _NESTING and _is_deep(value):
                return {RAW: arguments}
            _encode(scrub(value))
            return value  # pyright: ignore[reportUnknownVariableType]
    except (ValueError, OverflowError):
        pass  # no JSON, or a number that cannot be written again: sent as it is, a string
    return {RAW: arguments}


def _is_deep(value: Any) -> bool:
    """Whether a value has more than `_NESTING` levels."""
    level: list[Any] = [value]
    for _ in range(_NESTING):
        level = [
            item
            for holder in level
            for item in (holder.values() if isinstance(holder, dict) else holder)  # pyright: ignore[reportUnknownVariableType,reportUnknownMemberType]
            if isinstance(item, (dict, list))
        ]
        if not level:
            return False
    return True


def arguments_text(arguments: str) -> str:
    """A call's arguments as a string that holds a JSON object: the raw one where it does."""
    value = arguments_object(arguments)
    if RAW in value or not value:
        return dump(value).decode()
    return jsontext.replace_surrogates(arguments)


def tool_name(name: str) -> str:
    """A name that providers take: 1 to 64 letters, digits, underscores, hyphens."""
    return _NOT_IN_NAME.sub("_", name)[:64] or "unnamed"


def short_hash(*parts: str) -> str:
    """Eight hexadecimal digits that tell tuples of strings apart."""
    joined = "\x00".join(parts)
    return sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def clean_id(raw: str, limit: int, *, strict: bool) -> str:
    """A call id within `limit` characters; `strict`: of letters, digits, `_` and `-` only.

    A legal id stays as it is; any other ends in a hash of itself, so that two that look the same
    once cleaned stay two.
    """
    clean = _NOT_IN_NAME.sub("_", raw) if strict else jsontext.replace_surrogates(raw)
    if clean == raw and 0 < len(raw) <= limit:
        return raw
    return f"{clean[: limit - 9]}_{short_hash(raw)}"


def texts(message: Message) -> list[str]:
    """The texts of a message that are not blank."""
    return [b.text for b in message.content if type(b) is Text and b.text.strip()]


def omitted(what: str) -> str:
    """The note that stands for content which the dialect cannot carry."""
    return f"[{what or 'content'} omitted]"


def image_bytes(image: Image) -> tuple[str, str] | None:
    """Media type and base64 data of an image that is given inline, else None."""
    if image.data and image.media_type and image.media_type.startswith("image/"):
        return image.media_type, image.data
    return None


def examples(header: Header) -> Iterator[Message]:
    """The worked examples of a header (`examples` in its `extra`), which precede the history."""
    given: Any = (header.extra or {}).get("examples")
    for item in cast("list[Any]", given) if isinstance(given, list) else []:
        match item:
            case {"role": "user", "content": str(text)}:
                yield user_message(text)
            case {"role": "assistant", "content": str(text)}:
                yield assistant_message(text)
            case _:
                pass


def passed_on(config: ModelConfig, reserved: frozenset[str]) -> dict[str, Any]:
    """What a configuration says beyond the fields we know: the provider's own parameters."""
    return {k: v for k, v in (config.extra or {}).items() if k not in reserved}
