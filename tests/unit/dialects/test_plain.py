"""The dialect of models that know no tools."""

from __future__ import annotations

from typing import Any

import msgspec

from turnlog import Session
from turnlog.content import (
    Image,
    Reasoning,
    Text,
    ToolCall,
    assistant_message,
    tool_message,
    user_message,
)
from turnlog.dialects import encoder
from turnlog.events import Header, ModelConfig, ToolSchema
from turnlog.testing.providers import check_openai

CONFIG = ModelConfig("local", "m", max_tokens=9, tool_choice="required", extra={"seed": 1})
HEADER = Header(CONFIG, "sys", (ToolSchema("add", "Adds.", {"type": "object"}),))
HISTORY = [
    user_message("2 and 3?"),
    assistant_message([Reasoning("hm"), Text("Let me see."), ToolCall("c", "add", '{"a": 2}')]),
    tool_message("c", [Text("5"), Image("image/png", "aGk=")]),
    assistant_message([ToolCall("d", "add", "{nonsense")]),
    tool_message("d", "no", is_error=True),
    tool_message("e", ""),
]
PNG = "[image omitted]"


def test_tools_are_text() -> None:
    """Calls are JSON objects in the text, results are told by the user, tools are not sent."""
    body = msgspec.json.decode(encoder("openai-plain@1").encode(HEADER, HISTORY))
    go_on = "Now answer my question in one sentence."
    assert body == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 9,
        "seed": 1,
        "messages": [
            {"role": "system", "content": "sys"},
            {"role": "user", "content": "2 and 3?"},
            {
                "role": "assistant",
                "content": 'Let me see.\n\n{"tool":"add","arguments":{"a":2}}',
            },
            {"role": "user", "content": f"Tool result: 5\n\n{PNG}\n{go_on}"},
            {
                "role": "assistant",
                "content": '{"tool":"add","arguments":{"_raw":"{nonsense"}}',
            },
            {"role": "user", "content": f"Tool error: no\n{go_on}"},
            {"role": "user", "content": f"Tool result: (no output)\n{go_on}"},
        ],
    }
    assert check_openai(body) == []


def test_examples_come_first() -> None:
    """The worked examples of a forced step stand between system text and history."""
    examples: list[Any] = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": '{"tool":"add","arguments":{}}'},
    ]
    header = Header(CONFIG, "sys", extra={"examples": examples})
    body = msgspec.json.decode(encoder("openai-plain@1").encode(header, [user_message("now")]))
    assert body["messages"][1:] == [*examples, {"role": "user", "content": "now"}]


def test_incremental_is_the_same() -> None:
    """Encoding step by step gives the bytes of encoding at once."""
    plain = encoder("openai-plain@1")
    growing = plain.incremental()
    session = Session.create(session_id="s")
    for turn in range(3):
        session.add_user(f"{turn} and 3?")
        session.add_assistant([Text("So."), ToolCall(f"c{turn}", "add", "{}")])
        for view in (session.request_messages(), session.derive_messages()):
            body = growing.encode(HEADER, view)
            assert b"".join(body.segments) == plain.encode(HEADER, view)
        session.add_tool_result(f"c{turn}", "5")
        body = growing.encode(HEADER, session.request_messages())
        assert b"".join(body.segments) == plain.encode(HEADER, session.request_messages())
