"""A tool step on a model without native tools: its answer is forced into the form of one call.

A small model calls the right tool when it *must* call one and sees how: a short system text with a
line a tool, worked examples as turns, and a strict JSON schema for the answer. Such a step has a
request header of its own, logged like any header, in which all of this is written: the examples
under `examples`, as messages that go before the conversation; the schema under the configuration's
`response_format`, which the encoder passes on. The next step goes back to the plain header.

    header = forced_header(config, tools)
    async for chunk in as_tool_call(chunks, call_id): ...     # a ToolCall block, like any other
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from turnlog import jsontext
from turnlog.content import (
    BlockEnd,
    Chunk,
    Finish,
    FinishReason,
    TextDelta,
    ToolCall,
    ToolCallDelta,
)
from turnlog.events import Header, ModelConfig, ToolSchema
from turnlog.models.example_values import example_arguments

SYSTEM: Final = "You call tools. Reply with one JSON object."
_EXAMPLES_EACH: Final = 2

Worked = tuple[str, Mapping[str, Any]]  # what a person asks, and the arguments that answer it
Example = Worked | Mapping[str, Any]  # or the arguments alone


def forced_header(
    config: ModelConfig,
    tools: Sequence[ToolSchema],
    examples: Mapping[str, Sequence[Example]] | None = None,
) -> Header:
    """The header of a step that must call one of `tools`.

    Args:
        config: the configuration in force; `tool_choice` is dropped, `response_format` added.
        tools: at least one.
        examples: by the tool's name, with or without what a person asked; for a tool that has
            none they are made from its schema.
    """
    given = examples or {}
    worked = [
        message
        for tool in tools
        for prompt, arguments in _worked(tool, given.get(tool.name, ()))
        for message in (
            {"role": "user", "content": prompt},
            {"role": "assistant", "content": _call_text(tool.name, arguments)},
        )
    ]
    schema = {"name": "tool_call", "strict": True, "schema": call_schema(tools)}
    extra = {
        **(config.extra or {}),
        "response_format": {"type": "json_schema", "json_schema": schema},
    }
    return Header(
        config=msgspec.structs.replace(config, tool_choice=None, extra=extra),
        system="\n".join([SYSTEM, *map(_line, tools)]),
        extra={"examples": worked},
    )


def call_schema(tools: Sequence[ToolSchema]) -> dict[str, Any]:
    """The JSON Schema of one call of one of `tools`: the name fixed, every argument required."""
    definitions: dict[str, Any] = {}
    forms: list[dict[str, Any]] = []
    for tool in tools:
        parameters = _renamed(tool.parameters, tool.name)
        for name, definition in parameters.pop("$defs", {}).items():
            definitions[f"{tool.name}.{name}"] = definition
        properties = parameters.get("properties", {})
        arguments = {
            **parameters,
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
        forms.append(
            {
                "type": "object",
                "properties": {"tool": {"const": tool.name}, "arguments": arguments},
                "required": ["tool", "arguments"],
                "additionalProperties": False,
            }
        )
    schema: dict[str, Any] = {"oneOf": forms}
    return {**schema, "$defs": definitions} if definitions else schema


def made_examples(tool: ToolSchema) -> Sequence[Worked]:
    """Worked examples from a tool's description and schema: what it does, with which values."""
    made = (example_arguments(tool.parameters, number) for number in range(_EXAMPLES_EACH))
    return [(_prompt(tool, arguments), arguments) for arguments in made]


def parse_call(answer: str) -> tuple[str, str]:
    """The tool's name and the arguments as raw JSON; an answer that is no call names no tool."""
    try:
        value = jsontext.decode(answer.encode("utf-8", "surrogatepass"))
    except ValueError:
        return "", answer
    if not isinstance(value, dict):
        return "", answer
    call = cast("dict[str, Any]", value)
    name, arguments = call.get("tool"), call.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return "", answer
    return name, jsontext.encode(arguments).decode()


async def as_tool_call(chunks: AsyncIterator[Chunk], call_id: str) -> AsyncGenerator[Chunk]:
    """The stream of a forced step as the stream of one tool call.

    What arrives is the call's text, so an answer that is cut off leaves no half JSON in the
    conversation; the complete call is the block's end.
    """
    pieces: list[str] = []
    async for chunk in chunks:
        if isinstance(chunk, TextDelta):
            pieces.append(chunk.text)
            yield ToolCallDelta(0, call_id, None, chunk.text)
        elif isinstance(chunk, Finish) and chunk.reason.kind == "stop":
            name, arguments = parse_call("".join(pieces))
            yield BlockEnd(0, ToolCall(call_id, name, arguments))
            yield Finish(FinishReason("tool-calls"))
        else:
            yield chunk


def _worked(tool: ToolSchema, examples: Sequence[Example]) -> Sequence[Worked]:
    if not examples:
        return made_examples(tool)
    return [
        example if isinstance(example, tuple) else (_prompt(tool, example), example)
        for example in examples
    ]


def _prompt(tool: ToolSchema, arguments: Mapping[str, Any]) -> str:
    """What a person might have asked, as well as the description says it."""
    what = _first_sentence(tool.description) or tool.name.replace("_", " ")
    values = " and ".join(
        f"{name.replace('_', ' ')} {_shown(value)}" for name, value in arguments.items()
    )
    return f"{what}: {values}" if values else what


def _line(tool: ToolSchema) -> str:
    names = ", ".join(tool.parameters.get("properties", {}))
    return f"{tool.name}({names}): {_first_sentence(tool.description)}"


def _call_text(name: str, arguments: Mapping[str, Any]) -> str:
    return jsontext.encode({"tool": name, "arguments": dict(arguments)}).decode()


def _first_sentence(description: str) -> str:
    return re.split(r"(?<=[.!?])\s", " ".join(description.split()), maxsplit=1)[0].rstrip(".!?")


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else jsontext.encode(value).decode()


def _renamed(schema: Any, tool: str) -> Any:
    """A copy whose references to `$defs` say whose they are: all tools share one schema."""
    if isinstance(schema, list):
        return [_renamed(item, tool) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    copy = {key: _renamed(value, tool) for key, value in cast("dict[str, Any]", schema).items()}
    reference = copy.get("$ref")
    if isinstance(reference, str):
        copy["$ref"] = reference.replace("#/$defs/", f"#/$defs/{tool}.", 1)
    return copy
