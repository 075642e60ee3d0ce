"""Chat-completions message lists: read as our messages, and given back as they were."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from turnlog.content import Block, Image, Message, Reasoning, Source, Text, ToolCall
from turnlog.dialects.hints import (
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
from turnlog.dialects.wire import image_bytes, omitted
from turnlog.records import Opaque

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DIALECT: Final = "openai"
_DATA_URL: Final = re.compile(r"data:(image/[\w.+-]+);base64,(.+)", re.DOTALL)
_KINDS: Final = {"function": "arguments", "custom": "input"}  # of calls, and what they are given


# -- in ----------------------------------------------------------------------------------------


def read_messages(messages: Iterable[Any]) -> list[Message]:
    """A chat-completions list as our messages, without ids; unknown keys are kept.

    Raises:
        InvalidMessages: which message is none, and why.
    """
    read: list[Message] = []
    for index, wire in read_each(messages):
        try:
            read.append(_read(wire))
        except Refused as why:
            raise invalid(index, why) from None
    return read


def _read(wire: Wire) -> Message:
    role = wire.pop("role", None)
    if role not in ("user", "assistant", "tool", "system", "developer"):
        raise Refused(f"expected role user, assistant, tool, system or developer, got {role!r}")
    form = "absent" if "content" not in wire else "null"
    content = wire.pop("content", None)
    if content is None:
        if role != "assistant":
            raise Refused(f"expected a {role} message to have content")
        blocks: list[Block] = []
    elif isinstance(content, str):
        form = "text"
        blocks = [Text(content)] if content else []
    else:
        form, blocks = "parts", [_block(fields(p, "a part")) for p in items(content, "content")]
    usual = form == _usual(role, blocks)
    call_id = None
    source = Source("user" if role == "user" else "system")
    if role == "tool":
        call_id = text(wire, "tool_call_id")
        source = Source("tool", call_id=call_id)
    elif role == "assistant":
        source = Source("model")
        blocks = _answer(wire, blocks)
    kept = extra(form=None if usual and blocks else form, openai=wire)
    return Message("", role, tuple(blocks), source, call_id, extra=kept)


def _answer(wire: Wire, blocks: list[Block]) -> list[Block]:
    """An assistant's blocks: reasoning, content, calls."""
    if wire.get("function_call") is not None:
        raise Refused("expected tool_calls, got function_call, which they replaced")
    thoughts = wire.get("reasoning_content")
    if isinstance(thoughts, str) and thoughts:
        blocks = [Reasoning(text(wire, "reasoning_content")), *blocks]
    if wire.get("tool_calls"):
        calls = items(wire.pop("tool_calls"), "tool_calls")
        blocks = [*blocks, *(_call(fields(call, "a tool call")) for call in calls)]
    return blocks


def _call(wire: Wire) -> ToolCall:
    call_id = text(wire, "id")
    kind = wire.pop("type", None)
    body = "function" if kind is None else kind
    if body not in _KINDS:
        raise Refused(f"expected a call of type function or custom, got {kind!r}")
    inner = fields(wire.pop(body, None), body)
    name, given = text(inner, "name"), text(inner, _KINDS[body], empty=True)
    spelled = {None: "untyped", "function": None, "custom": "custom"}[kind]
    return ToolCall(call_id, name, given, extra(form=spelled, openai=wire, inner=inner))


def _block(part: Wire) -> Block:
    match part:
        case {"type": "text"}:
            del part["type"]
            return Text(text(part, "text", empty=True), extra(openai=part))
        case {"type": "image_url", "image_url": {"url": str(url)}} if url:
            inner = fields(part.pop("image_url"), "image_url")
            del part["type"], inner["url"]
            kept = extra(openai=part, inner=inner)
            if inline := _DATA_URL.fullmatch(url):
                return Image(inline[1], inline[2], extra=kept)
            return Image(url=url, extra=kept)
        case _:
            return wrap(DIALECT, part, always=True)


# -- out ---------------------------------------------------------------------------------------


def write_messages(messages: Iterable[Message]) -> list[Wire]:
    """Our messages as a chat-completions list.

    What `read_messages` read comes out equal. What this dialect cannot say becomes a note (blocks
    of other providers) or is left out (their reasoning).
    """
    return [_write(message) for message in messages]


def _write(message: Message) -> Wire:
    calls, thoughts, said = list[ToolCall](), list[str](), list[Block]()
    for block in message.content:
        if type(block) is ToolCall:
            calls.append(block)
        elif type(block) is Reasoning:
            thoughts += [] if block.signature or block.encrypted else [block.text]
        else:
            said.append(block)
    wire: Wire = {"role": message.role}
    _spell(wire, message, said)
    if any(thoughts):
        wire["reasoning_content"] = "".join(thoughts)
    if calls:
        wire["tool_calls"] = [_written_call(call) for call in calls]
    if message.role == "tool":
        wire["tool_call_id"] = message.tool_call_id or ""
    return wire | hint(message, "openai")


def _spell(wire: Wire, message: Message, said: list[Block]) -> None:
    """Write content in the form in which it came, where that still fits."""
    form = hints(message).get("form")
    fits = {
        "text": not said or is_plain(said),
        "parts": True,
        "null": not said,
        "absent": not said,
    }
    if not fits.get(str(form), False):
        form = _usual(message.role, said)
    match form:
        case "text":
            wire["content"] = "".join(block.text for block in said if type(block) is Text)
        case "null":
            wire["content"] = None
        case "parts":
            wire["content"] = [_part(block) for block in said]
        case _:
            pass


def _usual(role: str, said: Sequence[Block]) -> str:
    """The form in which content is written when nothing else is known."""
    if not said:
        return "null" if role == "assistant" else "text"
    return "text" if is_plain(said) else "parts"


def _written_call(call: ToolCall) -> Wire:
    form = hints(call).get("form")
    kind = "custom" if form == "custom" else "function"
    inner = {"name": call.name, _KINDS[kind]: call.arguments} | hint(call, "inner")
    wire = {"id": call.id, "type": kind, kind: inner} | hint(call, "openai")
    if form == "untyped":
        del wire["type"]
    return wire


def _part(block: Block) -> Wire:
    match block:
        case Text():
            return {"type": "text", "text": block.text} | hint(block, "openai")
        case Image():
            inline = image_bytes(block)
            url = f"data:{inline[0]};base64,{inline[1]}" if inline else block.url
            if url:
                image = {"url": url} | hint(block, "inner")
                return {"type": "image_url", "image_url": image} | hint(block, "openai")
            return {"type": "text", "text": omitted("image")}
        case Opaque() if block.type.startswith(f"{DIALECT}/"):
            return unwrap(DIALECT, block)
        case _:
            return {"type": "text", "text": omitted(block.type)}
