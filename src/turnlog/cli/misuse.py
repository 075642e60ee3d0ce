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

_TEXTS = frozenset({"run", "search", "post", "steer", "recall", "compact", "pin", "deny"})
_KINDS: dict[Any, str] = {int: "a whole number", float: "a number"}


def help_for(app: App, words: Sequence[str]) -> str:
    """Which help says more."""
    command = words[0] if words and words[0] in app and not words[0].startswith("-") else ""
    return f"try turnlog {command} --help" if command else "try turnlog --help"


def said(error: CycloptsError) -> str:
    """What is wrong, without the words of the parser where it has its own."""
    command = next(iter(error.command_chain or ()), "")
    if isinstance(error, UnusedCliTokensError):
        return f"unexpected: {' '.join(error.unused_tokens or ())}{_meant(command)}"
    if type(error) is MissingArgumentError and error.argument is not None:
        name = error.keyword or error.argument.name
        wanted = f"{name}: expected a value" if name.startswith("-") else f"expected {name}"
        return f"{wanted}; turnlog ls lists them" if name == "ID" else wanted
    if isinstance(error, CoercionError) and error.token is not None:
        expected = _expected(error.target_type)
        if expected and error.token.keyword:
            return f"{error.token.keyword}: expected {expected}, got {error.token.value!r}"
    return str(error)


def _meant(command: str) -> str:
    if command in _TEXTS:
        return "; a text of several words needs quotes"
    return "; --show K rebuilds request K" if command == "requests" else ""


def _expected(kind: Any) -> str:
    if get_origin(kind) is Literal:
        *others, last = map(str, get_args(kind))
        return f"{', '.join(others)} or {last}" if others else last
    return _KINDS.get(kind, "")
