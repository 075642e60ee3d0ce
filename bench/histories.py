"""The sessions that the scripts measure on: user, answer with a call, result, in turn."""

from __future__ import annotations

from itertools import cycle, islice

from turnlog import Message, Session, Source, Text, ToolCall
from turnlog import events as ev
from turnlog.content import tool_message

WORDS = ("surface", "of", "the", "event", "log", "is", "what", "a", "model", "sees", "now")


def text(i: int, size: int = 400) -> str:
    """Some text of `size` characters, another for each `i`."""
    said = f"{i} " + " ".join(islice(cycle(WORDS[i % 7 :] + WORDS[: i % 7]), size // 4))
    return said[:size].ljust(size, ".")


def add(session: Session, i: int) -> None:
    """Append message number `i` of a history."""
    if i % 3 == 0:
        user = Message(f"m{i}", "user", (Text(text(i)),), Source("user"))
        session.append("user/message", user, surface_op="append")
    elif i % 3 == 1:
        arguments = f'{{"path":"src/file_{i}.py","limit":200}}'
        said = (Text(text(i)), ToolCall(f"call_{i:08d}", "read_file", arguments))
        answer = Message(f"m{i}", "assistant", said, Source("model", "p", "m"))
        session.append("assistant/message", ev.AssistantMessage(answer), surface_op="append")
    else:
        result = tool_message(f"call_{i - 1:08d}", text(i), id=f"m{i}")
        session.append("tool/result", ev.ToolResult(result), surface_op="append")


def history(n: int) -> Session:
    """A session in memory with `n` messages."""
    session = Session.create("bench")
    for i in range(n):
        add(session, i)
    return session
