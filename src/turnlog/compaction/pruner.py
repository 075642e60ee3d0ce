"""Oversized tool results become their head, a marker and their tail: no model is needed for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from turnlog.events import ToolResult
    from turnlog.session import Session


class Pruner(msgspec.Struct, frozen=True):
    """Shortens tool results.

    Attributes:
        limit: characters of text that a result may have and stay as it is.
        head, tail: characters that remain of a longer one.
        keep: how many of the most recent results stay whole, as long as
        whole: they have together at most so many characters.
    """

    limit: int = 8192
    head: int = 4096
    tail: int = 1024
    keep: int = 3
    whole: int = 32_768

    def plan(self, session: Session) -> list[tuple[int, ToolResult]]:
        """What would be replaced by what, oldest first; changes nothing."""
        raise NotImplementedError

    def prune(self, session: Session) -> list[int]:
        """Replace what `plan` says; returns the seqs that were replaced."""
        raise NotImplementedError
