"""Tools: plain or async Python functions that a model may call.

The JSON Schema comes from the type hints, the descriptions from the docstring (its `Args:` section
for the parameters). Arguments are checked against the hints before the body runs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_type_hints

import msgspec

from turnlog import jsontext
from turnlog.content import Block, Content, Image, Opaque, Reasoning, Text, ToolCall, blocks
from turnlog.errors import TurnlogError
from turnlog.events import ToolSchema
from turnlog.records import plain

Approve: TypeAlias = (
    Literal["always", "ask", "never"]
    | Callable[[dict[str, Any]], "str | bool | Awaitable[str | bool]"]
)
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_NO_OUTPUT = "(no output)"


class InvalidTool(TurnlogError):
    """A function that cannot be offered to a model."""


class ToolAborted(TurnlogError):
    """Raised by a body that was cancelled and knows what became of its work: the result says it."""


class BadArguments(TurnlogError):
    """Arguments that do not fit the tool; the model reads the message."""


class Tool:
    """A function that a model may call.

    Attributes:
        exclusive: never runs beside another tool of the same step.
        approve: "always" runs it, "ask" asks a person, "never" refuses; or a function of the
            arguments that returns one of these (or True for always, False for never).
        examples: arguments of worked calls, for models that learn from examples.
    """

    def __init__(  # noqa: PLR0913 - all optional
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        exclusive: bool = False,
        approve: Approve = "always",
        examples: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.function = function
        self.name = name or getattr(function, "__name__", "")
        if not _NAME.match(self.name):
            msg = f"expected a tool name of letters, digits, _ and -, got {self.name!r}"
            raise InvalidTool(msg)
        documented, parameters = _read_docstring(inspect.getdoc(function) or "")
        self.description = description or documented or self.name
        self.exclusive = exclusive
        self.approve: Approve = approve
        self.examples = tuple(dict(example) for example in examples)
        self.arguments = _arguments_type(self.name, function)
        self.schema = ToolSchema(
            self.name, self.description, _schema(self.arguments, parameters)
        )

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    def read(self, arguments: str) -> dict[str, Any]:
        """The arguments in the raw string that the model produced, checked.

        Raises:
            BadArguments: not JSON, or not what the function takes; the message is for the model.
        """
        try:
            found = jsontext.decode(arguments.strip().encode("utf-8", "surrogatepass") or b"{}")
            checked = msgspec.convert(found, self.arguments)
        except msgspec.ValidationError as error:
            msg = f"invalid arguments for {self.name}: {error}"
            raise BadArguments(msg) from None
        except ValueError as error:
            msg = f"the arguments of {self.name} are not JSON: {error}"
            raise BadArguments(msg) from None
        return {field: getattr(checked, field) for field in self.arguments.__struct_fields__}

    async def decide(self, arguments: dict[str, Any]) -> str:
        """Whether a call may run: "always", "ask" or "never"."""
        policy = self.approve
        if isinstance(policy, str):
            return policy
        said = policy(arguments)
        if inspect.isawaitable(said):
            said = await said
        if isinstance(said, bool):
            return "always" if said else "never"
        return said


def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    exclusive: bool = False,
    approve: Approve = "always",
    examples: Sequence[Mapping[str, Any]] = (),
) -> Any:
    """Make a `Tool` of a function; usable as `@tool` and as `@tool(approve="ask")`."""

    def make(function: Callable[..., Any]) -> Tool:
        return Tool(
            function,
            name=name,
            description=description,
            exclusive=exclusive,
            approve=approve,
            examples=examples,
        )

    return make if function is None else make(function)


def toolbox(tools: Sequence[Tool | Callable[..., Any]]) -> dict[str, Tool]:
    """Tools by name, in the order of their names: the order of registration must not matter.

    Raises:
        InvalidTool: two of one name, or something that is no function.
    """
    found: dict[str, Tool] = {}
    for item in tools:
        made = item if isinstance(item, Tool) else Tool(item)
        if made.name in found:
            msg = f"two tools are called {made.name!r}"
            raise InvalidTool(msg)
        found[made.name] = made
    return dict(sorted(found.items()))


def as_content(value: Any) -> tuple[Block, ...]:
    """What a body returned, as content: text and blocks as they are, anything else as JSON."""
    if isinstance(value, (str, Text, Reasoning, Image, ToolCall, Opaque)):
        content: Content = value
    elif isinstance(value, (list, tuple)) and value and all(
        isinstance(item, (Text, Image)) for item in value  # pyright: ignore[reportUnknownVariableType]
    ):
        content = value  # pyright: ignore[reportUnknownVariableType]
    elif value is None:
        content = ""
    else:
        try:
            content = jsontext.encode(msgspec.to_builtins(plain(value))).decode()
        except TypeError:
            content = str(value)
    return tuple(b for b in blocks(content) if not (type(b) is Text and not b.text)) or (
        Text(_NO_OUTPUT),
    )


def _arguments_type(name: str, function: Callable[..., Any]) -> type[msgspec.Struct]:
    try:
        signature = inspect.signature(function)
        hints = get_type_hints(function, include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        msg = f"tool {name!r}: cannot read its signature: {error}"
        raise InvalidTool(msg) from None
    fields: list[Any] = []
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            msg = f"tool {name!r}: *{parameter.name} cannot be described to a model"
            raise InvalidTool(msg)
        hint = hints.get(parameter.name, Any)
        if parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint, _default(parameter.default)))
    return msgspec.defstruct(
        f"{name}_arguments", fields, kw_only=True, forbid_unknown_fields=True
    )


def _default(value: Any) -> Any:
    if isinstance(value, (list, dict, set)):
        return msgspec.field(default_factory=lambda: value.copy())  # pyright: ignore[reportUnknownVariableType,reportUnknownMemberType,reportUnknownLambdaType]
    return value


def _schema(arguments: type[msgspec.Struct], described: Mapping[str, str]) -> dict[str, Any]:
    (_,), components = msgspec.json.schema_components(
        [arguments], ref_template="#/$defs/{name}"
    )
    own = components.pop(arguments.__name__)
    properties = {
        name: {**prop, "description": described[name]} if name in described else prop
        for name, prop in own.get("properties", {}).items()
    }
    schema: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": own.get("required", []),
        "additionalProperties": False,
    }
    if components:
        schema["$defs"] = components
    return schema


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description, and what the `Args:` section says of each parameter."""
    head, _, rest = text.partition("\nArgs:\n")
    described: dict[str, str] = {}
    current: str | None = None
    for line in rest.splitlines():
        if line and not line.startswith(" "):
            break
        entry = re.match(r"\s{2,8}(\w+)(?:\s*\([^)]*\))?:\s*(.*)", line)
        if entry and not line.startswith(" " * 9):
            current = entry[1]
            described[current] = entry[2].strip()
        elif current and line.strip():
            described[current] += f" {line.strip()}"
    lead = re.split(r"\n(?:Returns|Raises|Yields|Examples?):\n", head)[0]
    return " ".join(lead.split()), described
