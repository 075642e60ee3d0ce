"""The model port: what an agent needs of a model, and nothing else.

A model takes the bytes of a request that turnlog encoded (`encoder` names the dialect) and answers
with the provider-neutral chunks of `turnlog.content`. It does not encode, retry, log or assemble.

    async with model.stream(body) as chunks:
        async for chunk in chunks: ...

The rules of a stream, which `ModelConformance` holds:

- entering sends the body, exactly those bytes, and returns when the provider accepted it;
- leaving early, by `break`, error or cancellation, closes the connection; nothing runs on;
- a complete stream ends with exactly one `Finish`, its last chunk; its usage, if any, is before it;
- what goes wrong is a `ModelError`, raised by entering or, after the chunks that had arrived, by
  the iteration; nothing that arrived is held back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from turnlog.content import Chunk

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager


@runtime_checkable
class Segmented(Protocol):
    """A request body in pieces that are sent one after the other, uncopied."""

    @property
    def segments(self) -> Sequence[bytes]:
        """The pieces, in order."""
        ...


Body: TypeAlias = bytes | Segmented
Chunks: TypeAlias = AsyncIterator[Chunk]


class Model(Protocol):
    """A model that can be asked."""

    @property
    def name(self) -> str:
        """How a person names it, `provider:model`; `open_model` understands it."""
        ...

    @property
    def provider(self) -> str:
        """As in `ModelConfig.provider`."""
        ...

    @property
    def model(self) -> str:
        """As in `ModelConfig.model`, and what the provider is asked for."""
        ...

    @property
    def encoder(self) -> str:
        """The encoder whose bodies it takes, as in `RequestSent.encoder`: `name@version`."""
        ...

    @property
    def context_window(self) -> int | None:
        """Tokens that prompt and answer may take together; None when nobody said."""
        ...

    @property
    def native_tools(self) -> bool:
        """Whether the provider understands tools; without, see `turnlog.models.forced_tools`."""
        ...

    def stream(self, body: Body) -> AbstractAsyncContextManager[Chunks]:
        """Send a body and stream the answer.

        Raises:
            ModelError: see its subclasses; by entering, or by iterating the chunks.
        """
        ...

    def connected(self) -> AbstractAsyncContextManager[None]:
        """Keep what streams share (a connection, a loaded model) alive between them while inside.

        Optional for the caller, and cheap; may be nested and entered by concurrent tasks.
        """
        ...


def segments(body: Body) -> Sequence[bytes]:
    """The pieces of a body, whichever kind it is."""
    return (body,) if isinstance(body, bytes) else body.segments


def to_bytes(body: Body) -> bytes:
    """A body in one piece."""
    return body if isinstance(body, bytes) else b"".join(body.segments)
