"""From stream chunks to content blocks: the one algorithm for live, replay, cancel and repair.

Blocks come in the order in which their index was first seen; deltas need no block-start; a
block-end is authoritative and the first one wins; a tool call without an id is `call-<index>`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from turnlog.content import (
    Block,
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    FinishReason,
    Reasoning,
    ReasoningDelta,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    UsageChunk,
    is_blank,
)
from turnlog.jsontext import join_surrogates


class _Partial:
    __slots__ = ("block", "id", "kind", "name", "pieces")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.id = ""
        self.name = ""
        self.block: Block | None = None


class Assembly:
    """An answer as it arrives. Feed it chunks; read what there is at any time."""

    __slots__ = ("_partials", "finish", "replay_state", "usage")

    def __init__(self, chunks: Iterable[Chunk] = ()) -> None:
        self._partials: dict[int, _Partial] = {}
        self.usage: Usage | None = None
        self.finish: FinishReason | None = None
        self.replay_state: Any = None
        for chunk in chunks:
            self.add(chunk)

    def add(self, chunk: Chunk) -> None:
        """Take one more chunk; unknown ones are passed over."""
        if isinstance(chunk, TextDelta):
            self._piece(chunk.index, "text", chunk.text)
        elif isinstance(chunk, ReasoningDelta):
            self._piece(chunk.index, "reasoning", chunk.text)
        elif isinstance(chunk, ToolCallDelta):
            partial = self._piece(chunk.index, "tool-call", chunk.arguments_delta)
            partial.id = partial.id or chunk.id
            partial.name = partial.name or chunk.name or ""
        elif isinstance(chunk, BlockStart):
            self._at(chunk.index, chunk.block_type)
        elif isinstance(chunk, BlockEnd):
            partial = self._at(chunk.index, chunk.block.type)
            if partial.block is None:
                partial.block = chunk.block
        elif isinstance(chunk, UsageChunk):
            self.usage = chunk.usage
        elif isinstance(chunk, Finish):
            self.finish = chunk.reason
            self.replay_state = chunk.replay_state

    def _at(self, index: int, kind: str) -> _Partial:
        partial = self._partials.get(index)
        if partial is None:
            partial = self._partials[index] = _Partial(kind)
        return partial

    def _piece(self, index: int, kind: str, piece: str) -> _Partial:
        partial = self._at(index, kind)
        if partial.block is None:
            partial.pieces.append(piece)
        return partial

    def blocks(self) -> tuple[Block, ...]:
        """The answer's blocks; text and reasoning that is blank left out.

        When the model ran out of tokens, tool calls are dropped: their arguments are cut off.
        """
        cut_off = self.finish is not None and self.finish.kind == "max-tokens"
        found = (self._block(i, p) for i, p in self._partials.items())
        return tuple(
            block
            for block in found
            if not is_blank(block) and not (cut_off and type(block) is ToolCall)
        )

    def visible(self) -> tuple[Block, ...]:
        """What an interrupted answer keeps: text and reasoning that is not blank."""
        return tuple(
            block
            for block in self.blocks()
            if isinstance(block, (Text, Reasoning)) and block.text.strip()
        )

    @staticmethod
    def _block(index: int, partial: _Partial) -> Block:
        if partial.block is not None:
            return partial.block
        text = join_surrogates("".join(partial.pieces))  # halves of a character may meet
        if partial.kind == "tool-call":
            return ToolCall(partial.id or f"call-{index}", partial.name, text)
        return Reasoning(text) if partial.kind == "reasoning" else Text(text)
