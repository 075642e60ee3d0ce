"""How often the local model, made to call a tool, calls the right one with valid arguments.

Two tools that no worked example names: the examples are made from their schemas.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import anyio
from measure import Options, report, row

from turnlog.content import BlockEnd, ToolCall
from turnlog.errors import MissingExtra
from turnlog.events import Header, ModelConfig, ToolSchema
from turnlog.models import open_model
from turnlog.models.forced_tools import as_tool_call, forced_header

TOOLS = (
    ToolSchema(
        "population",
        "Looks up how many people live in a country.",
        {
            "type": "object",
            "properties": {"country": {"type": "string"}},
            "required": ["country"],
        },
    ),
    ToolSchema(
        "multiply",
        "Multiplies two numbers.",
        {
            "type": "object",
            "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
            "required": ["x", "y"],
        },
    ),
)
KINDS = {"population": {"country": str}, "multiply": {"x": int, "y": int}}
PROMPTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("How many people live in Sweden?", "population", {"country": "Sweden"}),
    ("What is the population of Japan?", "population", {"country": "Japan"}),
    ("Tell me how many inhabitants Kenya has.", "population", {"country": "Kenya"}),
    ("Population of Germany?", "population", {"country": "Germany"}),
    ("I wonder how many people there are in Canada.", "population", {"country": "Canada"}),
    ("Look up the population of Peru.", "population", {"country": "Peru"}),
    ("How big is the population of India?", "population", {"country": "India"}),
    ("How many live in Italy?", "population", {"country": "Italy"}),
    ("Please find the number of people in Egypt.", "population", {"country": "Egypt"}),
    ("Is the population of Chile large?", "population", {"country": "Chile"}),
    ("What is 6 times 9?", "multiply", {"x": 6, "y": 9}),
    ("Multiply 12 by 11.", "multiply", {"x": 12, "y": 11}),
    ("What is 8 * 5?", "multiply", {"x": 8, "y": 5}),
    ("Compute 31 x 4.", "multiply", {"x": 31, "y": 4}),
    ("I have 7 boxes with 24 eggs each, how many eggs?", "multiply", {"x": 7, "y": 24}),
    ("How much is 15 multiplied by 15?", "multiply", {"x": 15, "y": 15}),
    ("Give me the product of 3 and 200.", "multiply", {"x": 3, "y": 200}),
    ("3 times 14, please.", "multiply", {"x": 3, "y": 14}),
    ("Work out 9 times 99.", "multiply", {"x": 9, "y": 99}),
    ("What do you get if you multiply 2 and 50?", "multiply", {"x": 2, "y": 50}),
)
CHAT = (
    {"role": "user", "content": "Hello, who are you?"},
    {"role": "assistant", "content": "I am a helpful assistant. How can I help you today?"},
    {"role": "user", "content": "Tell me something nice."},
    {"role": "assistant", "content": "The sun is shining and the birds are singing."},
)


def body_of(header: Header, messages: list[dict[str, str]]) -> bytes:
    """The request, written by hand: this measures the header, not the encoder."""
    extra = header.config.extra or {}
    return json.dumps(
        {
            "model": header.config.model,
            "messages": [{"role": "system", "content": header.system}, *messages],
            "temperature": 0,
            "stream": True,
            "response_format": extra["response_format"],
        }
    ).encode()


async def ask(
    before: Sequence[dict[str, str]], prompts: Sequence[tuple[str, str, dict[str, Any]]]
) -> tuple[int, int, int]:
    """How many answers were valid by schema, called the right tool, had the right arguments."""
    model = open_model("local:smollm2")
    header = forced_header(ModelConfig(model.provider, model.model), TOOLS)
    examples = (header.extra or {})["examples"]
    valid = tool = right = 0
    async with model.connected():
        for prompt, name, wanted in prompts:
            body = body_of(header, [*examples, *before, {"role": "user", "content": prompt}])
            async with model.stream(body) as chunks:
                async for chunk in as_tool_call(chunks, "call"):
                    if isinstance(chunk, BlockEnd) and isinstance(chunk.block, ToolCall):
                        call = chunk.block
                        arguments = json.loads(call.arguments)
                        kinds = {key: type(value) for key, value in arguments.items()}
                        valid += kinds == KINDS.get(call.name)
                        tool += call.name == name
                        right += (call.name, arguments) == (name, wanted)
    return valid, tool, right


def measure(options: Options) -> Iterator[dict[str, Any]]:
    """One row for each place of the step: as a first turn, and after a chat."""
    prompts = PROMPTS[:: options.size(1, 10)]
    for label, before in (("a first turn", ()), ("after a chat", CHAT)):
        what = f"forced tool step of local:smollm2, {label}"
        try:
            valid, tool, right = anyio.run(ask, before, prompts)
        except MissingExtra as missing:
            yield row("tools", what, str(missing), "told", met=None)
            continue
        total = len(prompts)
        yield row(
            "tools",
            what,
            f"{valid}/{total} valid by schema, {tool}/{total} the right tool, "
            f"{right}/{total} with the right arguments",
            "told",
            met=None,
            valid=valid,
            tool=tool,
            right=right,
            prompts=total,
        )


if __name__ == "__main__":
    report(measure)
