"""Open structs: what we do not know is kept where it was."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from turnlog import Message, Source, Text, ToolCall
from turnlog import events as ev
from turnlog.content import Reasoning, tool_message
from turnlog.errors import InvalidPayload, NotJson
from turnlog.records import Codec, FrozenDict, FrozenList, Opaque, encode, flatten, freeze, plain

MESSAGE: dict[str, Any] = {
    "id": "m",
    "role": "assistant",
    "content": [
        {"type": "text", "text": "hi", "cacheHint": {"ttl": [1, 2]}},
        {"type": "acme-chart", "value": {"type": "$tl.opaque", "value": 1}},
        {"type": "$tl.opaque", "value": {"type": "text"}},
        {"type": "tool-call", "id": "c", "name": "f", "arguments": "{", "$tl.extra": {"a": 1}},
    ],
    "source": {"kind": "model", "replayState": {"response": "\ud800"}},
    "x-top": None,
}
RESULT = {
    "message": {**MESSAGE, "role": "tool", "toolCallId": "c"},
    "meta": {"$tl.extra": 5, "b": [{"type": "$tl.opaque", "value": 7}]},
    "new": {"$tl.extra": {"y": 1}},
}


def test_unknown_fields_come_out_where_they_were() -> None:
    """Blocks and fields that we do not know survive, even ones that look like our own marks."""
    for cls, wire in ((Message, MESSAGE), (ev.ToolResult, RESULT)):
        codec: Codec[Any] = Codec(cls)
        raw = encode(codec.convert(wire))
        assert codec.decode(raw).to_dict() == wire
        again, snapshot = codec.admit(codec.decode(raw), 0)
        assert codec.decode(again) == snapshot == codec.convert(wire)


def test_where_unknowns_are() -> None:
    """Unknown fields are in `extra`, an unknown block is an Opaque that knows its type."""
    message = Codec(Message).convert(MESSAGE)
    text, chart, odd, call = message.content
    assert isinstance(text, Text)
    assert text.extra == {"cacheHint": {"ttl": [1, 2]}}
    assert isinstance(chart, Opaque)
    assert chart.type == "acme-chart"
    assert isinstance(odd, Opaque)
    assert odd.type == "$tl.opaque"
    assert isinstance(call, ToolCall)
    assert message.source.extra == {"replayState": {"response": "\ud800"}}
    assert message.extra == {"x-top": None}


def test_what_is_kept_cannot_be_changed() -> None:
    """Unknown values are deeply frozen, hashable, equal to what they were, and copies of it."""
    value: Any = freeze({"a": [1, {"b": 2}]})
    assert value == {"a": [1, {"b": 2}]}
    changes: list[Any] = [
        lambda: value.update(a=1),
        lambda: value["a"].append(2),
        lambda: value["a"][1].pop("b"),
        lambda: value.__setitem__("a", 1),
        lambda: value.__ior__({}),
        lambda: value["a"].__iadd__([1]),
    ]
    for change in changes:
        with pytest.raises(TypeError, match="copy it"):
            change()
    assert hash(value) == hash(freeze({"a": [1, {"b": 2}]}))
    assert copy.deepcopy(value) is value
    assert copy.copy(value["a"]) is value["a"]
    assert isinstance(value, FrozenDict)
    assert isinstance(value["a"], FrozenList)
    assert type(flatten(Text("a", value))["a"]) is list


def test_wrong_types_are_refused() -> None:
    """A field of the wrong type is refused, also beside a lone surrogate."""
    codec = Codec(ev.ToolResult)
    wrong: Any = 7
    for message in (tool_message("c", Text(wrong)), tool_message(wrong, "\ud800")):
        with pytest.raises(InvalidPayload):
            codec.admit(ev.ToolResult(message), 3)


def test_free_fields_hold_json_only() -> None:
    """What a free-form field holds is refused where it is not JSON, with the path."""
    codec = Codec(ev.ToolResult)
    for meta in ({"a": (1, 2)}, {"a": float("nan")}, {"a": {1: 2}}, {"a": Text("struct")}):
        with pytest.raises(NotJson, match=r"\$"):
            codec.admit(ev.ToolResult(tool_message("c", "x"), meta=meta), 3)


def test_unknown_fields_are_not_known_ones() -> None:
    """An unknown field that has the name of a known one is refused: it would hide it."""
    codec = Codec(Message)
    for extra in ({"text": "y"}, {"text": "x"}):
        with pytest.raises(NotJson):
            codec.admit(Message("m", "user", (Text("x", extra),), Source("u")), 0)
    kept = Message("m", "user", (Text("x", {"Text": "y"}),), Source("u"))
    assert codec.admit(kept, 0)[1] == kept


def test_halves_of_a_character() -> None:
    """A text whose halves of a character met is the text with that character."""
    _, snapshot = Codec(Message).admit(
        Message("m", "user", (Text("\ud83d\ude00"),), Source("u")), 0
    )
    assert snapshot.text == "\U0001f600"
    _, snapshot = Codec(Message).admit(
        Message("m", "user", (Text("\ude00\ud83d"),), Source("u")), 0
    )
    assert snapshot.text == "\ude00\ud83d"


def test_plain() -> None:
    """Records, mappings and tuples as plain JSON."""
    assert plain({"a": (Text("x"), Reasoning())}) == {
        "a": [{"type": "text", "text": "x"}, {"type": "reasoning", "text": ""}]
    }


def test_a_field_of_another_kind_is_named() -> None:
    """Of a record that does not come back as it was, the error says which field, and what it is."""
    unfit: Any = {"input_tokens": 3}
    message = Message("m", "assistant", (Text("hi"),), Source("model"))
    with pytest.raises(NotJson, match=r"\$\.usage: expected Usage, got \{'input_tokens': 3\}"):
        Codec(ev.AssistantMessage).admit(ev.AssistantMessage(message, usage=unfit), 0)
