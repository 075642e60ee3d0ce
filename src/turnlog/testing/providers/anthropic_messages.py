"""The rules for the messages of an Anthropic request, one by one and in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.testing.providers.pairing import Pairing
from turnlog.testing.providers.report import (
    BOOLEAN,
    FILLED,
    OBJECT,
    STRING,
    Kind,
    as_array,
    as_object,
)
from turnlog.testing.providers.rules import Rule
from turnlog.testing.providers.shapes import NAME, check_keys, check_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from turnlog.testing.providers.report import Report

    Blocks = list[tuple[str, dict[str, object]]]

BLOCK_KEYS: Mapping[str, Sequence[str]] = {
    "text": ("type", "text", "citations", "cache_control"),
    "image": ("type", "source", "cache_control"),
    "document": ("type", "source", "title", "context", "citations", "cache_control"),
    "tool_use": ("type", "id", "name", "input", "cache_control"),
    "tool_result": ("type", "tool_use_id", "content", "is_error", "cache_control"),
    "thinking": ("type", "thinking", "signature"),
    "redacted_thinking": ("type", "data"),
}
THINKING_BLOCKS = ("thinking", "redacted_thinking")
_ASSISTANT_BLOCKS = ("text", *THINKING_BLOCKS, "tool_use")
_RESULT_BLOCKS = ("text", "image", "document")
_USER_BLOCKS = (*_RESULT_BLOCKS, "tool_result")

_SOURCE_FIELDS: Mapping[object, Sequence[str]] = {
    "base64": ("media_type", "data"),
    "text": ("media_type", "data"),
    "url": ("url",),
    "file": ("file_id",),
}
SOURCE = Kind(
    f"a source of type {', '.join(map(str, _SOURCE_FIELDS))} with its fields",
    lambda value: (
        (source := as_object(value)) is not None
        and (fields := _SOURCE_FIELDS.get(source.get("type"))) is not None
        and all(FILLED.fits(source.get(field)) for field in fields)
    ),
)

_FIELDS: Mapping[str, Sequence[tuple[str, Kind, Rule]]] = {
    "image": [("source", SOURCE, Rule.BLOCK_SHAPE)],
    "document": [("source", SOURCE, Rule.BLOCK_SHAPE)],
    "tool_use": [
        ("id", NAME, Rule.CALL_ID),
        ("name", NAME, Rule.TOOL_NAME),
        ("input", OBJECT, Rule.CALL_SHAPE),
    ],
    "thinking": [
        ("thinking", STRING, Rule.BLOCK_SHAPE),
        ("signature", FILLED, Rule.THINKING_SIGNATURE),
    ],
    "redacted_thinking": [("data", FILLED, Rule.REDACTED_DATA)],
}
"""The fields that a block of a type must have; text and results are checked by hand."""


class MessageChecker:
    """Takes the messages in their order and records what is wrong with them.

    The caller closes `pairing` after the last one.
    """

    def __init__(self, report: Report) -> None:
        self.pairing = Pairing(report, ordered=False)
        self._report = report
        self._last_role: object = None
        self._call_ids: set[str] = set()

    def add(self, where: str, value: object) -> None:
        """Check the next message, which stands at `where`."""
        message = as_object(value)
        if message is None:
            self._report.expect(Rule.MESSAGE_SHAPE, where, "an object", value)
            self.pairing.begin(())
            return
        check_keys(self._report, where, message, ("role", "content"))
        role = message.get("role")
        self._role(f"{where}.role", role)
        place, content = f"{where}.content", message.get("content")
        if role == "assistant":
            self._assistant(self._content(place, content, _ASSISTANT_BLOCKS))
        else:
            if self._last_role != "assistant":
                self.pairing.begin(())
            self._results(self._content(place, content, _USER_BLOCKS))
        self._last_role = role

    def _role(self, where: str, role: object) -> None:
        if role not in ("user", "assistant"):
            self._report.expect(Rule.ROLE, where, "user or assistant", role)
        elif self._last_role is None and role != "user":
            self._report.expect(Rule.FIRST_NOT_USER, where, "user", role)
        elif role == self._last_role:
            self._report.add(Rule.ROLES_ALTERNATE, where, f"a second {role} in a row")

    def _assistant(self, blocks: Blocks) -> None:
        calls: list[tuple[str, str]] = []
        for place, block in blocks:
            call_id = block.get("id")
            if block["type"] != "tool_use" or not isinstance(call_id, str) or not call_id:
                continue
            calls.append((call_id, place))
            if call_id in self._call_ids:
                self._report.add(Rule.CALL_ID_REPEATED, f"{place}.id", f"{call_id!r} is taken")
            self._call_ids.add(call_id)
        self.pairing.begin(calls)
        if blocks and blocks[-1][1]["type"] in THINKING_BLOCKS:
            place, block = blocks[-1]
            self._report.expect(Rule.THINKING_LAST, place, "a text or a call", block["type"])

    def _results(self, blocks: Blocks) -> None:
        other = None
        for place, block in blocks:
            if block["type"] != "tool_result":
                other = place
                continue
            if other is not None:
                self._report.add(Rule.RESULT_AFTER_CONTENT, place, f"stands after {other}")
            self.pairing.result(block.get("tool_use_id"), place)

    def _content(self, where: str, content: object, kinds: Sequence[str]) -> Blocks:
        """Check content and return its blocks that may stand here, each with its path."""
        values = as_array(content)
        if content is None or values == []:
            expected = "a text or a non-empty list of blocks"
            self._report.expect(Rule.CONTENT_EMPTY, where, expected, content)
        elif values is None:
            check_text(self._report, where, content, Rule.MESSAGE_SHAPE)
        blocks: Blocks = []
        for index, value in enumerate(values or []):
            place = f"{where}[{index}]"
            block = as_object(value) or {}
            kind = block.get("type")
            if not isinstance(kind, str):
                self._report.expect(Rule.BLOCK_SHAPE, place, "an object with a type", value)
            elif kind not in kinds:
                self._report.expect(Rule.BLOCK_TYPE, place, f"one of {', '.join(kinds)}", kind)
            else:
                self._block(place, kind, block)
                blocks.append((place, block))
        return blocks

    def _block(self, where: str, kind: str, block: dict[str, object]) -> None:
        check_keys(self._report, where, block, BLOCK_KEYS[kind])
        for key, expected, rule in _FIELDS.get(kind, ()):
            self._report.check(expected, rule, f"{where}.{key}", block.get(key))
        if kind == "text":
            check_text(self._report, f"{where}.text", block.get("text"))
        elif kind == "tool_result":
            if "is_error" in block:
                value = block["is_error"]
                self._report.check(BOOLEAN, Rule.BLOCK_SHAPE, f"{where}.is_error", value)
            self._content(f"{where}.content", block.get("content"), _RESULT_BLOCKS)
