"""A tool step forced by a schema: its header, and its answer as a call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from turnlog import Session
from turnlog.assembly import Assembly
from turnlog.content import Chunk, FinishReason, ToolCall, Usage
from turnlog.events import ModelConfig, RequestHeader, ToolSchema
from turnlog.models.forced_tools import (
    as_tool_call,
    call_schema,
    forced_header,
    made_examples,
    parse_call,
)
from turnlog.testing import End, Hang, ScriptedModel, Used

CONFIG = ModelConfig("local", "m", temperature=0.5, tool_choice="required", extra={"seed": 1})
ADD = ToolSchema(
    "add",
    "Adds two numbers. Slowly.",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 0}},
        "required": ["a"],
    },
)
PLACE = ToolSchema(
    "look_up",
    "Looks a place up",
    {
        "type": "object",
        "properties": {
            "where": {"$ref": "#/$defs/Place"},
            "unit": {"enum": ["km", "mi"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "strict": {"type": "boolean"},
            "limit": {"anyOf": [{"type": "integer", "maximum": 5}, {"type": "null"}]},
        },
        "$defs": {"Place": {"type": "object", "properties": {"city": {"type": "string"}}}},
    },
)


def test_the_header_holds_everything() -> None:
    """System text, a line a tool, worked examples and the schema are in the header, and logged."""
    examples = [("What is 2 and 3?", {"a": 2, "b": 3}), {"a": 4}]
    header = forced_header(CONFIG, [ADD], {"add": examples})
    assert header.system == (
        "You call tools. Reply with one JSON object.\nadd(a, b): Adds two numbers"
    )
    assert header.tools is None
    assert header.extra == {
        "examples": [
            {"role": "user", "content": "What is 2 and 3?"},
            {"role": "assistant", "content": '{"tool":"add","arguments":{"a":2,"b":3}}'},
            {"role": "user", "content": "Adds two numbers: a 4"},
            {"role": "assistant", "content": '{"tool":"add","arguments":{"a":4}}'},
        ]
    }
    config = header.config
    assert (config.tool_choice, config.temperature) == (None, 0.5)
    assert config.extra is not None
    assert config.extra["seed"] == 1
    assert config.extra["response_format"]["json_schema"]["strict"] is True
    event = Session.create(session_id="s").append(
        "request/header", RequestHeader(header, "initial")
    )
    assert event.data.header == header


def test_every_argument_is_required() -> None:
    """The schema fixes the name and asks for all arguments and no other."""
    assert call_schema([ADD]) == {
        "oneOf": [
            {
                "type": "object",
                "properties": {
                    "tool": {"const": "add"},
                    "arguments": {
                        "type": "object",
                        "properties": ADD.parameters["properties"],
                        "required": ["a", "b"],
                        "additionalProperties": False,
                    },
                },
                "required": ["tool", "arguments"],
                "additionalProperties": False,
            }
        ]
    }


def test_definitions_of_tools_do_not_collide() -> None:
    """Each tool's `$defs` move to the top under its name; the tool's own schema is left alone."""
    before = msgspec.json.encode(PLACE)
    other = msgspec.structs.replace(PLACE, name="other")
    schema = call_schema([PLACE, other])
    assert set(schema["$defs"]) == {"look_up.Place", "other.Place"}
    where = schema["oneOf"][1]["properties"]["arguments"]["properties"]["where"]
    assert where == {"$ref": "#/$defs/other.Place"}
    assert "$defs" not in schema["oneOf"][0]["properties"]["arguments"]
    assert msgspec.json.encode(PLACE) == before


def test_examples_are_made_from_the_schema() -> None:
    """Without examples a tool gets two, with values of the right types, always the same ones."""
    assert made_examples(ADD) == [
        ("Adds two numbers: a 12 and b 7", {"a": 12, "b": 7}),
        ("Adds two numbers: a 7 and b 12", {"a": 7, "b": 12}),
    ]
    (_, first), (_, second) = made_examples(PLACE)
    assert first == {
        "where": {"city": "Paris"},
        "unit": "km",
        "tags": ["apple"],
        "strict": True,
        "limit": 5,
    }
    assert (second["unit"], second["where"], second["strict"]) == ("mi", {"city": "Tokyo"}, False)
    assert made_examples(ToolSchema("now", "", {})) == [("now", {}), ("now", {})]


@pytest.mark.parametrize("form", ["$ref", "anyOf", "items", "properties"])
def test_schemas_that_never_end(form: str) -> None:
    """A schema that contains itself gives an example that ends."""
    itself: dict[str, Any] = {"$ref": "#/$defs/A"}
    inner: dict[str, dict[str, Any]] = {
        "$ref": itself,
        "anyOf": {"anyOf": [itself]},
        "items": {"type": "array", "items": itself},
        "properties": {"type": "object", "properties": {"again": itself}},
    }
    parameters = {"properties": {"a": itself}, "$defs": {"A": inner[form]}}
    assert made_examples(ToolSchema("f", "", parameters))


@pytest.mark.parametrize(
    ("answer", "call"),
    [
        ('{"tool" : "add", "arguments": {"a": 1, "b":2}}', ("add", '{"a":1,"b":2}')),
        ('{"tool": "add"}', ("", '{"tool": "add"}')),
        ('{"tool": "add", "arguments": {"a"', ("", '{"tool": "add", "arguments": {"a"')),
        ("[]", ("", "[]")),
        ("", ("", "")),
    ],
)
def test_an_answer_is_a_call_or_names_no_tool(answer: str, call: tuple[str, str]) -> None:
    """What is no call keeps the raw answer and names no tool, which the loop will report."""
    assert parse_call(answer) == call


async def _forced(model: ScriptedModel, into: list[Chunk]) -> Assembly:
    async with model.stream(b"") as chunks:
        async for chunk in as_tool_call(chunks, "id"):
            into.append(chunk)  # noqa: PERF401 - what came before a failure is kept
    return Assembly(into)


async def test_the_stream_is_that_of_a_call() -> None:
    """The text of the answer arrives as parts of a call, which its end makes complete."""
    model = ScriptedModel([['{"tool": "add", ', '"arguments": {"a": 1}}', Used(3)]])
    answer = await _forced(model, [])
    assert answer.blocks() == (ToolCall("id", "add", '{"a":1}'),)
    assert answer.finish == FinishReason("tool-calls")
    assert answer.usage == Usage(3)


async def test_an_answer_without_end_is_no_call() -> None:
    """An answer that ran out of tokens has no blocks; one that is left keeps nothing visible."""
    model = ScriptedModel([['{"tool": "add"', End("max-tokens")], ['{"tool"', Hang()]])
    assert (await _forced(model, [])).blocks() == ()
    async with model.stream(b"") as chunks:
        first: AsyncIterator[Chunk] = as_tool_call(chunks, "id")
        assert Assembly([await anext(first)]).visible() == ()
