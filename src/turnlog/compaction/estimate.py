"""How large a message is: tokens estimated, bytes and media counted.

An `Estimator` is a port: the default one needs no vocabulary; `turnlog.compaction.exact` has those
of the extra `tokens`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from turnlog import jsontext
from turnlog.compaction.characters import text_tokens
from turnlog.compaction.images import MOST, image_tokens
from turnlog.content import Image, Message, Reasoning, Text, ToolCall
from turnlog.dialects.wire import examples
from turnlog.records import encode

if TYPE_CHECKING:
    from turnlog.content import Block
    from turnlog.events import Header

MESSAGE_TOKENS: Final = 4
"""What the frame of a message costs: its role and the marks around it."""
PART_TOKENS: Final = 8
"""What the frame of a tool call, of a result or of a tool's schema costs: ids, names of fields."""
FRAME_BYTES: Final = 48
"""What the frame of a message or block takes on the wire."""
_DATA: Final = re.compile(r'"[A-Za-z0-9+/=_-]{2048,}"')  # base64 in a block that we do not know


class Size(NamedTuple):
    """How large something is in a request: estimated tokens, bytes on the wire, media parts."""

    tokens: int = 0
    bytes: int = 0
    media: int = 0

    def plus(self, other: Size) -> Size:
        """Both together."""
        return Size(self.tokens + other.tokens, self.bytes + other.bytes, self.media + other.media)


class Estimator(Protocol):
    """Says how many tokens things are; hashable, and always says the same of the same."""

    @property
    def name(self) -> str:
        """Which estimator, and which version of it: sizes of another are not comparable."""
        ...

    def text(self, text: str) -> int:
        """The tokens of a text."""
        ...

    def image(self, image: Image) -> int:
        """The tokens of an image."""
        ...


class CharacterEstimator:
    """Estimates from the kinds of characters (`characters`) and the size of images (`images`).

    Within a quarter of what `o200k_base` makes of English, code, JSON, Chinese, Japanese, base64
    and emoji, where there are some hundred words of it.
    """

    name = "characters@1"

    def text(self, text: str) -> int:
        """The tokens of a text."""
        return text_tokens(text)

    def image(self, image: Image) -> int:
        """The tokens of an image."""
        return image_tokens(image)


DEFAULT: Final[Estimator] = CharacterEstimator()


def message_size(message: Message, estimator: Estimator = DEFAULT) -> Size:
    """The size of a message in a request; nothing when it has no content.

    Of reasoning the text counts; its signature and encrypted form are bytes alone, since what they
    cost is the provider's secret. In a block that we do not know long base64 counts as an image.
    """
    if not message.content:
        return Size()
    tokens, length, media = MESSAGE_TOKENS, FRAME_BYTES, 0
    if message.role == "tool":
        tokens += PART_TOKENS
    for block in message.content:
        size = _block_size(block, estimator)
        tokens, length, media = tokens + size.tokens, length + size.bytes, media + size.media
    return Size(tokens, length, media)


def header_size(header: Header, estimator: Estimator = DEFAULT) -> Size:
    """The size of system text, tool schemas and worked examples: what every request carries."""
    size = Size()
    if header.system:
        size = size.plus(_text_size(header.system, estimator)).plus(Size(MESSAGE_TOKENS))
    for tool in header.tools or ():
        told = encode(tool).decode("utf-8", "surrogatepass")
        size = size.plus(_text_size(told, estimator)).plus(Size(PART_TOKENS))
    for message in examples(header):
        size = size.plus(message_size(message, estimator))
    return size


def _block_size(block: Block, estimator: Estimator) -> Size:
    match block:
        case Text():
            return _text_size(block.text, estimator)
        case Reasoning():
            hidden = Size(0, _length(block.signature or "") + _length(block.encrypted or ""))
            return _text_size(block.text, estimator).plus(hidden)
        case ToolCall():
            said = _text_size(f"{block.name} {block.arguments}", estimator)
            return said.plus(Size(PART_TOKENS, FRAME_BYTES + _length(block.id)))
        case Image():
            length = _length(block.data or block.url or "")
            return Size(estimator.image(block), FRAME_BYTES + length, 1)
        case _:
            told = jsontext.encode(block.value).decode("utf-8", "surrogatepass")
            text, media = _DATA.subn('""', told)
            return Size(estimator.text(text) + MOST * media, len(told), media)


def _text_size(text: str, estimator: Estimator) -> Size:
    return Size(estimator.text(text), FRAME_BYTES + _length(text))


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
