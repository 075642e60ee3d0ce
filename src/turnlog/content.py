"""Messages, content blocks, stream chunks and usage, the same for every provider.

Every struct is frozen and open: fields that we do not know are kept in `extra`, blocks that we do
not know are `Opaque`. On the wire names are camelCase and a block carries its `type`.

    Message   {id, role, source, content: [Block…], toolCallId?, isError?}
    Block     Text | Reasoning | Image | ToolCall | Opaque
    Chunk     BlockStart | TextDelta | ReasoningDelta | ToolCallDelta | BlockEnd | UsageChunk |
              Finish | Opaque
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, cast

import msgspec

from turnlog.errors import InvalidContent, brief
from turnlog.jsontext import INT_MAX, INT_MIN
from turnlog.records import EXTRA, Opaque, Record

Extra: TypeAlias = dict[str, Any] | None
#: What an integer may be; a Python `int` that is read or admitted as anything else is refused.
Int: TypeAlias = Annotated[int, msgspec.Meta(ge=INT_MIN, le=INT_MAX)]
Milliseconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=2**53)]


def extra_field() -> Any:
    """The field of a record that keeps what we do not know."""
    return msgspec.field(default=None, name=EXTRA)


# -- content blocks ----------------------------------------------------------------------------


class Text(Record, frozen=True, tag_field="type", tag="text"):
    """Text, as written or as generated."""

    type: ClassVar[Literal["text"]] = "text"
    text: str
    extra: Extra = extra_field()


class Reasoning(Record, frozen=True, tag_field="type", tag="reasoning"):
    """A model's reasoning; `signature` and `encrypted` are the provider's, kept verbatim."""

    type: ClassVar[Literal["reasoning"]] = "reasoning"
    text: str = msgspec.field(default_factory=str)  # written even if empty
    signature: str | None = None
    encrypted: str | None = None
    extra: Extra = extra_field()


class Image(Record, frozen=True, tag_field="type", tag="image"):
    """An image: base64 `data` with its `media_type`, or a `url` (which turnlog never fetches)."""

    type: ClassVar[Literal["image"]] = "image"
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    extra: Extra = extra_field()


class ToolCall(Record, frozen=True, tag_field="type", tag="tool-call"):
    """A call that the model asks for; `arguments` is the raw string it produced."""

    type: ClassVar[Literal["tool-call"]] = "tool-call"
    id: str
    name: str
    arguments: str
    extra: Extra = extra_field()


Block: TypeAlias = Text | Reasoning | Image | ToolCall | Opaque


def is_blank(block: Block) -> bool:
    """Whether a provider would call the block empty: nothing, or nothing but white space."""
    if isinstance(block, Text):
        return not block.text.strip()
    if isinstance(block, Reasoning):
        return not (block.text.strip() or block.signature or block.encrypted or block.extra)
    if isinstance(block, Image):
        return not (block.data or block.url or block.extra)
    return False


def is_empty(block: Block) -> bool:
    """Whether a text or reasoning block says nothing, not even to its provider."""
    if type(block) is Text:
        return not (block.text or block.extra)
    if type(block) is Reasoning:
        return not (block.text or block.signature or block.encrypted or block.extra)
    return False


# -- messages ----------------------------------------------------------------------------------

Role: TypeAlias = Literal["user", "assistant", "tool", "system", "developer"]


class Source(Record, frozen=True):
    """Who made a message: `kind` "user" (a person), "model", "tool", "context" or another."""

    kind: str
    provider: str | None = None
    model: str | None = None
    call_id: str | None = None
    extra: Extra = extra_field()


class Message(Record, frozen=True):
    """One provider-neutral message; a tool's message has `tool_call_id` and `is_error`."""

    id: str
    role: Role
    content: tuple[Block, ...]
    source: Source
    tool_call_id: str | None = None
    is_error: bool | None = None
    extra: Extra = extra_field()

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return "".join([b.text for b in self.content if type(b) is Text])

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool-call blocks, in order."""
        return tuple([b for b in self.content if type(b) is ToolCall])


Content: TypeAlias = str | Block | Iterable[str | Block]


_BLOCKS: Final = (Text, Reasoning, Image, ToolCall, Opaque)
_EXPECTED: Final = "expected text, a block, or a list of these (JSON goes in as text), got {}"


def blocks(content: Content) -> tuple[Block, ...]:
    """Content as blocks: a non-empty string is a text block, an empty one is no block.

    Raises:
        InvalidContent: it is neither text, nor a block, nor a sequence of these.
    """
    given: Any = content
    if isinstance(given, (str, *_BLOCKS)):
        given = (given,)
    elif not isinstance(given, Iterable) or isinstance(given, (dict, bytes)):
        raise InvalidContent(_EXPECTED.format(brief(content)))
    found: list[Block] = []
    for part in cast("Iterable[Any]", given):
        if isinstance(part, _BLOCKS):
            found.append(part)
        elif not isinstance(part, str):
            raise InvalidContent(_EXPECTED.format(brief(part)))
        elif part:
            found.append(Text(part))
    return tuple(found)


_USER = Source("user")


def user_message(content: Content, *, id: str = "", source: Source = _USER) -> Message:
    """A user's message; without an `id` the session gives it one at append."""
    return Message(id, "user", blocks(content), source)


def assistant_message(
    content: Content,
    *,
    id: str = "",
    provider: str | None = None,
    model: str | None = None,
) -> Message:
    """A model's message; without an `id` the session gives it one at append."""
    return Message(id, "assistant", blocks(content), Source("model", provider, model))


def tool_message(
    tool_call_id: str,
    content: Content,
    *,
    id: str = "",
    is_error: bool = False,
) -> Message:
    """The result of a tool call; without an `id` the session gives it one at append."""
    source = Source("tool", call_id=tool_call_id)
    return Message(id, "tool", blocks(content), source, tool_call_id, is_error)


# -- usage -------------------------------------------------------------------------------------


class Usage(Record, frozen=True):
    """Tokens of one request in disjoint buckets; None is *unknown*, never zero.

    `input_tokens` is uncached input only; `reasoning_tokens` is the part of `output_tokens` that
    was reasoning.
    """

    input_tokens: Int | None = None
    output_tokens: Int | None = None
    cache_read_tokens: Int | None = None
    cache_write_tokens: Int | None = None
    reasoning_tokens: Int | None = None
    extra: Extra = extra_field()


# -- stream chunks -----------------------------------------------------------------------------


class BlockStart(Record, frozen=True, tag_field="type", tag="block-start"):
    """A block of `block_type` begins at `index`."""

    type: ClassVar[Literal["block-start"]] = "block-start"
    index: Int
    block_type: str
    extra: Extra = extra_field()


class TextDelta(Record, frozen=True, tag_field="type", tag="text-delta"):
    """More text of the block at `index`."""

    type: ClassVar[Literal["text-delta"]] = "text-delta"
    index: Int
    text: str
    extra: Extra = extra_field()


class ReasoningDelta(Record, frozen=True, tag_field="type", tag="reasoning-delta"):
    """More reasoning of the block at `index`."""

    type: ClassVar[Literal["reasoning-delta"]] = "reasoning-delta"
    index: Int
    text: str
    extra: Extra = extra_field()


class ToolCallDelta(Record, frozen=True, tag_field="type", tag="tool-call-delta"):
    """More of the tool call at `index`; `id` and `name` may come once or every time."""

    type: ClassVar[Literal["tool-call-delta"]] = "tool-call-delta"
    index: Int
    id: str = ""
    name: str | None = None
    arguments_delta: str = ""
    extra: Extra = extra_field()


class BlockEnd(Record, frozen=True, tag_field="type", tag="block-end"):
    """The block at `index` is complete; `block` is authoritative."""

    type: ClassVar[Literal["block-end"]] = "block-end"
    index: Int
    block: Block
    extra: Extra = extra_field()


class UsageChunk(Record, frozen=True, tag_field="type", tag="usage"):
    """What the provider reported so far."""

    type: ClassVar[Literal["usage"]] = "usage"
    usage: Usage
    extra: Extra = extra_field()


class Failure(Record, frozen=True):
    """Why a request failed: `code` is ours (`rate-limit`, `overflow-tokens`, `transport` …)."""

    message: str
    code: str
    status: Int | None = None
    provider_retry_after_ms: Milliseconds | None = None
    request_id: str | None = None
    extra: Extra = extra_field()


class FinishReason(Record, frozen=True):
    """`kind` is stop, tool-calls, max-tokens, aborted or error (the last two with `failure`)."""

    kind: str
    failure: Failure | None = None
    extra: Extra = extra_field()


class Finish(Record, frozen=True, tag_field="type", tag="finish"):
    """The stream is over."""

    type: ClassVar[Literal["finish"]] = "finish"
    reason: FinishReason
    replay_state: Any = None
    extra: Extra = extra_field()


Chunk: TypeAlias = (
    BlockStart
    | TextDelta
    | ReasoningDelta
    | ToolCallDelta
    | BlockEnd
    | UsageChunk
    | Finish
    | Opaque
)
