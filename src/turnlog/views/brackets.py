"""Compaction markers: a bracket that runs, and the message that took the place of what it read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from turnlog.views.nodes import CompactionNode, begin

if TYPE_CHECKING:
    from turnlog.content import Message
    from turnlog.events import AnyEvent, CompactionEnd, CompactionStart, CompactionSummary, EndSeed
    from turnlog.views.board import Board
    from turnlog.views.nodes import Status


class Brackets:
    """The fold of compactions onto a board; at most one is running."""

    __slots__ = ("_board", "_open")

    def __init__(self, board: Board) -> None:
        self._board = board
        self._open: str | None = None

    def started(self, event: AnyEvent, data: CompactionStart) -> None:
        """A bracket opens; one that was never closed is dead."""
        self._close("interrupted")
        node = CompactionNode(
            **begin(event, "compaction"),
            status="running",
            before=event.seq - 1,
            compaction_id=data.compaction_id,
        )
        self._board.add(node)
        self._open = node.id

    def summarised(self, event: AnyEvent, data: CompactionSummary) -> None:
        """The model summarised: what that took."""
        node = self._node()
        if node is not None:
            self._board.update(msgspec.structs.replace(node, last_seq=event.seq, usage=data.usage))

    def replaced(
        self, event: AnyEvent, message: Message, shadows: tuple[int, ...], *, reversible: bool
    ) -> str:
        """A user's message takes the place of others, in a bracket or by hand; returns its node."""
        node = self._node()
        if node is not None and node.message is None:
            node = msgspec.structs.replace(
                node,
                last_seq=event.seq,
                shadows=shadows,
                message=message,
                reversible=reversible,
            )
            self._board.update(node)
            return node.id
        node = CompactionNode(
            **begin(event, "compaction", shadows),
            before=event.seq - 1,
            message=message,
            reversible=reversible,
        )
        self._board.add(node)
        return node.id

    def ended(self, event: AnyEvent, data: CompactionEnd) -> None:
        """The bracket closes, with an error if nothing came of it."""
        node = self._node()
        if node is not None:
            usage = node.usage if data.usage is None else data.usage
            self._board.update(
                msgspec.structs.replace(node, last_seq=event.seq, error=data.error, usage=usage)
            )
            cut_off = data.error in ("interrupted", "forked")  # what repair writes
            failed: Status = "interrupted" if cut_off else "error"
            self._close("done" if data.error is None else failed)

    def seed_ended(self, _event: AnyEvent, _data: EndSeed) -> None:
        """A bracket that was inherited or imported open is dead."""
        self._close("interrupted")

    def _node(self) -> CompactionNode | None:
        node = None if self._open is None else self._board.get(self._open)
        return node if isinstance(node, CompactionNode) else None

    def _close(self, status: Status) -> None:
        node = self._node()
        if node is not None:
            # Once its message is on the surface it has happened, however the bracket was closed.
            status = status if node.message is None else "done"
            self._board.update(msgspec.structs.replace(node, status=status))
        self._open = None
