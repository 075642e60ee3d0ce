"""Tools: plain or async Python functions that a model may call.

The JSON Schema comes from the type hints, the descriptions from the docstring (its `Args:` section
for the parameters). Arguments are checked against the hints before the body runs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeGuard, cast, get_type_hints

import msgspec

from turnlog import jsontext
from turnlog.content import Block, Content, Image, Text, blocks, is_blank
from turnlog.errors import TurnlogError
from turnlog.events import ToolSchema
from turnlog.records import plain

if TYPE_CHECKING:
    from turnlog.session import Session

Approve: TypeAlias = (
    Literal["always", "ask", "never"]
    | Callable[[dict[str, Any]], "str | bool | Awaitable[str | bool]"]
)
calling: Final[ContextVar[Session]] = ContextVar("calling")
"""The session whose call is running, for a body that needs it."""

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
        is_async: runs here; a plain function runs in a thread, with the caller's context variables.
        exclusive: never runs beside another tool of the same step.
        approve: "always" runs it, "ask" asks a person, "never" refuses; or a function of the
            arguments that returns one of these (or True for always, False for never).
        examples: arguments of worked calls, for models that learn from examples.
    """

    def __init__(
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
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object that is called
        )
        self.arguments = _arguments_type(self.name, function)
        self.schema = ToolSchema(
            self.name, self.description, _schema(self.name, self.arguments, parameters)
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
    """What a body returned, as content: text and blocks as they are, anything else as JSON.

    Bytes are text, if they are UTF-8. What has no JSON is shown as `str` shows it: the body has
    run, and a result that is not pretty is no error.
    """
    if isinstance(value, (str, Text, Image)):
        content: Content = value
    elif _is_content(value):
        content = value
    elif value is None:
        content = ""
    else:
        content = _shown(value)
    said = tuple(block for block in blocks(content) if not is_blank(block))
    return said or (Text(_NO_OUTPUT),)


def _is_content(value: Any) -> TypeGuard[Sequence[str | Block]]:
    """Whether it is a list with a block in it, and nothing but text and blocks."""
    if not isinstance(value, (list, tuple)):
        return False
    items = cast("Sequence[Any]", value)
    return any(isinstance(item, (Text, Image)) for item in items) and all(
        isinstance(item, (str, Text, Image)) for item in items
    )


def _shown(value: Any) -> str:
    try:
        if isinstance(value, (bytes, bytearray)):
            return value.decode()
        return jsontext.admit(msgspec.to_builtins(plain(value), str_keys=True)).decode()
    except Exception:  # noqa: BLE001 - it may be anything
        return str(value)


def _arguments_type(name: str, function: Callable[..., Any]) -> type[msgspec.Struct]:
    try:
        signature = inspect.signature(function)
        hints = _hints(function)
    except (TypeError, ValueError, NameError) as error:
        msg = f"tool {name!r}: cannot read its signature: {error}"
        raise InvalidTool(msg) from None
    fields: list[Any] = []
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            msg = f"tool {name!r}: *{parameter.name} cannot be described to a model"
            raise InvalidTool(msg)
        if parameter.kind is parameter.POSITIONAL_ONLY:
            msg = f"tool {name!r}: {parameter.name} is positional only, a model names arguments"
            raise InvalidTool(msg)
        hint = hints.get(parameter.name, Any)
        if parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint, _default(parameter.default)))
    return msgspec.defstruct(f"{name}_arguments", fields, kw_only=True, forbid_unknown_fields=True)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The hints of the parameters; what the return type is does not matter, nor if it is there."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.isroutine(function) and not inspect.isclass(function):
        function = type(function).__call__
    scope = SimpleNamespace(__annotations__=dict(getattr(function, "__annotations__", {})))
    scope.__annotations__.pop("return", None)
    return get_type_hints(
        scope, globalns=getattr(function, "__globals__", None), include_extras=True
    )


def _default(value: Any) -> Any:
    if isinstance(value, (list, dict, set)):
        copy = cast("Callable[[], Any]", value.copy)  # pyright: ignore[reportUnknownMemberType]
        return msgspec.field(default_factory=copy)
    return value


def _schema(
    name: str, arguments: type[msgspec.Struct], described: Mapping[str, str]
) -> dict[str, Any]:
    try:
        (_,), components = msgspec.json.schema_components(
            [arguments], ref_template="#/$defs/{name}"
        )
    except TypeError as error:
        msg = f"tool {name!r}: a parameter has no JSON form: {error}"
        raise InvalidTool(msg) from None
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
    current = ""
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
