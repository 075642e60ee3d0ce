"""`anthropic@1`: the body of a messages request.

Neighbours of one role become one message, so that user and assistant take turns; a history that
begins with an answer gets a user's message before it.

- System text before anything else goes to `system`, behind the header's; later system text becomes
  a user's text, marked as such, since there is no other place for it.
- Reasoning with a signature, and encrypted reasoning, go back to the provider that made them, in
  their place and unaltered, except at the end of a message, where the provider refuses them. All
  other reasoning stays here. If the request continues an answer or its calls and that answer cannot
  begin with reasoning, extended thinking is switched off for this request.
- Blocks of unknown type go back to the provider they came from; a note stands for them elsewhere.
- A call id is kept if it has 1 to 64 letters, digits, `_`, `-` and no earlier call has it; the
  results of a call that is sent under another id follow it.
- Arguments that hold no JSON object are sent as `{"_raw": "the string"}`; none at all as `{}`.
- Whitespace that ends an assistant's message is cut off; blank texts are not sent.
- `max_tokens`, which must be there, is 8192 unless the configuration says otherwise.
- `reasoning_effort` becomes `thinking: adaptive` and `output_config.effort`; `none` switches
  thinking off. For models that know budgets only, say `thinking` in the configuration's `extra`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from turnlog.content import Block, Image, Message, Reasoning, Text, ToolCall
from turnlog.dialects.hints import unwrap
from turnlog.dialects.wire import (
    NO_OUTPUT,
    OPEN_CALL,
    arguments_object,
    clean_id,
    dump,
    image_bytes,
    omitted,
    passed_on,
    texts,
    tool_name,
)
from turnlog.records import Opaque

if TYPE_CHECKING:
    from turnlog.dialects.carry import Carry
    from turnlog.events import Header, ToolSchema

ID_LIMIT: Final = 64
DEFAULT_MAX_TOKENS: Final = 8192
OPENING: Final = "(The conversation goes on.)"
_RESERVED: Final = frozenset({"messages", "model", "stream", "system", "tools"})
_MEDIA: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_THINKING: Final = ("thinking", "redacted_thinking")
_OFF: Final = frozenset({"none", "off", "disabled"})
Wire = dict[str, Any]


class AnthropicMessages:
    """Anthropic's messages."""

    name = "anthropic@1"

    def add(self, message: Message, carry: Carry, provider: str, out: list[bytes]) -> None:
        """Encode the next message."""
        role = message.role
        own = message.source.provider == provider
        if role == "tool":
            self._result(message, carry, out, own=own)
            return
        if carry.waiting or carry.held:
            self.settle(carry, out)
        if role == "assistant":
            _emit("assistant", _answer(message, carry, own=own), carry, out)
        elif role == "user":
            _emit("user", _shown(message.content, own=own), carry, out)
        elif carry.leading:
            carry.system += tuple(dump(_text(text)) for text in texts(message))
        else:
            said = [_text(f"[{role} message] {text}") for text in texts(message)]
            _emit("user", said, carry, out)

    def settle(self, carry: Carry, out: list[bytes]) -> None:
        """Close the open group: results that never came, then what had to wait for its end."""
        missing = [
            {"type": "tool_result", "tool_use_id": i, "content": OPEN_CALL, "is_error": True}
            for ids in carry.waiting.values()
            for i in ids
        ]
        carry.waiting = {}
        _emit("user", missing, carry, out)
        held, carry.held = carry.held, ()
        if held:
            _join("user", b",".join(held), carry, out)

    def _result(self, message: Message, carry: Carry, out: list[bytes], *, own: bool) -> None:
        content = _shown(message.content, own=own) or [_text(NO_OUTPUT)]
        wire_id = carry.answer(message.tool_call_id or "")
        if wire_id is None:
            note = _text("[result of an unknown call]")
            carry.held += tuple(map(dump, [note, *content]))
        else:
            block: Wire = {"type": "tool_result", "tool_use_id": wire_id, "content": content}
            if len(content) == 1 and content[0]["type"] == "text":
                block["content"] = content[0]["text"]
            if message.is_error:
                block["is_error"] = True
            _emit("user", [block], carry, out)
        if not carry.waiting and carry.held:
            self.settle(carry, out)

    def head(self, header: Header, carry: Carry, *, stream: bool) -> bytes:
        """The body up to its messages."""
        config = header.config
        limit = DEFAULT_MAX_TOKENS if config.max_tokens is None else config.max_tokens
        body: Wire = {"model": config.model, "max_tokens": limit}
        if stream:
            body["stream"] = True
        if config.temperature is not None:
            body["temperature"] = config.temperature
        if config.stop:
            body["stop_sequences"] = list(config.stop)
        if config.reasoning_effort in _OFF:
            body["thinking"] = {"type": "disabled"}
        elif config.reasoning_effort is not None:
            body["thinking"] = {"type": "adaptive"}
            body["output_config"] = {"effort": config.reasoning_effort}
        if header.tools:
            body["tools"] = [_tool(tool) for tool in header.tools]
            if config.tool_choice is not None:
                body["tool_choice"] = _choice(config.tool_choice)
        body |= passed_on(config, _RESERVED)
        _settle_thinking(body, carry, given=config.max_tokens is not None)
        system = list(carry.system)
        if header.system and header.system.strip():
            system.insert(0, dump(_text(header.system)))
        start = dump(body)[:-1]
        if system:
            start += b',"system":[%b]' % b",".join(system)
        return start + b',"messages":['

    def close(self, carry: Carry) -> bytes:
        """The end of the last message, the messages and the body."""
        return b"]}" if carry.role is None else b"]}]}"


def _emit(role: str, blocks: list[Wire], carry: Carry, out: list[bytes]) -> None:
    """Add blocks to the last message if it has this role, else to a new one."""
    if not blocks:
        return
    kinds = [block["type"] for block in blocks]
    if role == "assistant":
        if carry.role is None:
            _join("user", dump(_text(OPENING)), carry, out)
        if carry.role != "assistant":
            carry.thinks = kinds[0] in _THINKING
        carry.looping = True
    elif "tool_result" in kinds:
        carry.looping = True
    elif carry.role != "user":
        carry.looping = False
    _join(role, dump(blocks)[1:-1], carry, out)


def _join(role: str, encoded: bytes, carry: Carry, out: list[bytes]) -> None:
    if role == carry.role:
        out.append(b"," + encoded)
    else:
        end = b"" if carry.role is None else b"]}"
        out.append(b'%b,{"role":"%b","content":[%b' % (end, role.encode(), encoded))
    carry.role, carry.leading = role, False


def _answer(message: Message, carry: Carry, *, own: bool) -> list[Wire]:
    """The blocks of an assistant's message."""
    blocks: list[Wire] = []
    waiting: dict[str, list[str]] = {}
    for place, block in enumerate(message.content):
        match block:
            case Text():
                if block.text.strip():
                    blocks.append(_text(block.text))
            case ToolCall():
                clean = clean_id(block.id, ID_LIMIT, strict=True)
                wire_id = carry.ids.unique(clean, message.id, place, ID_LIMIT)
                waiting.setdefault(block.id, []).append(wire_id)
                name, given = tool_name(block.name), arguments_object(block.arguments)
                blocks.append({"type": "tool_use", "id": wire_id, "name": name, "input": given})
            case Reasoning():
                if own and block.signature:
                    thought = {"thinking": block.text, "signature": block.signature}
                    blocks.append({"type": "thinking", **thought})
                elif own and block.encrypted:
                    blocks.append({"type": "redacted_thinking", "data": block.encrypted})
            case Image():
                blocks.append(_text(omitted("image")))
            case Opaque():
                if own:
                    blocks.append(unwrap("anthropic", block))
    carry.waiting = {call_id: tuple(ids) for call_id, ids in waiting.items()}
    while blocks and blocks[-1]["type"] in _THINKING:
        blocks.pop()
    if blocks and blocks[-1]["type"] == "text":
        blocks[-1]["text"] = blocks[-1]["text"].rstrip()
    return blocks


def _shown(content: tuple[Block, ...], *, own: bool) -> list[Wire]:
    """Blocks as a user's message or a result shows them."""
    blocks: list[Wire] = []
    for block in content:
        match block:
            case Text():
                if block.text.strip():
                    blocks.append(_text(block.text))
            case Image():
                blocks.append(_image(block))
            case ToolCall():
                blocks.append(_text(f"[call of {block.name}: {block.arguments}]"))
            case Opaque():
                blocks.append(unwrap("anthropic", block) if own else _text(omitted(block.type)))
            case Reasoning():
                pass
    return blocks


def _text(text: str) -> Wire:
    return {"type": "text", "text": text}


def _image(image: Image) -> Wire:
    inline = image_bytes(image)
    if inline is not None and inline[0] in _MEDIA:
        source = {"type": "base64", "media_type": inline[0], "data": inline[1]}
    elif image.url:
        source = {"type": "url", "url": image.url}
    else:
        return _text(omitted("image"))
    return {"type": "image", "source": source}


def _settle_thinking(body: Wire, carry: Carry, *, given: bool) -> None:
    """Make room for a thinking budget, or switch thinking off where the history forbids it."""
    thinking: Any = body.get("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":  # pyright: ignore[reportUnknownMemberType]
        return
    if carry.looping and not carry.thinks:
        body["thinking"] = {"type": "disabled"}
        return
    budget = cast("Wire", thinking).get("budget_tokens")
    if not given and type(budget) is int:
        body["max_tokens"] = budget + DEFAULT_MAX_TOKENS


def _tool(tool: ToolSchema) -> Wire:
    wire: Wire = {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.parameters or {"type": "object", "properties": {}},
    }
    if (marker := (tool.extra or {}).get("cache_control")) is not None:
        wire["cache_control"] = marker
    return wire


def _choice(choice: str) -> Wire:
    match choice:
        case "auto" | "none":
            return {"type": choice}
        case "required":
            return {"type": "any"}
        case _:
            return {"type": "tool", "name": choice}
