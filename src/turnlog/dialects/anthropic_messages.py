"""Anthropic's message lists: read as our messages, and given back as they were.

One user's message there may hold several tool results and more; here each result is a message of
its own. A message that continues the one before it in this way says so, unless it is a result that
follows a result, which is what is usual.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from turnlog import jsontext
from turnlog.content import Block, Extra, Image, Message, Reasoning, Source, Text, ToolCall
from turnlog.dialects.hints import (
    KEY,
    Refused,
    Wire,
    extra,
    fields,
    hint,
    hints,
    invalid,
    is_plain,
    items,
    read_each,
    text,
    unwrap,
    wrap,
)
from turnlog.dialects.wire import arguments_object, image_bytes, omitted
from turnlog.errors import AdmissionError
from turnlog.records import Opaque

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DIALECT: Final = "anthropic"


# -- in ----------------------------------------------------------------------------------------


def read_messages(messages: Iterable[Any]) -> list[Message]:
    """Anthropic's list as our messages, without ids; unknown keys are kept.

    A message of role `system` is read too, though the provider takes system text elsewhere.

    Raises:
        InvalidMessages: which message is none, and why.
    """
    read: list[Message] = []
    for index, wire in read_each(messages):
        try:
            after_result = bool(read) and read[-1].role == "tool"
            read += _read(wire, after_result=after_result)
        except Refused as why:
            raise invalid(index, why) from None
    return read


def _read(wire: Wire, *, after_result: bool) -> Iterable[Message]:
    role = wire.pop("role", None)
    if role not in ("user", "assistant", "system"):
        raise Refused(f"expected role user, assistant or system, got {role!r}")
    content = wire.pop("content", None)
    if isinstance(content, str):
        form = "text"
        parts: list[Wire] = [{"type": "text", "text": content}] if content else []
    else:
        form, parts = "parts", [fields(p, "a block") for p in items(content, "content")]
    if role != "user" or not any(map(_is_result, parts)):
        blocks = tuple(map(_block, parts))
        spelled = None if blocks and form == _usual(blocks) else form
        kind = {"user": "user", "assistant": "model", "system": "system"}[role]
        kept = extra(form=spelled, anthropic=wire)
        yield Message("", role, blocks, Source(kind, DIALECT), extra=kept)
        return
    goes_on = False
    for is_result, run in groupby(parts, _is_result):
        together = list(run)
        units = [[part] for part in together] if is_result else [together]
        for unit in units:
            usual = is_result and after_result
            told = extra(more=None if goes_on == usual else goes_on, anthropic=wire)
            yield _result(unit[0], told) if is_result else _between(unit, told)
            goes_on, after_result, wire = True, is_result, {}


def _is_result(part: Wire) -> bool:
    return part.get("type") == "tool_result"


def _between(parts: list[Wire], told: Extra) -> Message:
    """What a user's message holds besides results."""
    return Message("", "user", tuple(map(_block, parts)), Source("user", DIALECT), extra=told)


def _result(part: Wire, told: Extra) -> Message:
    del part["type"]
    call_id = text(part, "tool_use_id")
    is_error = part.get("is_error")
    if isinstance(is_error, bool):
        del part["is_error"]
    elif is_error is not None:
        raise Refused(f"expected is_error to be true or false, got {is_error!r}")
    form, blocks = "absent", list[Block]()
    if "content" in part:
        content = part.pop("content")
        if isinstance(content, str):
            form, blocks = "text", [Text(content)] if content else []
        else:
            parts = items(content, "content")
            form, blocks = "parts", [_block(fields(p, "a block")) for p in parts]
    spelled = None if form == _usual_result(blocks) else form
    source = Source("tool", DIALECT, call_id=call_id)
    kept = extra(**(told or {}).get(KEY, {}), form=spelled, inner=part)
    answer = is_error if isinstance(is_error, bool) else None
    return Message("", "tool", tuple(blocks), source, call_id, answer, kept)


def _block(part: Wire) -> Block:  # noqa: PLR0911 - one for each type of block
    kind = part.pop("type", None)
    match kind, part:
        case "text", _:
            return Text(text(part, "text", empty=True), extra(anthropic=part))
        case "thinking", _:
            thought = text(part, "thinking", empty=True)
            signature = part.pop("signature") if _is_filled(part.get("signature")) else None
            return Reasoning(thought, signature, extra=extra(anthropic=part))
        case "redacted_thinking", {"data": str(data)} if data:
            del part["data"]
            return Reasoning(encrypted=data, extra=extra(anthropic=part))
        case "tool_use", _:
            call_id, name = text(part, "id"), text(part, "name")
            given = fields(part.pop("input", None), "input")
            arguments = _arguments(given)
            return ToolCall(call_id, name, arguments, extra(anthropic=part))
        case "image", {"source": {"type": "base64", "media_type": str(media), "data": str(data)}}:
            source = part["source"]
            if len(source) == 3 and media.startswith("image/") and data:
                del part["source"]
                return Image(media, data, extra=extra(anthropic=part))
        case "image", {"source": {"type": "url", "url": str(url)}}:
            source = part["source"]
            if len(source) == 2 and url:
                del part["source"]
                return Image(url=url, extra=extra(anthropic=part))
        case _:
            pass
    if kind is not None:
        part = {"type": kind, **part}
    return wrap(DIALECT, part)


def _is_filled(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _arguments(given: Wire) -> str:
    """An input object as the string of arguments that `_input` makes equal again."""
    try:
        return jsontext.admit(given).decode()
    except AdmissionError as error:
        raise Refused(f"input: {error}") from None


# -- out ---------------------------------------------------------------------------------------


def write_messages(messages: Iterable[Message]) -> list[Wire]:
    """Our messages as an Anthropic list.

    What `read_messages` read comes out equal. What this dialect cannot say becomes a note (blocks
    of other providers) or is left out (their reasoning).
    """
    written: list[Wire] = []
    after_result = False
    for message in messages:
        is_result = message.role == "tool"
        more = hints(message).get("more", is_result and after_result)
        wire = _write_result(message) if is_result else _write(message)
        if more and written and written[-1]["role"] == wire["role"] == "user":
            last = written[-1]
            last["content"] = _as_parts(last["content"]) + _as_parts(wire["content"])
        else:
            written.append(wire)
        after_result = is_result
    return written


def _as_parts(content: Any) -> list[Wire]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _write(message: Message) -> Wire:
    role = "system" if message.role == "developer" else message.role
    own = message.source.provider == DIALECT
    parts = [part for block in message.content if (part := _part(block, own=own)) is not None]
    usual = _usual(message.content)
    content = _spell(parts, hints(message).get("form", usual), usual)
    return {"role": role, "content": content} | hint(message, "anthropic")


def _write_result(message: Message) -> Wire:
    block: Wire = {"type": "tool_result", "tool_use_id": message.tool_call_id or ""}
    own = message.source.provider == DIALECT
    parts = [part for b in message.content if (part := _part(b, own=own)) is not None]
    usual = _usual_result(message.content)
    form = hints(message).get("form", usual)
    if form != "absent" or parts:
        block["content"] = _spell(parts, form, usual)
    if message.is_error is not None:
        block["is_error"] = message.is_error
    return {"role": "user", "content": [block | hint(message, "inner")]} | hint(
        message, "anthropic"
    )


def _spell(parts: list[Wire], form: Any, usual: str) -> str | list[Wire]:
    """Content in the form in which it came, where that still fits."""
    bare = not parts or (len(parts) == 1 and parts[0].keys() == {"type", "text"})
    if bare and "text" in (form, usual) and form != "parts":
        return "".join(part["text"] for part in parts)
    return parts


def _usual(blocks: Sequence[Block]) -> str:
    """The form in which content is written when nothing else is known."""
    return "text" if is_plain(blocks) else "parts"


def _usual_result(blocks: Sequence[Block]) -> str:
    return _usual(blocks) if blocks else "absent"


def _part(block: Block, *, own: bool) -> Wire | None:
    """A block on the wire; None for what stays here."""
    match block:
        case Text():
            wire: Wire = {"type": "text", "text": block.text}
        case Image():
            wire = _image(block)
        case ToolCall():
            given = _input(block.arguments)
            wire = {"type": "tool_use", "id": block.id, "name": block.name, "input": given}
        case Reasoning():
            if not own:
                return None
            wire = {"type": "thinking", "thinking": block.text}
            if block.encrypted:
                wire = {"type": "redacted_thinking", "data": block.encrypted}
            elif block.signature:
                wire["signature"] = block.signature
        case Opaque():
            return unwrap(DIALECT, block) if own else {"type": "text", "text": omitted(block.type)}
    return wire | hint(block, "anthropic")


def _input(arguments: str) -> Wire:
    try:
        value = jsontext.decode(arguments.encode("utf-8", "surrogatepass"))
    except ValueError:
        value = None
    return value if isinstance(value, dict) else arguments_object(arguments)  # pyright: ignore[reportUnknownVariableType]


def _image(image: Image) -> Wire:
    if inline := image_bytes(image):
        source = {"type": "base64", "media_type": inline[0], "data": inline[1]}
    elif image.url:
        source = {"type": "url", "url": image.url}
    else:
        return {"type": "text", "text": omitted("image")}
    return {"type": "image", "source": source}
