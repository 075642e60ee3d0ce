"""Approvals: what a person is asked before a tool runs, and how a terminal asks."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio.to_thread
import msgspec


class ApprovalRequest(msgspec.Struct, frozen=True):
    """One call that waits for a person.

    Attributes:
        id: the approval's id in the log.
        call_id, tool_name: which call of which tool.
        arguments: the raw string that the model produced.
    """

    id: str
    call_id: str
    tool_name: str
    arguments: str


Approver: TypeAlias = Callable[[ApprovalRequest], "bool | Awaitable[bool]"]


async def ask_on_terminal(request: ApprovalRequest) -> bool:
    """Ask on the terminal; anything but y or yes denies. Without a terminal, denies."""
    if not sys.stdin.isatty():
        return False
    question = f"Run {request.tool_name}({printable(request.arguments)})? [y/N] "
    answer = await anyio.to_thread.run_sync(input, question, abandon_on_cancel=True)
    return answer.strip().lower() in ("y", "yes")


def printable(text: str) -> str:
    """The text without anything that would steer a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
