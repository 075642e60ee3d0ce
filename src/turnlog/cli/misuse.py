"""What to say of words that make no command: what was expected, what came, where help is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

from cyclopts import (
    App,
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    UnusedCliTokensError,
)

_TEXTS = ("run", "search", "post", "steer", "recall", "compact", "pin", "deny")
_MEANT = {
    **dict.fromkeys(_TEXTS, "a text of several words needs quotes"),
    "cancel": "--turn N names a turn",
    "chat": "a prompt is typed once it runs",
    "fork": "--as ID names the new session",
    "requests": "--show K rebuilds request K",
}
_LISTED = {"ID": "turnlog ls", "CALL": "turnlog approvals", "PIN": "turnlog pin ID"}
_KINDS: dict[Any, str] = {int: "a whole number", float: "a number"}


def help_for(app: App, words: Sequence[str]) -> str:
    """Which help says more."""
    command = words[0] if words and words[0] in app and not words[0].startswith("-") else ""
    return f"try turnlog {command} --help" if command else "try turnlog --help"


def said(error: CycloptsError) -> str:
    """What is wrong, without the words of the parser where it has its own."""
    command = next(iter(error.command_chain or ()), "")
    if isinstance(error, UnusedCliTokensError):
        unexpected = f"unexpected: {' '.join(error.unused_tokens or ())}"
        return f"{unexpected}; {_MEANT[command]}" if command in _MEANT else unexpected
    if type(error) is MissingArgumentError and error.argument is not None:
        name = error.keyword or error.argument.name
        wanted = f"{name}: expected a value" if name.startswith("-") else f"expected {name}"
        return f"{wanted}; {_LISTED[name]} lists them" if name in _LISTED else wanted
    if isinstance(error, CoercionError) and error.token is not None:
        expected = _expected(error.target_type)
        if expected and error.token.keyword:
            return f"{error.token.keyword}: expected {expected}, got {error.token.value!r}"
    return str(error)


def _expected(kind: Any) -> str:
    if get_origin(kind) is Literal:
        *others, last = map(str, get_args(kind))
        return f"{', '.join(others)} or {last}" if others else last
    return _KINDS.get(kind, "")
