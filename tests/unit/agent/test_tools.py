"""Tools: schemas from hints and docstrings, arguments that are checked, results of every kind."""

from __future__ import annotations

import contextvars
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal

import anyio
import msgspec
import pytest

from tests.unit.agent.scenes import agent, assert_lawful, new, results
from turnlog.agent.tools import BadArguments, InvalidTool, Tool, as_content, tool, toolbox
from turnlog.content import Block, Image, Reasoning, Text
from turnlog.models.scripted import Call


@dataclass
class Place:
    """Somewhere."""

    city: str
    country: str = "NO"


class Window(msgspec.Struct):
    """A span of hours."""

    start: Annotated[int, msgspec.Meta(ge=0, le=23)]
    hours: int = 1


def forecast(
    place: Place,
    window: Window,
    unit: Literal["C", "F"] = "C",
    days: Annotated[int, msgspec.Meta(ge=1)] = 3,
    tags: list[str] | None = None,
) -> str:
    """Say what the weather will be.

    It asks nobody.

    Args:
        place: where to look,
            as precisely as you can
        window: which hours.
        unit (Literal): of the temperatures.
        days: how many.
        tags: what to look for.

    Returns:
        one line.
    """
    return f"{place.city} {place.country} {window.start}+{window.hours} {unit} {days} {tags}"


def test_the_schema_comes_from_hints_and_docstring() -> None:
    """Types, enumerations, limits, defaults, nested types and descriptions are all there."""
    made = Tool(forecast)
    assert (made.name, made.description) == (
        "forecast",
        "Say what the weather will be. It asks nobody.",
    )
    parameters = made.schema.parameters
    assert parameters["required"] == ["place", "window"]
    assert parameters["additionalProperties"] is False
    properties = parameters["properties"]
    assert properties["place"]["description"] == "where to look, as precisely as you can"
    assert properties["unit"] == {
        "enum": ["C", "F"],
        "default": "C",
        "description": "of the temperatures.",
    }
    assert properties["days"] == {
        "type": "integer",
        "minimum": 1,
        "default": 3,
        "description": "how many.",
    }
    assert properties["place"]["$ref"] == "#/$defs/Place"
    assert parameters["$defs"]["Window"]["properties"]["start"]["maximum"] == 23


def test_arguments_become_what_the_hints_say() -> None:
    """Dataclasses and structs are made, defaults filled in."""
    args = Tool(forecast).read('{"place": {"city": "Oslo"}, "window": {"start": 3}, "tags": ["a"]}')
    assert args == {
        "place": Place("Oslo"),
        "window": Window(3),
        "unit": "C",
        "days": 3,
        "tags": ["a"],
    }
    assert forecast(**args) == "Oslo NO 3+1 C 3 ['a']"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("{not json", "are not JSON"),
        ("[]", "Expected `object`"),
        ('{"a": 1}', "missing required field `b`"),
        ('{"a": 1, "b": "x"}', "got `str`"),
        ('{"a": 1, "b": 2, "c": 3}', "unknown field `c`"),
        ('{"a": 1, "b": NaN}', "are not JSON"),
        ("\ud800", "are not JSON"),
    ],
)
def test_wrong_arguments_are_told(arguments: str, message: str) -> None:
    """The message says what was expected, in words for the model."""

    def add(a: int, b: int) -> int:
        return a + b

    with pytest.raises(BadArguments, match=message):
        Tool(add).read(arguments)


def test_no_arguments_may_be_nothing_at_all() -> None:
    """Models send an empty string, or blanks, for a call without arguments."""

    def now() -> str:
        return "now"

    assert Tool(now).read("") == Tool(now).read(" ") == Tool(now).read("{}") == {}


def test_a_mutable_default_is_not_shared() -> None:
    """Each call gets its own copy."""

    def collect(into: list[str] = []) -> list[str]:  # noqa: B006 - what is tested
        into.append("x")
        return into

    made = Tool(collect)
    assert made.function(**made.read("{}")) == ["x"]
    assert made.read("{}") == {"into": []}


def test_what_can_be_called_can_be_a_tool() -> None:
    """Partial functions, methods and objects, with a name of one's own where they have none."""

    class Adder:
        def __call__(self, a: int) -> int:
            return a + 1

        def method(self, a: int) -> int:
            return a + 2

    def add(a: int, b: int) -> int:
        return a + b

    by_one = Tool(partial(add, b=1), name="by_one")
    assert by_one.schema.parameters["properties"]["a"] == {"type": "integer"}
    assert by_one.function(**by_one.read('{"a": 2}')) == 3
    assert Tool(Adder(), name="adder").read('{"a": 1}') == {"a": 1}
    assert Tool(Adder().method).name == "method"


def test_a_return_type_that_nobody_can_find_does_not_matter() -> None:
    """Only the parameters' hints are read."""

    def now() -> Unknown:  # pyright: ignore[reportUndefinedVariable,reportUnknownParameterType]  # noqa: F821
        return None

    assert Tool(now).schema.parameters["properties"] == {}  # pyright: ignore[reportUnknownArgumentType]


def _several(*names: str) -> None:
    del names


def _options(**options: str) -> None:
    del options


def _positional(name: str, /) -> None:
    del name


def _unknown(name: Unknown) -> None:  # pyright: ignore[reportUndefinedVariable,reportUnknownParameterType]  # noqa: F821
    del name


def _no_json(lock: threading.Event) -> None:
    del lock


_REFUSED: list[tuple[Any, str]] = [
    (_several, "cannot be described"),
    (_options, "cannot be described"),
    (_positional, "positional only"),
    (_unknown, "cannot read its signature"),
    (_no_json, "no JSON form"),
    (lambda: None, "tool name"),
    (3, "tool name"),
]


@pytest.mark.parametrize(("function", "message"), _REFUSED)
def test_a_function_that_cannot_be_offered_is_refused(
    function: Callable[..., Any], message: str
) -> None:
    """When the tool is made, not when a model calls it."""
    with pytest.raises(InvalidTool, match=message):
        Tool(function)


def test_two_tools_of_one_name_are_refused() -> None:
    """And tools come in the order of their names."""

    def b() -> None: ...

    def a() -> None: ...

    assert list(toolbox([b, a])) == ["a", "b"]
    with pytest.raises(InvalidTool, match="two tools"):
        toolbox([a, Tool(b, name="a")])


def test_the_decorator_works_both_ways() -> None:
    """`@tool` and `@tool(…)` make tools."""

    @tool
    def one() -> None:
        """First."""

    @tool(name="two", description="Second.", exclusive=True)
    def other() -> None: ...

    assert (one.name, one.description, one.exclusive) == ("one", "First.", False)
    assert (other.name, other.description, other.exclusive) == ("two", "Second.", True)
    assert repr(other) == "<Tool two>"


_IMAGE = Image("image/png", "aGk=")


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", (Text("text"),)),
        (None, (Text("(no output)"),)),
        ("", (Text("(no output)"),)),
        (" \n", (Text("(no output)"),)),
        (3, (Text("3"),)),
        (True, (Text("true"),)),
        ({"a": [1, None]}, (Text('{"a":[1,null]}'),)),
        ({1: "x"}, (Text('{"1":"x"}'),)),
        (["a", "b"], (Text('["a","b"]'),)),
        ([], (Text("[]"),)),
        ((1, 2), (Text("[1,2]"),)),
        (Place("Oslo"), (Text('{"city":"Oslo","country":"NO"}'),)),
        (Window(1), (Text('{"start":1,"hours":1}'),)),
        (datetime(2026, 1, 2, tzinfo=UTC), (Text('"2026-01-02T00:00:00Z"'),)),
        (b"caf\xc3\xa9", (Text("café"),)),
        (b"\xff", (Text(r"b'\xff'"),)),
        (math.nan, (Text("nan"),)),
        (2**80, (Text(str(2**80)),)),
        (Text("block"), (Text("block"),)),
        (_IMAGE, (_IMAGE,)),
        ([Text("see"), _IMAGE, "", Text(" ")], (Text("see"), _IMAGE)),
        (["see", _IMAGE], (Text("see"), _IMAGE)),
        (Reasoning("hm"), (Text('{"type":"reasoning","text":"hm"}'),)),
    ],
)
def test_a_result_of_any_kind_is_content(value: Any, content: tuple[Block, ...]) -> None:
    """Text and blocks as they are, anything else as JSON, nothing at all is said so."""
    assert as_content(value) == content


def test_what_has_no_json_is_shown() -> None:
    """A body that ran did not fail because of what it returned."""

    class Odd:
        def __str__(self) -> str:
            return "odd"

    cycle: list[Any] = []
    cycle.append(cycle)
    assert as_content(Odd()) == (Text("odd"),)
    assert as_content({"x": math.inf}) == (Text("{'x': inf}"),)
    assert as_content(cycle) == (Text("[[...]]"),)


_WHO = contextvars.ContextVar("_WHO", default="nobody")


async def test_a_plain_function_runs_in_a_thread_with_the_callers_context() -> None:
    """It does not block the loop, and context variables reach it."""
    seen: list[tuple[bool, str]] = []
    here = threading.get_ident()

    def where() -> str:
        seen.append((threading.get_ident() != here, _WHO.get()))
        return "ok"

    _WHO.set("ada")
    await agent(Call("where"), "done", tools=[where]).run(new(), "go")
    assert seen == [(True, "ada")]


async def test_coroutines_of_every_form_are_awaited() -> None:
    """Async functions, objects with an async call, and plain functions that return a coroutine."""

    class Remote:
        async def __call__(self) -> str:
            await anyio.lowlevel.checkpoint()
            return "remote"

    async def direct() -> str:
        await anyio.lowlevel.checkpoint()
        return "direct"

    tools = [direct, Tool(Remote(), name="remote"), Tool(lambda: direct(), name="indirect")]  # noqa: PLW0108 - a plain function
    session = new()
    calls = [Call("direct"), Call("remote"), Call("indirect")]
    await agent(calls, "done", tools=tools).run(session, "go")
    assert [text for _, text, _ in results(session)] == ["direct", "remote", "direct"]


async def test_whatever_a_body_raises_becomes_its_result() -> None:
    """Errors without words, exits, and bodies that cancel themselves; the turn goes on."""

    def wordless() -> None:
        raise KeyError

    def leave() -> None:
        raise SystemExit(3)

    async def exhausted() -> None:
        raise StopAsyncIteration

    async def cancelled() -> None:
        raise anyio.get_cancelled_exc_class()

    session = new()
    names = ["wordless", "leave", "exhausted", "cancelled"]
    tools = [wordless, leave, exhausted, cancelled]
    result = await agent([Call(n, id=n) for n in names], "done", tools=tools).run(session, "go")
    assert result.text == "done"
    told = {call: (text, code) for call, text, code in results(session)}
    assert told["wordless"] == ("KeyError", "TOOL_FAILED")
    assert told["leave"] == ("SystemExit: 3", "TOOL_FAILED")
    assert told["exhausted"][1] == told["cancelled"][1] == "TOOL_FAILED"
    assert_lawful(session)


async def test_a_result_that_no_log_takes_is_told() -> None:
    """The model learns that the call ran, and that what it returned is too much."""
    session = new()
    size = 65 * 1024 * 1024
    runner = agent(Call("dump", id="c1"), "done", tools=[Tool(lambda: "x" * size, name="dump")])
    result = await runner.run(session, "go")
    assert result.text == "done"
    ((_, text, code),) = results(session)
    assert code == "TOOL_FAILED"
    assert "cannot be kept" in text
    assert_lawful(session)


async def test_calls_that_share_an_id_are_told_apart() -> None:
    """A model that repeats an id, or names no tool, gets a result for each call all the same."""
    ran: list[str] = []

    def note(text: str) -> None:
        ran.append(text)

    session = new()
    calls = [Call("note", {"text": "a"}, id="x"), Call("note", {"text": "b"}, id="x"), Call("")]
    again = [Call("note", {"text": "c"}, id="x")]
    await agent(calls, again, "done", tools=[Tool(note, exclusive=True)]).run(session, "go")
    assert ran == ["a", "b", "c"]
    assert [code for _, _, code in results(session)] == [None, None, "TOOL_UNKNOWN", None]
    assert_lawful(session)
