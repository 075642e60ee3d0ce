"""What an agent loop needs to know of the log before it goes on.

A standing fold: its state is kept in the opening record (`turnlog.opening`), so that a session is
resumed without reading its whole log.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, TypeVar, cast

from turnlog.commands import Approve, Cancel, Command, Deny, Prompt, Steer, decode_command
from turnlog.events import (
    EVENT_TYPES,
    SEED_END,
    AnyEvent,
    ApprovalAsked,
    ApprovalDecided,
    Header,
    InboxAccepted,
    RequestHeader,
    ToolResult,
    TurnEnd,
    TurnStart,
)
from turnlog.jsontext import encode
from turnlog.records import Record, flatten

R = TypeVar("R", bound=Record)

FORCED = "examples"
"""What the header of a forced tool step has besides: worked examples for a model without tools."""
SHUTDOWN = "shutdown"
"""The cause of a turn's end when its process had to leave, and another is to go on with it."""
ACCEPTED_KEPT = 1024
"""How many accepted commands a record names: one is looked up only while it is still queued."""


class LoopState:
    """Facts of the log that decide what the loop does next.

    Attributes:
        turn: the number of the last turn; 0 before the first.
        open: whether that turn has not ended.
        step: the number of its last step.
        header, header_is_ours: the last request header, and whether it follows the last seed end.
        system: the last header's system text, those of forced tool steps left out.
        accepted: the ids of inbox commands that were accepted, in order.
        unfinished: an accepted prompt, or steering, whose message a crash cut off.
        cut_off: how many turns in a row a crash cut off since somebody said something; at least 1
            if the last one ended because its process had to leave; 0 when it ended otherwise.
        cancelled: whether a cancel of the last turn was accepted.
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
        self.system: str | None = None
        self.accepted: dict[str, None] = {}
        self.unfinished: Prompt | Steer | None = None
        self.cut_off = 0
        self.cancelled = False
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
                    state.cancelled = False
            case "turn/end":
                state.open = False
                state.cut_off = self._cut_off(state, event.data)
            case "step/start":
                state.step += 1
            case "request/header":
                data = event.data
                if isinstance(data, RequestHeader):
                    state.header, state.header_is_ours = data.header, True
                    if FORCED not in (data.header.extra or {}):
                        state.system = data.header.system
            case "inbox/accepted":
                self._accepted(state, event.data)
            case "user/message" if event.surface_op == "append":
                state.unfinished, state.cut_off = None, 0
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
                state.accepted, state.unfinished, state.cut_off = {}, None, 0
            case _:
                pass
        return state

    def dump(self, state: LoopState) -> dict[str, Any]:
        """The state as JSON, for `restore`: as much as what comes next can depend on."""
        open_ids = {asked.id for asked in state.asked.values()}
        return {
            "turn": state.turn,
            "open": state.open,
            "step": state.step,
            "header": None
            if state.header is None
            else flatten(RequestHeader(state.header, "resume")),
            "headerIsOurs": state.header_is_ours,
            "system": state.system,
            "accepted": list(islice(reversed(state.accepted), ACCEPTED_KEPT))[::-1],
            "unfinished": None if state.unfinished is None else flatten(state.unfinished),
            "cutOff": state.cut_off,
            "cancelled": state.cancelled,
            "undone": {call: flatten(command) for call, command in state.undone.items()},
            "late": [[seq, flatten(late)] for seq, late in state.late.items()],
            "asked": {call: flatten(asked) for call, asked in state.asked.items()},
            "decided": [flatten(done) for done in state.decided.values() if done.id in open_ids],
        }

    def restore(self, value: Any) -> LoopState:
        """The state that `dump` made JSON of.

        Raises:
            KeyError, TypeError, ValueError: it did not.
        """
        state = LoopState()
        state.turn, state.open, state.step = value["turn"], value["open"], value["step"]
        if value["header"] is not None:
            state.header = _read(RequestHeader, "request/header", value["header"]).header
        state.header_is_ours, state.system = value["headerIsOurs"], value["system"]
        state.accepted = dict.fromkeys(value["accepted"])
        if value["unfinished"] is not None:
            unfinished = decode_command(encode(value["unfinished"]))
            state.unfinished = cast("Prompt | Steer", unfinished)
        state.cut_off, state.cancelled = value["cutOff"], value["cancelled"]
        for call, command in value["undone"].items():
            state.undone[call] = cast("Approve | Deny", decode_command(encode(command)))
        for seq, late in value["late"]:
            state.late[seq] = _read(ToolResult, "tool/late-result", late)
        for call, asked in value["asked"].items():
            state.asked[call] = _read(ApprovalAsked, "approval/asked", asked)
        for one in value["decided"]:
            decided = _read(ApprovalDecided, "approval/decided", one)
            state.decided[decided.id] = decided
        return state

    @staticmethod
    def _accepted(state: LoopState, data: object) -> None:
        """Note a command, and the effect that is due: by the rules by which the loop has it."""
        command = read_command(data) if isinstance(data, InboxAccepted) else None
        if command is None:
            return
        state.accepted[command.id] = None
        if isinstance(command, Prompt):
            if command.text.strip():
                state.unfinished = command
        elif isinstance(command, Steer):
            if state.open and command.turn in (None, state.turn) and command.text.strip():
                state.unfinished = command
        elif isinstance(command, Cancel):
            state.cancelled |= state.open and command.turn in (None, state.turn)
        elif isinstance(command, (Approve, Deny)):
            asked = state.asked.get(command.call_id)
            if asked is not None and asked.id not in state.decided:
                state.undone[command.call_id] = command

    @staticmethod
    def _cut_off(state: LoopState, data: object) -> int:
        """How often in a row, now that a turn has ended."""
        if not isinstance(data, TurnEnd) or state.cancelled:
            return 0
        match data.reason.kind, data.reason.reason:
            case "interrupted", _:
                return state.cut_off + 1
            case "aborted", {"kind": kind} if kind == SHUTDOWN:
                return max(state.cut_off, 1)
            case _:
                return 0

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


def _read(kind: type[R], type_name: str, wire: Any) -> R:
    """A payload that was flattened."""
    read = EVENT_TYPES[type_name].read(encode(wire))
    if not isinstance(read, kind):
        msg = f"expected the payload of {type_name}, got {wire!r}"
        raise TypeError(msg)
    return read
