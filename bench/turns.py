"""Whole turns of an agent, each answer streamed: what the scripts about SQLite write."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from turnlog import Message, Session, Source, Text, ToolCall
from turnlog import events as ev
from turnlog.content import TextDelta, tool_message

OTHERS = 9
"""Events of a turn besides its chunks, of which there are nine times as many."""
ANSWER = 365  # characters: 81 deltas of 4.5 on average

_dice = Random(7)  # noqa: S311 - no secret
WORDS = [
    "".join(_dice.choices("abcdefghijklmnopqrstuvwxyz", k=_dice.randint(2, 9))) for _ in range(500)
]


class Turn(NamedTuple):
    """What is said in a turn: by the person, by the model (and in which pieces), by a tool."""

    prompt: str
    answer: str
    deltas: list[str]
    result: str


def prose(dice: Random, size: int) -> str:
    """Random words, `size` characters."""
    return " ".join(dice.choices(WORDS, k=size // 3 + 1))[:size]


def deltas(text: str, dice: Random) -> Iterator[str]:
    """A text in pieces of 2 to 7 characters, as a model's tokens are."""
    start = 0
    while start < len(text):
        end = start + dice.randint(2, 7)
        yield text[start:end]
        start = end


def some_turns(count: int, seed: int = 7) -> list[Turn]:
    """Turns that differ."""
    dice = Random(seed)  # noqa: S311 - no secret
    turns: list[Turn] = []
    for _ in range(count):
        answer = prose(dice, ANSWER)
        pieces = list(deltas(answer, dice))
        turns.append(Turn(prose(dice, 400), answer, pieces, prose(dice, 400)))
    return turns


def add_turn(session: Session, number: int, turn: Turn) -> None:
    """Append turn `number`: a prompt, an answer chunk by chunk, a call, its result."""
    append = session.append
    append("turn/start", ev.TurnStart(number))
    append("step/start", ev.StepStart(number, 1))
    prompt = Message(f"u{number}", "user", (Text(turn.prompt),), Source("user"))
    append("user/message", prompt, surface_op="append")
    sent = ev.RequestSent("step", f"sha256:{number:064x}", "openai@1", "m-1", number, 1)
    first = append("request/sent", sent).seq + 1
    for delta in turn.deltas:
        append("assistant/chunk", ev.AssistantChunk(number, 1, TextDelta(0, delta)))
    call = ToolCall(f"call_{number:08d}", "read_file", f'{{"path":"src/file_{number}.py"}}')
    answer = Message(
        f"a{number}", "assistant", (Text(turn.answer), call), Source("model", "p", "m")
    )
    chunks = range(first, first + len(turn.deltas))
    append(
        "assistant/message",
        ev.AssistantMessage(answer, number, 1),
        surface_op="append",
        source_event_seqs=chunks,
    )
    called = append("tool/call", ev.ToolCallStart(call.id, call.name, call.arguments, number, 1))
    result = ev.ToolResult(tool_message(call.id, turn.result, id=f"r{number}"), number, 1)
    append("tool/result", result, surface_op="append", source_event_seqs=[called.seq])
    append("step/end", ev.StepEnd(number, 1))
    append("turn/end", ev.TurnEnd(number, ev.EndReason("completed")))
