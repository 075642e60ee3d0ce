"""What an engine must know of the log before it tries: a small fold, so that it survives restarts.

It bounds the attempts of a stretch of the session: after a failure nothing is tried again until the
next request is larger by a twentieth of the window, or goes to a model with another window. One
that was done and left too much is not repeated either until there is something to gain again.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from turnlog.commands import Compact
from turnlog.events import (
    SEED_END,
    AnyEvent,
    CompactionEnd,
    CompactionStart,
    InboxAccepted,
    RequestSent,
)
from turnlog.records import flatten
from turnlog.views.loop import read_command

FINAL: Final = frozenset({"nothing-to-gain", "fixed-too-large", "no-progress"})
"""Failures that come again as long as the session is as it is."""
_TRIES: Final = 3  # how often a command is taken up again whose compaction a crash cut off
_GROWTH: Final = 20  # the part of a window by which a stretch must grow to be tried again


class Wanted(msgspec.Struct):
    """A manual compaction that was accepted from the inbox and is not done."""

    command_id: str
    instruction: str | None
    tries: int = 0


class CompactionState:
    """What the log says of compactions.

    Attributes:
        bracket: the id of the compaction that is open: the lock.
        asked: whether a step's request was sent since the last compaction that was done.
        failed: how many automatic attempts failed in a row.
        code: what the last of them failed of, and `tokens` what it was tried with.
        window: what the model took with which one was tried last.
        after: tokens of the next request after the last one that was done, by estimate.
        wanted: what the inbox asked for and a crash may have cut off.
    """

    def __init__(self) -> None:
        self.bracket: str | None = None
        self.asked = True
        self.failed = 0
        self.code = ""
        self.tokens = 0
        self.window: int | None = None
        self.after: int | None = None
        self.wanted: Wanted | None = None
        self.begun: CompactionStart | None = None

    def may_try(self, attempts: int, tokens: int, window: int) -> bool:
        """Whether an automatic compaction may be tried.

        Args:
            attempts: how many may fail in a row.
            tokens: what the next request is estimated to take.
            window: what its model takes.
        """
        if self.failed == 0 or self.window != window:
            return True
        if tokens >= self.tokens + max(window // _GROWTH, 1):
            return True
        return self.failed < attempts and self.code not in FINAL

    def may_help(self, tokens: int, window: int, limit: int) -> bool:
        """Whether there is something to gain since a compaction that did not get below the limit.

        Args:
            tokens: what the next request is estimated to take.
            window: what its model takes.
            limit: what is too much.
        """
        after = self.after
        if after is None or after <= limit or self.window != window:
            return True
        left = window - after
        return tokens >= after + max(left * 3 // 4 if left > 0 else window // 4, window // _GROWTH)


class CompactionFold:
    """The fold behind `CompactionState`; use it as `session.fold(COMPACTIONS)`."""

    def start(self) -> CompactionState:
        """Before the first event."""
        return CompactionState()

    def step(self, state: CompactionState, event: AnyEvent, /) -> CompactionState:
        """After one more event."""
        data: Any
        match event.type:
            case "compaction/start":
                data = event.data
                if isinstance(data, CompactionStart):
                    state.bracket, state.begun = data.compaction_id, data
            case "compaction/end":
                data = event.data
                if isinstance(data, CompactionEnd):
                    self._ended(state, data)
            case "request/sent" if not state.asked:
                data = event.data
                state.asked = isinstance(data, RequestSent) and data.purpose == "step"
            case "inbox/accepted":
                data = event.data
                command = read_command(data) if isinstance(data, InboxAccepted) else None
                if isinstance(command, Compact):
                    state.wanted = Wanted(command.id, command.instruction)
            case _ if event.type == SEED_END:
                state.bracket = state.begun = state.wanted = None
            case _:
                pass
        return state

    @staticmethod
    def _ended(state: CompactionState, data: CompactionEnd) -> None:
        begun, state.bracket, state.begun = state.begun, None, None
        manual = begun is not None and begun.reason == "manual"
        code = _code(data.error)
        if manual and state.wanted is not None:
            state.wanted.tries += 1
            if code != "interrupted" or state.wanted.tries >= _TRIES:
                state.wanted = None
        if code is None:
            state.failed, state.asked = 0, False
            state.after = data.tokens_after
            state.window = None if begun is None else begun.window
        elif not manual and code != "cancelled":
            grown = begun is None or state.window != begun.window
            state.failed = 1 if grown else state.failed + 1
            state.code = code
            state.tokens = 0 if begun is None else begun.tokens_before or 0
            state.window = None if begun is None else begun.window

    def dump(self, state: CompactionState) -> dict[str, Any]:
        """The state as JSON, for `restore`."""
        wanted = state.wanted
        return {
            "bracket": state.bracket,
            "begun": None if state.begun is None else flatten(state.begun),
            "asked": state.asked,
            "failed": state.failed,
            "code": state.code,
            "tokens": state.tokens,
            "window": state.window,
            "after": state.after,
            "wanted": None if wanted is None else list(msgspec.structs.astuple(wanted)),
        }

    def restore(self, value: Any) -> CompactionState:
        """The state that `dump` made JSON of.

        Raises:
            KeyError, TypeError, ValueError: it did not.
        """
        state = CompactionState()
        state.bracket, state.asked = value["bracket"], value["asked"]
        state.failed, state.code = value["failed"], value["code"]
        state.tokens, state.window, state.after = value["tokens"], value["window"], value["after"]
        begun, wanted = value["begun"], value["wanted"]
        if begun is not None:
            state.begun = CompactionStart(
                begun["compactionId"],
                reason=begun.get("reason"),
                tokens_before=begun.get("tokensBefore"),
                window=begun.get("window"),
            )
        state.wanted = None if wanted is None else Wanted(*wanted)
        return state


COMPACTIONS: Final = CompactionFold()


def _code(error: Any) -> str | None:
    """One word for an error as it was logged; None when there is none."""
    if error is None or isinstance(error, str):
        return error
    code = error.get("code") if isinstance(error, dict) else None  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
    return code if isinstance(code, str) else "unknown"
