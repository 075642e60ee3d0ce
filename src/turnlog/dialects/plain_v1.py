"""`openai-plain@1`: chat completions for models that know no tools.

As `openai@1`, with tools as text: a call is the JSON object that `turnlog.models.forced_tools` asks
for, a result is told by the user with the request to go on. `tools` and `tool_choice` are not sent,
and images, which such models do not see, become notes. A small model answers from a result that is
told in this way; of `tool` messages it makes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from turnlog.content import Text
from turnlog.dialects.openai_v1 import OpenAIChat
from turnlog.dialects.wire import NO_OUTPUT, arguments_object, dump, texts

if TYPE_CHECKING:
    from turnlog.content import Message
    from turnlog.dialects.carry import Carry
    from turnlog.events import Header

GO_ON: Final = "Now answer my question in one sentence."


class PlainChat(OpenAIChat):
    """Chat completions without tools."""

    name = "openai-plain@1"
    images = False

    def add(self, message: Message, carry: Carry, provider: str, out: list[bytes]) -> None:
        """Encode the next message."""
        if message.role == "tool":
            told = texts(message)
            for block in message.content:
                if type(block) is not Text and (part := self._part(block)) is not None:
                    told.append(part["text"])
            kind = "error" if message.is_error else "result"
            said = "\n\n".join(told) or NO_OUTPUT
            out.append(_wire("user", f"Tool {kind}: {said}\n{GO_ON}"))
        elif message.role == "assistant":
            said = [*texts(message)]
            for call in message.tool_calls:
                arguments = arguments_object(call.arguments)
                said.append(dump({"tool": call.name, "arguments": arguments}).decode())
            if said:
                out.append(_wire("assistant", "\n\n".join(said)))
        else:
            super().add(message, carry, provider, out)

    def head(self, header: Header, carry: Carry, *, stream: bool) -> bytes:
        """The body up to its messages."""
        return super().head(msgspec.structs.replace(header, tools=None), carry, stream=stream)


def _wire(role: str, content: str) -> bytes:
    message: dict[str, Any] = {"role": role, "content": content}
    return b"," + dump(message)
