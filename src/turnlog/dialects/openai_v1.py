"""`openai@1` and `deepseek@1`: the body of a chat-completions request.

One message of ours is one message on the wire; roles need not alternate. What a tool showed in
images, which a `tool` message cannot carry, follows the group of results in a `user` message.

- Reasoning is not sent to `openai`. `deepseek` gets it back as `reasoning_content`, unless another
  provider made it; a message with calls always has the field, if need be empty.
- Several texts stay parts in a user's message; elsewhere, and for `deepseek`, they are joined by a
  blank line, since few servers take parts there. `deepseek` takes no images: a note stands for one.
- A call id is kept if it has 1 to 64 characters and is unique in its message.
- Arguments stay the raw string if that holds a JSON object; otherwise see `wire.arguments_text`.
- Text before a call, blank: `null`. A message that has nothing left to say is not sent.
- `max_tokens` is `max_completion_tokens` for the provider `openai`, `max_tokens` for all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from turnlog.content import Block, Image, Message, Reasoning, Text, ToolCall
from turnlog.dialects.wire import (
    NO_OUTPUT,
    OPEN_CALL,
    arguments_text,
    clean_id,
    dump,
    image_bytes,
    omitted,
    passed_on,
    short_hash,
    texts,
    tool_name,
)
from turnlog.records import Opaque

if TYPE_CHECKING:
    from turnlog.dialects.carry import Carry
    from turnlog.events import Header, ToolSchema

ID_LIMIT: Final = 64
_RESERVED: Final = frozenset({"messages", "model", "stream", "stream_options", "tools"})
_OFF: Final = frozenset({"none", "off", "disabled"})


class OpenAIChat:
    """Chat completions as OpenAI and the servers that follow it take them."""

    name = "openai@1"
    images = True
    reasoning = False

    def add(self, message: Message, carry: Carry, provider: str, out: list[bytes]) -> None:
        """Encode the next message."""
        role = message.role
        if role == "tool":
            self._result(message, carry, out)
            return
        if carry.waiting or carry.held:
            self.settle(carry, out)
        if role == "assistant":
            self._assistant(message, carry, provider, out)
        elif role == "user":
            content = message.content
            if len(content) == 1 and type(content[0]) is Text and content[0].text.strip():
                _emit({"role": "user", "content": content[0].text}, out)
                return
            parts = [part for block in content if (part := self._part(block)) is not None]
            _emit_parts(parts, out, joined=not self.images)
        elif said := texts(message):
            wire_role = role if self.images else "system"
            _emit({"role": wire_role, "content": "\n\n".join(said)}, out)

    def settle(self, carry: Carry, out: list[bytes]) -> None:
        """Close the open group: results that never came, then what had to wait for its end."""
        for ids in carry.waiting.values():
            for wire_id in ids:
                _emit({"role": "tool", "tool_call_id": wire_id, "content": OPEN_CALL}, out)
        carry.waiting = {}
        if carry.held:
            out.append(b',{"role":"user","content":[%b]}' % b",".join(carry.held))
            carry.held = ()

    def _assistant(self, message: Message, carry: Carry, provider: str, out: list[bytes]) -> None:
        said = "\n\n".join(texts(message))
        wire: dict[str, Any] = {"role": "assistant", "content": said or None}
        calls = message.tool_calls
        if not (said or calls):
            return
        if self.reasoning:
            thoughts = _reasoning(message, provider)
            if thoughts or calls:
                wire["reasoning_content"] = thoughts
        if calls:
            wire["tool_calls"] = [
                {
                    "id": wire_id,
                    "type": "function",
                    "function": {
                        "name": tool_name(call.name),
                        "arguments": arguments_text(call.arguments),
                    },
                }
                for call, wire_id in zip(calls, _open(calls, carry), strict=True)
            ]
        _emit(wire, out)

    def _result(self, message: Message, carry: Carry, out: list[bytes]) -> None:
        said = texts(message)
        shown: list[dict[str, Any]] = []
        for block in message.content:
            if type(block) is not Text and (part := self._part(block)) is not None:
                if part["type"] == "text":
                    said.append(part["text"])
                else:
                    shown.append(part)
        wire_id = carry.answer(message.tool_call_id or "")
        if wire_id is None:
            note = f"[result of an unknown call] {' '.join(said) or NO_OUTPUT}"
            carry.held += (dump({"type": "text", "text": note}),)
        else:
            content = "\n\n".join(said) or ("(see below)" if shown else NO_OUTPUT)
            _emit({"role": "tool", "tool_call_id": wire_id, "content": content}, out)
            carry.held += tuple(map(dump, shown))
        if not carry.waiting:
            self.settle(carry, out)

    def _part(self, block: Block) -> dict[str, Any] | None:
        """A block as a part of a user's message, or None where there is nothing to send."""
        match block:
            case Text():
                return {"type": "text", "text": block.text} if block.text.strip() else None
            case Image():
                inline = image_bytes(block)
                url = f"data:{inline[0]};base64,{inline[1]}" if inline else block.url
                if not url or not self.images:
                    return {"type": "text", "text": omitted("image")}
                return {"type": "image_url", "image_url": {"url": url}}
            case Reasoning():
                return None
            case ToolCall():
                return {"type": "text", "text": f"[call of {block.name}: {block.arguments}]"}
            case Opaque():
                return {"type": "text", "text": omitted(block.type)}

    def head(self, header: Header, carry: Carry, *, stream: bool) -> bytes:
        """The body up to its messages; `carry` does not matter here."""
        del carry
        config = header.config
        body: dict[str, Any] = {"model": config.model}
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if config.temperature is not None:
            body["temperature"] = config.temperature
        if config.max_tokens is not None:
            completion = self.images and config.provider == "openai"
            body["max_completion_tokens" if completion else "max_tokens"] = config.max_tokens
        if config.stop:
            body["stop"] = list(config.stop)
        if config.reasoning_effort is not None:
            if self.reasoning and config.reasoning_effort in _OFF:
                body["thinking"] = {"type": "disabled"}
            else:
                body["reasoning_effort"] = config.reasoning_effort
        if header.tools:
            body["tools"] = [_tool(tool) for tool in header.tools]
            if config.tool_choice is not None:
                body["tool_choice"] = _choice(config.tool_choice)
        body |= passed_on(config, _RESERVED)
        messages: list[dict[str, Any]] = []
        if header.system and header.system.strip():
            messages.append({"role": "system", "content": header.system})
        return dump(body | {"messages": messages})[:-2]

    def close(self, carry: Carry) -> bytes:
        """The end of the messages and the body."""
        del carry
        return b"]}"


class DeepSeekChat(OpenAIChat):
    """DeepSeek's dialect of chat completions."""

    name = "deepseek@1"
    images = False
    reasoning = True


def _emit(wire: dict[str, Any], out: list[bytes]) -> None:
    out.append(b"," + dump(wire))


def _emit_parts(parts: list[dict[str, Any]], out: list[bytes], *, joined: bool) -> None:
    if not parts:
        return
    if len(parts) == 1 and parts[0]["type"] == "text":
        _emit({"role": "user", "content": parts[0]["text"]}, out)
    elif joined:
        _emit({"role": "user", "content": "\n\n".join(part["text"] for part in parts)}, out)
    else:
        _emit({"role": "user", "content": parts}, out)


def _reasoning(message: Message, provider: str) -> str:
    """The reasoning that this provider is to get back."""
    if message.source.provider not in (None, provider):
        return ""
    return "".join([b.text for b in message.content if type(b) is Reasoning and not b.encrypted])


def _open(calls: tuple[ToolCall, ...], carry: Carry) -> list[str]:
    """Give each call of a message its id on the wire, and wait for the results."""
    given: dict[str, None] = {}  # in order
    waiting: dict[str, list[str]] = {}
    for call in calls:
        wire_id = clean_id(call.id, ID_LIMIT, strict=False)
        if wire_id in given:
            number = str(len(given))
            wire_id = f"{wire_id[: ID_LIMIT - 20]}_{number}_{short_hash(call.id, number)}"
        given[wire_id] = None
        waiting.setdefault(call.id, []).append(wire_id)
    carry.waiting = {call_id: tuple(ids) for call_id, ids in waiting.items()}
    return list(given)


def _tool(tool: ToolSchema) -> dict[str, Any]:
    function: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters or {"type": "object", "properties": {}},
    }
    if isinstance(strict := (tool.extra or {}).get("strict"), bool):
        function["strict"] = strict
    return {"type": "function", "function": function}


def _choice(choice: str) -> Any:
    if choice in ("auto", "required", "none"):
        return choice
    return {"type": "function", "function": {"name": choice}}
