"""Dialects: what a provider is sent, as bytes, and message lists as it writes them.

An encoder is a pure function with a name and a version. Old ones stay for ever, so that every
request in a log can be proved (`request/sent`); a change of a single byte is a new version.

    encoder("openai@1").encode(header, session.request_messages())       # the bytes
    encoder("openai@1").incremental().encode(header, messages)           # a Body, fast next time
"""

from __future__ import annotations

from typing import Final

from turnlog.dialects.anthropic_v1 import AnthropicMessages
from turnlog.dialects.body import Body, BodyEncoder, Encoder
from turnlog.dialects.openai_v1 import DeepSeekChat, OpenAIChat
from turnlog.dialects.plain_v1 import PlainChat
from turnlog.errors import UnknownEncoder

__all__ = ["ENCODERS", "Body", "BodyEncoder", "Encoder", "encoder"]

_encoders: Final = {
    dialect.name: Encoder(dialect)
    for dialect in (OpenAIChat(), PlainChat(), DeepSeekChat(), AnthropicMessages())
}

#: The names of all encoders, newest version of a dialect last.
ENCODERS: Final = tuple(_encoders)


def encoder(name: str) -> Encoder:
    """The encoder `name@version`.

    Raises:
        UnknownEncoder: this turnlog has none of that name; the message lists those it has.
    """
    try:
        return _encoders[name]
    except KeyError:
        msg = f"expected an encoder of {', '.join(ENCODERS)}, got {name!r}"
        raise UnknownEncoder(msg) from None
