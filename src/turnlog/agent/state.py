"""What the loop needs to know of the log before it goes on: small folds, rebuilt from events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnlog.commands import Approve, Command, Deny, Prompt, Steer, decode_command
from turnlog.content import Message, ToolCall
from turnlog.events import (
    SEED_END,
    AnyEvent,
    ApprovalAsked,
    ApprovalDecided,
    AssistantMessage,
    Header,
    InboxAccepted,
    RequestHeader,
    ToolResult,
    TurnStart,
)
from turnlog.jsontext import encode
from turnlog.session import Session

LATE = "late-result"


class LoopState:
    """Facts of the log that decide what the loop does next.

    Attributes:
        turn: the number of the last turn; 0 before the first.
        open: whether that turn has not ended.
        step: the number of its last step.
        header, header_is_ours: the last request header, and whether it follows the last seed end.
        accepted: the ids of inbox commands that were accepted.
        unfinished: an accepted prompt, or steering, whose message a crash cut off.
        undone: accepted decisions that a crash cut off before they were logged, by call id.
        late: late results that have not entered as context yet, by seq.
        asked: what was asked of open calls since the last seed end, by call id.
        decided: what was decided since then, by approval id.
    """

    def __init__(self) -> None:
        self.turn = 0
        self.open = False
        self.step = 0
        self.header: Header | None = None
        self.header_is_ours = False
        self.accepted: set[str] = set()
        self.unfinished: Prompt | Steer | None = None
        self.undone: dict[str, Approve | Deny] = {}
        self.late: dict[int, ToolResult] = {}
        self.asked: dict[str, ApprovalAsked] = {}
        self.decided: dict[str, ApprovalDecided] = {}

    def decision(self, call_id: str) -> ApprovalDecided | None:
        """What was decided of a call, if it was asked and decided."""
        asked = self.asked.get(call_id)
        return None if asked is None else self.decided.get(asked.id)


class LoopFold:
    """The fold behind `LoopState`; use it as `session.fold(loop_fold)`."""

    def start(self) -> LoopState:
        """Before the first event."""
        return LoopState()

    def step(self, state: LoopState, event: AnyEvent, /) -> LoopState:  # noqa: C901, PLR0912 - one branch a type
        """After one more event."""
        data: Any
        match event.type:
            case "turn/start":
                data = event.data
                if isinstance(data, TurnStart):
                    state.turn, state.open, state.step = data.turn, True, 0
            case "turn/end":
                state.open = False
            case "step/start":
                state.step += 1
            case "request/header":
                data = event.data
                if isinstance(data, RequestHeader):
                    state.header, state.header_is_ours = data.header, True
            case "inbox/accepted":
                self._accepted(state, event.data)
            case "user/message":
                state.unfinished = None
            case "tool/result" if event.surface_op == "append":
                self._answered(state, event.data)
            case "tool/late-result":
                data = event.data
                if isinstance(data, ToolResult):
                    state.late[event.seq] = data
            case "context/message":
                for seq in event.source_event_seqs or ():
                    state.late.pop(seq, None)
            case "approval/asked":
                data = event.data
                if isinstance(data, ApprovalAsked) and data.call_id is not None:
                    state.asked[data.call_id] = data
            case "approval/decided":
                data = event.data
                if isinstance(data, ApprovalDecided):
                    self._decided(state, data)
            case _ if event.type == SEED_END:
                # Nothing before it authorises or executes anything.
                state.header_is_ours = False
                state.asked, state.decided, state.undone = {}, {}, {}
                state.accepted, state.unfinished = set(), None
            case _:
                pass
        return state

    @staticmethod
    def _accepted(state: LoopState, data: object) -> None:
        """Note a command, and the effect that is due: by the rules by which the loop has it."""
        command = read_command(data) if isinstance(data, InboxAccepted) else None
        if command is None:
            return
        state.accepted.add(command.id)
        if isinstance(command, Prompt):
            if command.text.strip():
                state.unfinished = command
        elif isinstance(command, Steer):
            if state.open and command.turn in (None, state.turn) and command.text.strip():
                state.unfinished = command
        elif isinstance(command, (Approve, Deny)):
            asked = state.asked.get(command.call_id)
            if asked is not None and asked.id not in state.decided:
                state.undone[command.call_id] = command

    @staticmethod
    def _answered(state: LoopState, data: object) -> None:
        """A closed call's id may be used again, by another call."""
        if isinstance(data, ToolResult):
            call_id = data.message.tool_call_id or ""
            state.asked.pop(call_id, None)
            state.undone.pop(call_id, None)

    @staticmethod
    def _decided(state: LoopState, data: ApprovalDecided) -> None:
        state.decided.setdefault(data.id, data)
        for call_id, asked in state.asked.items():
            if asked.id == data.id:
                state.undone.pop(call_id, None)


loop_fold = LoopFold()


def read_command(data: InboxAccepted) -> Command | None:
    """The command that was accepted, if we know its kind."""
    try:
        return decode_command(encode(data.command))
    except ValueError:
        return None


def open_calls(session: Session) -> list[ToolCall]:
    """The calls of the open step's answer that have no result yet, in order."""
    answered: list[str] = []
    for event in reversed(session.events):
        if event.type in ("turn/start", "step/start", "step/end"):
            return []
        if event.type == "tool/result" and isinstance(event.data, ToolResult):
            answered.append(event.data.message.tool_call_id or "")
        elif event.type == "assistant/message" and isinstance(event.data, AssistantMessage):
            return [call for call in event.data.message.tool_calls if call.id not in answered]
    return []


def system_node(session: Session) -> tuple[int, Message] | None:
    """The surface's first `system/message` and its seq; imported logs keep system text there."""
    for seq in session.surface.seqs:
        event = session.event_at(seq)
        if event.type == "system/message" and event.message is not None:
            return seq, event.message
        if event.type in ("assistant/message", "tool/result"):
            return None
    return None


def seqs_range(seqs: Sequence[int]) -> Sequence[int]:
    """Seqs as a range when nothing came between."""
    if seqs and seqs[-1] - seqs[0] == len(seqs) - 1:
        return range(seqs[0], seqs[-1] + 1)
    return seqs
