"""Plausible values for a JSON Schema, without chance: the same schema gives the same values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

# By a word in the property's name; then by type.
_BY_NAME: Final = (
    (("path", "file"), ("notes.txt", "data/report.csv")),
    (("url", "link"), ("https://example.org", "https://example.com/a")),
    (("city", "place", "location", "town"), ("Paris", "Tokyo")),
    (("country",), ("Norway", "Brazil")),
    (("date", "day"), ("2024-05-01", "2025-12-24")),
    (("name", "person", "user"), ("Anna", "Peter")),
    (("text", "sentence", "message", "content"), ("hello world", "good morning")),
    (("word", "query", "term"), ("river", "blue")),
)
_BY_TYPE: Final[Mapping[str, tuple[Any, Any]]] = {
    "string": ("apple", "stone"),
    "integer": (12, 7),
    "number": (2.5, 40),
    "boolean": (True, False),
    "null": (None, None),
}
_DEEPEST: Final = 8


def example_arguments(parameters: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Arguments for a tool; `number` counts its examples, which differ where they can."""
    found = _Examples(parameters, number).of(parameters, "", 0)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


class _Examples:
    def __init__(self, root: Mapping[str, Any], number: int) -> None:
        self._definitions = root.get("$defs", {})
        self._number = number
        self._used: dict[tuple[Any, ...], int] = {}

    def of(self, schema: Mapping[str, Any], name: str, depth: int) -> Any:
        """A value of `schema`, for the property `name`."""
        if depth > _DEEPEST:
            return None
        reference = schema.get("$ref")
        if isinstance(reference, str):
            schema = self._definitions.get(reference.rpartition("/")[2], {})
        if "const" in schema:
            return schema["const"]
        if values := schema.get("examples") or schema.get("enum"):
            return values[self._number % len(values)]
        if forms := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
            return self.of(forms[0], name, depth + 1)
        kinds: Any = schema.get("type", "object" if "properties" in schema else "string")
        kind = str(cast("list[str]", kinds)[0] if isinstance(kinds, list) else kinds)
        return self._of_kind(kind, schema, name, depth)

    def _of_kind(self, kind: str, schema: Mapping[str, Any], name: str, depth: int) -> Any:
        if kind == "object":
            properties: dict[str, Any] = schema.get("properties", {})
            return {key: self.of(inner, key, depth + 1) for key, inner in properties.items()}
        if kind == "array":
            return [self.of(schema.get("items", {}), name, depth + 1)]
        return self._bounded(schema, self._plain(kind, name))

    def _plain(self, kind: str, name: str) -> Any:
        if kind == "string":
            for words, values in _BY_NAME:
                if any(word in name.lower() for word in words):
                    return self._next(values)
        return self._next(_BY_TYPE.get(kind, _BY_TYPE["string"]))

    def _next(self, values: tuple[Any, ...]) -> Any:
        """The next value of this sort, so that `a` and `b` of one call are not the same."""
        used = self._used.get(values, 0)
        self._used[values] = used + 1
        value = values[(self._number + used) % len(values)]
        if type(value) is int:
            return value + 10 * (used // len(values))
        return value

    @staticmethod
    def _bounded(schema: Mapping[str, Any], value: Any) -> Any:
        if type(value) in {int, float}:
            low, high = schema.get("minimum"), schema.get("maximum")
            if isinstance(low, (int, float)) and value < low:
                return low
            if isinstance(high, (int, float)) and value > high:
                return high
        return value
