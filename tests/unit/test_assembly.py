"""From chunks to blocks."""

from __future__ import annotations

import pytest

from turnlog import Reasoning, Text, ToolCall, Usage
from turnlog.assembly import Assembly
from turnlog.content import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageChunk,
)
from turnlog.records import Opaque
from turnlog.testing.builders import chunks_of

CALL = ToolCall("c", "f", '{"a":1}')


@pytest.mark.parametrize("size", [1, 2, 100])
def test_chunks_give_their_blocks_back(size: int) -> None:
    """However an answer is cut, it comes together as it was."""
    blocks = [
        Reasoning("why", "sig"),
        Text("hello \ud83d"),
        CALL,
        Opaque({"type": "chart", "n": 1}),
    ]
    assert Assembly(chunks_of(blocks, size)).blocks() == tuple(blocks)


def test_blocks_come_in_the_order_in_which_they_began() -> None:
    """Interleaved deltas build their own blocks; no block-start is needed."""
    chunks: list[Chunk] = [
        TextDelta(2, "b"),
        ReasoningDelta(0, "a"),
        TextDelta(2, "c"),
        ToolCallDelta(1, "", "f", "{"),
        ToolCallDelta(1, "", None, "}"),
    ]
    assert Assembly(chunks).blocks() == (Text("bc"), Reasoning("a"), ToolCall("call-1", "f", "{}"))


def test_the_first_end_of_a_block_wins() -> None:
    """A block-end is authoritative, and nothing after it counts."""
    chunks: list[Chunk] = [
        TextDelta(0, "draft"),
        BlockEnd(0, Text("final")),
        TextDelta(0, "more"),
        BlockEnd(0, Text("other")),
    ]
    assert Assembly(chunks).blocks() == (Text("final"),)


def test_nothing_is_no_block() -> None:
    """Empty text and reasoning are left out; a signature makes reasoning something."""
    chunks: list[Chunk] = [
        BlockStart(0, "text"),
        BlockStart(1, "reasoning"),
        TextDelta(2, ""),
        BlockEnd(3, Text("")),
        BlockEnd(4, Reasoning("", "sig")),
    ]
    assert Assembly(chunks).blocks() == (Reasoning("", "sig"),)


def test_running_out_of_tokens_drops_calls() -> None:
    """A call that may be cut off is not made."""
    chunks = [*chunks_of([Text("so"), CALL])][:-1]
    cut = Assembly([*chunks, Finish(FinishReason("max-tokens"))])
    assert cut.blocks() == (Text("so"),)
    assert Assembly(chunks).blocks() == (Text("so"), CALL)


def test_what_an_interrupted_answer_keeps() -> None:
    """Text and reasoning that is not blank, and no calls."""
    chunks: list[Chunk] = [
        ReasoningDelta(0, "hm"),
        TextDelta(1, " \n"),
        TextDelta(2, "par"),
        ToolCallDelta(3, "c", "f", "{"),
    ]
    assert Assembly(chunks).visible() == (Reasoning("hm"), Text("par"))
    assert Assembly().visible() == ()


def test_usage_and_finish() -> None:
    """The last usage and the finish are kept; unknown chunks are passed over."""
    assembly = Assembly([UsageChunk(Usage(1)), Opaque({"type": "ping"}), UsageChunk(Usage(2, 3))])
    assert (assembly.usage, assembly.finish) == (Usage(2, 3), None)
    assembly.add(Finish(FinishReason("stop"), {"response": 1}))
    assert assembly.finish == FinishReason("stop")
    assert assembly.replay_state == {"response": 1}


def test_halves_of_a_character_meet() -> None:
    """A character that was cut in the middle is whole in the block."""
    (block,) = Assembly([TextDelta(0, "a\ud83d"), TextDelta(0, "\ude00")]).blocks()
    assert isinstance(block, Text)
    assert block.text == "a\U0001f600"
