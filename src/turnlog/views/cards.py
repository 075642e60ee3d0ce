"""Tool cards: from a model's call over its approval and its run to its result.

A result goes to the first call of its id, in the last message that used that id, which has none
yet; ids may come again in later messages. What names a call that no message made gets a card of its
own, so that nothing is out of sight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from turnlog.views.nodes import Approval, CallNode, Status, begin

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnlog.content import Message
    from turnlog.events import (
        AnyEvent,
        ApprovalAsked,
        ApprovalDecided,
        AssistantMessage,
        ToolCallStart,
        ToolResult,
    )
    from turnlog.views.board import Board

_UNFINISHED = frozenset({"waiting", "asked", "running", "settled"})


class Cards:
    """The fold of tool calls onto a board."""

    __slots__ = ("_asks", "_board", "_latest", "_open", "_turn")

    def __init__(self, board: Board) -> None:
        self._board = board
        self._open: dict[str, list[str]] = {}  # call id -> its cards without a result
        self._latest: dict[str, str] = {}  # call id -> its last closed card
        self._asks: dict[str, str] = {}  # approval id -> card
        self._turn: list[str] = []  # cards that began since a turn last ended

    def called(self, event: AnyEvent, data: AssistantMessage) -> tuple[str, ...]:
        """A message asks for calls: a card each; returns their ids."""
        message: Message = data.message
        fresh: dict[str, list[str]] = {}
        ids: list[str] = []
        for number, call in enumerate(message.tool_calls):
            card = CallNode(
                **begin(event, "call", part=f".{number}"),
                status="waiting",
                call_id=call.id,
                name=call.name,
                arguments=call.arguments,
                turn=data.turn,
                step=data.step,
            )
            self._add(card)
            fresh.setdefault(call.id, []).append(card.id)
            ids.append(card.id)
        self._open.update(fresh)
        return tuple(ids)

    def started(self, event: AnyEvent, data: ToolCallStart) -> None:
        """A body is about to be dispatched."""
        card = self._find(data.call_id, lambda card: card.started is None)
        if card is None:
            card = self._stray(event, data.call_id, data.name, data.arguments, data.turn, data.step)
        self._put(card, event, started=event.seq)

    def settled(self, event: AnyEvent, data: ToolResult) -> None:
        """A result arrived while an earlier call had none."""
        call_id = data.message.tool_call_id or ""
        card = self._find(call_id, lambda card: card.result is None)
        self._put(
            card or self._stray(event, call_id, "", "", data.turn, data.step), event, result=data
        )

    def resulted(self, event: AnyEvent, data: ToolResult) -> str:
        """A result enters the surface; returns its card's id."""
        call_id = data.message.tool_call_id or ""
        card = self._find(call_id) or self._stray(event, call_id, "", "", data.turn, data.step)
        self._put(card, event, result=data, result_seq=event.seq)
        waiting = self._open[call_id]
        waiting.remove(card.id)
        if not waiting:
            del self._open[call_id]
        self._latest[call_id] = card.id
        return card.id

    def reduced(self, event: AnyEvent, data: ToolResult, card_id: str) -> None:
        """A shorter result took the place of the card's on the surface."""
        card = self._board.get(card_id)
        if isinstance(card, CallNode):
            self._put(card, event, reduced=data)

    def came_late(self, event: AnyEvent, data: ToolResult) -> None:
        """A result came after its call had been closed."""
        call_id = data.message.tool_call_id or ""
        card = self._board.get(self._latest.get(call_id, "")) or self._find(call_id)
        if not isinstance(card, CallNode):
            card = self._stray(event, call_id, "", "", data.turn, data.step)
        self._put(card, event, late=data)

    def asked(self, event: AnyEvent, data: ApprovalAsked) -> None:
        """A call waits for a person."""
        call_id = data.call_id or data.id
        card = self._find(call_id) or self._stray(
            event, call_id, data.tool_name, data.arguments or "", data.turn, None
        )
        self._asks[data.id] = card.id
        self._put(card, event, approval=Approval(data.id, event.seq, data.reason))

    def decided(self, event: AnyEvent, data: ApprovalDecided) -> None:
        """A person answered; without effect on a card that asks something else, or nothing."""
        card = self._board.get(self._asks.pop(data.id, ""))
        if isinstance(card, CallNode) and card.approval is not None and card.approval.id == data.id:
            approval = msgspec.structs.replace(
                card.approval,
                outcome=data.outcome,
                decided=event.seq,
                decision_reason=data.reason,
            )
            self._put(card, event, approval=approval)

    def turn_ended(self) -> None:
        """What has no result by now was left behind."""
        for card_id in self._turn:
            card = self._board.get(card_id)
            if card is not None and card.status in _UNFINISHED:
                self._board.update(msgspec.structs.replace(card, status="interrupted"))
        self._turn = []

    def _find(
        self, call_id: str, lacks: Callable[[CallNode], bool] | None = None
    ) -> CallNode | None:
        """The first open card of that call, if possible one that `lacks` something."""
        found: CallNode | None = None
        for card_id in self._open.get(call_id, ()):
            card = self._board.get(card_id)
            if isinstance(card, CallNode):
                if lacks is None or lacks(card):
                    return card
                found = found or card
        return found

    def _stray(
        self,
        event: AnyEvent,
        call_id: str,
        name: str,
        arguments: str,
        turn: int | None,
        step: int | None,
    ) -> CallNode:
        card = CallNode(
            **begin(event, "call"),
            status="waiting",
            call_id=call_id,
            name=name,
            arguments=arguments,
            turn=turn,
            step=step,
        )
        self._add(card)
        self._open.setdefault(call_id, []).append(card.id)
        return card

    def _add(self, card: CallNode) -> None:
        self._board.add(card)
        self._turn.append(card.id)

    def _put(self, card: CallNode, event: AnyEvent, **fields: Any) -> None:
        card = msgspec.structs.replace(card, last_seq=event.seq, **fields)
        self._board.update(msgspec.structs.replace(card, status=_status(card)))


def _status(card: CallNode) -> Status:
    if card.result_seq is not None and card.result is not None:
        failed = card.result.message.is_error or card.result.error is not None
        return "error" if failed else "done"
    if card.result is not None:
        return "settled"
    if card.approval is not None and card.approval.outcome is None:
        return "asked"
    return "waiting" if card.started is None else "running"
