"""Shapes that the bodies of several providers share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from turnlog.testing.providers.report import FILLED, OBJECT, STRING, Kind, as_array, as_object
from turnlog.testing.providers.rules import Rule

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from turnlog.testing.providers.report import Report

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

NAME = Kind(
    "1 to 64 letters, digits, underscores or hyphens",
    lambda value: isinstance(value, str) and _NAME.fullmatch(value) is not None,
)
NAMES = Kind(
    "a list of names",
    lambda value: (names := as_array(value)) is not None and all(map(STRING.fits, names)),
)
OBJECT_SCHEMA = Kind(
    "a schema of type object, with no union at its top",
    lambda value: (
        (schema := as_object(value)) is not None
        and schema.get("type") == "object"
        and not schema.keys() & {"oneOf", "anyOf", "allOf"}
    ),
)


def check_keys(
    report: Report, where: str, value: Mapping[str, object], known: Collection[str]
) -> None:
    """Record each key of `value` that is not `known`."""
    for key in value:
        if key not in known:
            path = f"{where}.{key}" if where else str(key)
            report.add(Rule.UNKNOWN_KEY, path, f"expected one of {', '.join(sorted(known))}")


def check_text(report: Report, where: str, text: object, rule: Rule = Rule.BLOCK_SHAPE) -> None:
    """Record a `text` that is no string (as `rule`) or that has nothing but whitespace."""
    if report.check(STRING, rule, where, text) and not str(text).strip():
        report.expect(Rule.TEXT_EMPTY, where, "a text that is not blank", text)


def check_model(report: Report, body: Mapping[str, object]) -> None:
    """Record a missing or empty model."""
    report.check(FILLED, Rule.MODEL, "model", body.get("model"))


def message_list(report: Report, body: Mapping[str, object]) -> list[object]:
    """Return the body's messages; record and return none if it has none."""
    messages = as_array(body.get("messages"))
    if not messages:
        report.expect(Rule.MESSAGES_EMPTY, "messages", "a non-empty list", body.get("messages"))
    return messages or []


class ToolSet:
    """Checks tool definitions one by one and remembers their names."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.names: set[str] = set()

    def add(self, where: str, name: object, description: object) -> None:
        """Check the name, which must be legal and new, and the description, which may be absent."""
        if self._report.check(NAME, Rule.TOOL_NAME, f"{where}.name", name):
            if name in self.names:
                self._report.add(Rule.TOOL_NAME_REPEATED, f"{where}.name", f"{name!r} is taken")
            self.names.add(str(name))
        if description is not None:
            self._report.check(STRING, Rule.TOOLS_SHAPE, f"{where}.description", description)

    def check_schema(self, where: str, value: object) -> None:
        """Check that `value` is the schema of an object."""
        if self._report.check(OBJECT_SCHEMA, Rule.TOOL_SCHEMA, where, value):
            schema = as_object(value) or {}
            for key, kind in (("properties", OBJECT), ("required", NAMES)):
                if key in schema:
                    self._report.check(kind, Rule.TOOL_SCHEMA, f"{where}.{key}", schema[key])
