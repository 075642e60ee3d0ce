"""The fold from events to UI nodes: `SurfaceProjector`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from turnlog import events as ev
from turnlog.content import Message
from turnlog.errors import ProvenanceError, SeqOutOfOrder, SurfaceError
from turnlog.events import AnyEvent, Replace
from turnlog.surface import Surface
from turnlog.views.board import Board
from turnlog.views.brackets import Brackets
from turnlog.views.bubbles import Bubbles
from turnlog.views.cards import Cards
from turnlog.views.nodes import (
    AnswerNode,
    CallNode,
    DamageNode,
    EndNode,
    MessageNode,
    OpaqueNode,
    PinNode,
    begin,
)
from turnlog.views.transcript import PERSON

if TYPE_CHECKING:
    from turnlog.views.nodes import Change, Node, Status

_Handler: TypeAlias = Callable[[AnyEvent, Any], object]
_END_STATUS: dict[str, Status] = {
    "error": "error",
    "aborted": "interrupted",
    "interrupted": "interrupted",
    "forked": "interrupted",
}


class SurfaceProjector:
    """What a **screen** draws: nodes with stable ids, fed with every event in order.

    Chunks update one unfinished bubble, the final message takes its place under the same id, a
    failed attempt leaves none. Nothing else ever leaves: what a compaction shadowed is still there,
    and marked. A consumer that applies the changes one by one has the same state as `nodes`.

    For what the model sees, see `Session.derive_messages`; for the conversation alone, as messages,
    `Session.extract_chat_messages`. A projector belongs to one thread; `Session.nodes` locks.
    """

    __slots__ = (
        "_board",
        "_brackets",
        "_bubbles",
        "_cards",
        "_handlers",
        "_next",
        "_of",
        "_pins",
        "_reversible",
        "_shadows",
        "_surface",
    )

    def __init__(self) -> None:
        board = self._board = Board()
        bubbles = self._bubbles = Bubbles(board)
        brackets = self._brackets = Brackets(board)
        cards = self._cards = Cards(board)
        self._surface = Surface()
        self._next = 0
        self._of: dict[int, str] = {}  # event that is or was on the surface -> the node it is in
        self._pins: dict[str, str] = {}
        self._shadows: tuple[int, ...] = ()  # what the event at hand takes off the surface
        self._reversible = True
        # A payload that does not have its type's shape is passed over, or opaque on the surface.
        self._handlers: dict[str, tuple[type[Any], _Handler]] = {
            "user/message": (Message, self._user),
            "context/message": (Message, self._context),
            "system/message": (ev.SystemMessage, self._system),
            "developer/message": (ev.SystemMessage, self._system),
            "assistant/message": (ev.AssistantMessage, self._answer),
            "assistant/chunk": (ev.AssistantChunk, bubbles.chunk),
            "assistant/attempt": (ev.AssistantAttempt, bubbles.failed),
            "llm/retry": (ev.LlmRetry, bubbles.drop),
            "tool/call": (ev.ToolCallStart, cards.started),
            "tool/settled": (ev.ToolResult, cards.settled),
            "tool/result": (ev.ToolResult, self._result),
            "tool/late-result": (ev.ToolResult, cards.came_late),
            "approval/asked": (ev.ApprovalAsked, cards.asked),
            "approval/decided": (ev.ApprovalDecided, cards.decided),
            "compaction/start": (ev.CompactionStart, brackets.started),
            "compaction/summary": (ev.CompactionSummary, brackets.summarised),
            "compaction/end": (ev.CompactionEnd, brackets.ended),
            "context/pin": (ev.ContextPin, self._pin),
            "context/unpin": (ev.ContextUnpin, self._unpin),
            "turn/start": (ev.TurnStart, bubbles.drop),
            "turn/end": (ev.TurnEnd, self._turn_end),
            "step/start": (ev.StepStart, bubbles.drop),
            "step/end": (ev.StepEnd, bubbles.drop),
            ev.SEED_END: (ev.EndSeed, brackets.seed_ended),
        }

    # -- reading -------------------------------------------------------------------------------

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, in the order in which they began; copied once after a change: O(nodes)."""
        return self._board.snapshot()

    def __len__(self) -> int:
        return len(self._board)

    def get(self, node_id: str) -> Node | None:
        """The node of that id: O(1)."""
        return self._board.get(node_id)

    def window(self, start: int, stop: int) -> tuple[Node, ...]:
        """The nodes from place `start` to before `stop`: O(nodes asked for)."""
        return self._board.window(start, stop)

    # -- feeding -------------------------------------------------------------------------------

    def project(self, event: AnyEvent) -> list[Change]:
        """Take the next event; returns what changed, in order. O(1), but for what it shadows.

        A gap in the seqs is a stretch that was lost to damage.

        Raises:
            SeqOutOfOrder: this event, or a later one, was taken already.
        """
        if event.seq != self._next:
            self._skip_to(event)
        self._next = event.seq + 1
        if event.surface_op is not None:
            self._enter(event)
        kind, handle = self._handlers.get(event.type, (None, None))
        if handle is not None and type(event.data) is kind:
            handle(event, event.data)
        elif event.surface_op is not None:
            self._show(OpaqueNode(**begin(event, "opaque", self._shadows), event_type=event.type))
        for seq in self._shadows:
            self._shadow(seq, event.seq)
        self._shadows = ()
        return self._board.take_changes()

    def _skip_to(self, event: AnyEvent) -> None:
        first, last = self._next, event.seq - 1
        if last < first:
            msg = f"expected the events from seq {first} on, got {event.seq}"
            raise SeqOutOfOrder(msg, seq=event.seq, value=event.seq)
        fields: dict[str, Any] = {"id": f"n{first}", "seq": first, "last_seq": last}
        fields = begin(event, "damage") | fields
        self._board.add(DamageNode(**fields, status="error"))

    # -- the surface ---------------------------------------------------------------------------

    def _enter(self, event: AnyEvent) -> None:
        surface, planned = self._surface, None
        self._reversible = True
        if isinstance(event.surface_op, Replace):
            try:
                planned = surface.plan(event.seq, event.surface_op, event.source_event_seqs)
            except (SurfaceError, ProvenanceError):
                # The log was checked before: this replacement was placed around damage.
                planned = surface.plan_around_damage(event.seq, event.source_event_seqs)
                self._reversible = False
        if planned is None:
            surface.append(event.seq)
        else:
            surface.apply(planned)
            self._shadows = planned.shadowed

    def _show(self, node: Node) -> None:
        self._board.add(node)
        self._of[node.seq] = node.id

    def _shadow(self, seq: int, by: int) -> None:
        board = self._board
        node = board.get(self._of.get(seq, ""))
        if node is None:
            return
        board.update(msgspec.structs.replace(node, shadowed_by=by))
        if isinstance(node, AnswerNode):
            for card in map(board.get, node.calls):
                if isinstance(card, CallNode) and card.result_seq is None:
                    board.update(msgspec.structs.replace(card, shadowed_by=by))

    # -- messages ------------------------------------------------------------------------------

    def _user(self, event: AnyEvent, message: Message) -> None:
        if isinstance(event.surface_op, Replace):
            self._of[event.seq] = self._brackets.replaced(
                event, message, self._shadows, reversible=self._reversible
            )
            return
        kind = "user" if message.source.kind == PERSON else "context"
        self._show(MessageNode(**begin(event, kind), message=message))

    def _context(self, event: AnyEvent, message: Message) -> None:
        self._show(MessageNode(**begin(event, "context", self._shadows), message=message))

    def _system(self, event: AnyEvent, data: ev.SystemMessage) -> None:
        self._show(MessageNode(**begin(event, "system", self._shadows), message=data.message))

    def _answer(self, event: AnyEvent, data: ev.AssistantMessage) -> None:
        answer = self._bubbles.answer(event, data, self._shadows)
        self._of[event.seq] = answer.id
        if data.message.tool_calls and event.surface_op == "append":
            calls = self._cards.called(event, data)
            self._board.update(msgspec.structs.replace(answer, calls=calls))

    def _result(self, event: AnyEvent, data: ev.ToolResult) -> None:
        if self._shadows:
            card_id = self._of.get(self._shadows[0], "")
            self._cards.reduced(event, data, card_id)
        else:
            card_id = self._cards.resulted(event, data)
        self._of[event.seq] = card_id

    # -- boundaries and pins -------------------------------------------------------------------

    def _turn_end(self, event: AnyEvent, data: ev.TurnEnd) -> None:
        self._bubbles.drop()
        self._cards.turn_ended()
        if data.reason.kind != "completed":
            status = _END_STATUS.get(data.reason.kind, "done")
            node = EndNode(**begin(event, "end"), status=status, turn=data.turn, reason=data.reason)
            self._board.add(node)

    def _pin(self, event: AnyEvent, data: ev.ContextPin) -> None:
        target = self._of.get(data.seq)
        node = PinNode(**begin(event, "pin"), pin_id=data.pin_id, pinned=data.seq, target=target)
        self._board.add(node)
        self._pins[data.pin_id] = node.id

    def _unpin(self, event: AnyEvent, data: ev.ContextUnpin) -> None:
        node = self._board.get(self._pins.pop(data.pin_id, ""))
        if node is not None:
            node = msgspec.structs.replace(node, last_seq=event.seq, status="unpinned")
            self._board.update(node)


class NodesFold:
    """The fold behind `Session.nodes`."""

    def start(self) -> SurfaceProjector:
        """A projector that has seen nothing."""
        return SurfaceProjector()

    def step(self, state: SurfaceProjector, event: AnyEvent, /) -> SurfaceProjector:
        """Feed it the next event."""
        state.project(event)
        return state


NODES = NodesFold()
