"""A model that answers with what a session's own model answered: for `rerun`, with no provider."""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from turnlog.assembly import Assembly
from turnlog.content import (
    BlockEnd,
    Chunk,
    Failure,
    Finish,
    FinishReason,
    Text,
    ToolCall,
    Usage,
    UsageChunk,
)
from turnlog.errors import RequestRefused
from turnlog.events import AssistantChunk, AssistantMessage, CompactionSummary, Event
from turnlog.models.port import Body, Chunks, to_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence


class RecordedModel:
    """Serves the answers of a session in their order: messages, and summaries of compactions.

    An answer whose chunks are in the log comes as those chunks, another one whole. Attempts that
    failed are no answers and are left out; of an answer that was cut off comes what was kept.

    Args:
        session: the session's id, for the model's name.
        events: its events, or those from where the rerun begins.
        encoder, context_window, native_tools: as in the port.
    """

    def __init__(
        self,
        session: str,
        events: Iterable[Event[Any]],
        *,
        encoder: str = "openai@1",
        context_window: int | None = None,
        native_tools: bool = True,
    ) -> None:
        self.name = f"recorded:{session}"
        self.provider = "recorded"
        self.model = session
        self.encoder = encoder
        self.context_window = context_window
        self.native_tools = native_tools
        self.requests: list[bytes] = []
        self._answers = list(_answers(events))

    @asynccontextmanager
    async def stream(self, body: Body) -> AsyncGenerator[Chunks]:
        """Take a body and stream the next answer (`turnlog.models.port`)."""
        number = len(self.requests)
        self.requests.append(to_bytes(body))
        await anyio.lowlevel.checkpoint()
        if number >= len(self._answers):
            message = f"{self.name} has {len(self._answers)} answers, this is request {number + 1}"
            raise RequestRefused(Failure(message, "refused"))
        async with aclosing(_play(self._answers[number])) as chunks:
            yield chunks

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[None]:
        """Nothing: there is no connection."""
        yield


async def _play(chunks: Sequence[Chunk]) -> AsyncGenerator[Chunk]:
    for chunk in chunks:
        await anyio.lowlevel.checkpoint()
        yield chunk


def _answers(events: Iterable[Event[Any]]) -> Iterator[Sequence[Chunk]]:
    attempt: tuple[int, int, int] | None = None
    chunks: list[Chunk] = []
    for event in events:
        data: Any = event.data
        if isinstance(data, AssistantChunk):
            key = (data.turn, data.step, data.attempt)
            if key != attempt:
                attempt, chunks = key, []
            chunks.append(data.chunk)
        elif event.type == "assistant/attempt":
            attempt, chunks = None, []
        elif isinstance(data, AssistantMessage):
            yield _answer(data, chunks)
            attempt, chunks = None, []
        elif isinstance(data, CompactionSummary) and data.summary is not None:
            yield _whole(_summary(data.summary), data.usage)


def _answer(data: AssistantMessage, chunks: list[Chunk]) -> Sequence[Chunk]:
    """The chunks, if they make the message that was logged; else the message in one piece."""
    assembly = Assembly(chunks)
    if assembly.finish is None or assembly.blocks() != data.message.content:
        return _whole(data.message.content, data.usage)
    return chunks


def _whole(blocks: Sequence[Any], usage: Usage | None) -> Sequence[Chunk]:
    chunks: list[Chunk] = [BlockEnd(index, block) for index, block in enumerate(blocks)]
    if usage is not None:
        chunks.append(UsageChunk(usage))
    calls = any(isinstance(block, ToolCall) for block in blocks)
    return [*chunks, Finish(FinishReason("tool-calls" if calls else "stop"))]


def _summary(blocks: Iterable[Any]) -> Sequence[Text]:
    plain: list[Any] = [msgspec.to_builtins(block) for block in blocks]
    return [Text(str(block["text"])) for block in plain if "text" in block]
