"""Messages and blocks: how they are made and read."""

from __future__ import annotations

import pytest

from turnlog import (
    Image,
    Reasoning,
    Text,
    ToolCall,
    Usage,
    assistant_message,
    tool_message,
    user_message,
)
from turnlog.content import is_empty
from turnlog.records import Opaque


def test_content_is_made_of_text_blocks_or_one_of_them() -> None:
    """A string is one text block, an empty one none; blocks are taken as they are."""
    assert user_message("hi").content == (Text("hi"),)
    assert user_message("").content == ()
    assert user_message(Text("a")).content == (Text("a"),)
    assert user_message(iter([Text("a"), Image(url="x:y")])).content == (
        Text("a"),
        Image(url="x:y"),
    )
    assert user_message(Opaque({"type": "chart"})).content == (Opaque({"type": "chart"}),)


def test_who_said_it() -> None:
    """Messages name their source, results their call."""
    assert user_message("a").source.kind == "user"
    assert assistant_message("a", provider="p", model="m").source.model == "m"
    result = tool_message("c", "done", is_error=True)
    assert (result.role, result.tool_call_id, result.is_error) == ("tool", "c", True)
    assert result.source.call_id == "c"


def test_text_and_calls() -> None:
    """`text` joins the text blocks; `tool_calls` lists the calls in order."""
    one, two = ToolCall("1", "f", "{}"), ToolCall("2", "f", "{}")
    message = assistant_message([Reasoning("hm"), Text("a"), one, Text("b"), two])
    assert message.text == "ab"
    assert message.tool_calls == (one, two)


@pytest.mark.parametrize(
    ("block", "empty"),
    [
        (Text(""), True),
        (Text(" "), False),
        (Text("", {"cite": 1}), False),
        (Reasoning(), True),
        (Reasoning("", signature="s"), False),
        (Reasoning("", encrypted="e"), False),
        (Image(), False),
        (ToolCall("", "", ""), False),
    ],
)
def test_empty_blocks(block: Text | Reasoning | Image | ToolCall, empty: bool) -> None:  # noqa: FBT001
    """A block is empty if it says nothing, not even to its provider."""
    assert is_empty(block) is empty


def test_unknown_is_not_zero() -> None:
    """Usage that was not reported is unknown, and is not written."""
    assert Usage().to_dict() == {}
    assert Usage(output_tokens=0).to_dict() == {"outputTokens": 0}


def test_wire_names() -> None:
    """On the wire names are camelCase and blocks carry their type."""
    assert tool_message("c", "x", id="m").to_dict() == {
        "id": "m",
        "role": "tool",
        "content": [{"type": "text", "text": "x"}],
        "source": {"kind": "tool", "callId": "c"},
        "toolCallId": "c",
        "isError": False,
    }


def test_content_may_mix_strings_and_blocks() -> None:
    """In a list of blocks a string stands for a text block, an empty one for none."""
    call = ToolCall("c", "look", "{}")
    assert assistant_message(["Let me look.", "", call]).content == (Text("Let me look."), call)
