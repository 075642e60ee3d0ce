"""Answers: chunks update one unfinished bubble, the final message takes its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from turnlog.views.nodes import AnswerNode, Partial, begin

if TYPE_CHECKING:
    from turnlog.events import AnyEvent, AssistantAttempt, AssistantChunk, AssistantMessage
    from turnlog.views.board import Board


class Bubbles:
    """The fold of a model's answers onto a board; at most one is unfinished."""

    __slots__ = ("_attempt", "_board", "_open")

    def __init__(self, board: Board) -> None:
        self._board = board
        self._open: str | None = None  # the unfinished answer
        self._attempt = (0, 0, 0)  # its turn, step and attempt

    def chunk(self, event: AnyEvent, data: AssistantChunk) -> None:
        """One more piece: O(1). Of another attempt, it means that the one before is over."""
        attempt = (data.turn, data.step, data.attempt)
        bubble = self._bubble()
        if bubble is not None and bubble.stream is not None and attempt == self._attempt:
            grown = bubble.stream.grown(data.chunk)
            bubble = msgspec.structs.replace(bubble, last_seq=event.seq, stream=grown)
            self._board.update(bubble, data.chunk)
            return
        self.drop()
        bubble = AnswerNode(
            **begin(event, "assistant"),
            status="streaming",
            turn=data.turn,
            step=data.step,
            attempt=data.attempt,
            stream=Partial([data.chunk], 1),
        )
        self._board.add(bubble)
        self._open, self._attempt = bubble.id, attempt

    def answer(
        self, event: AnyEvent, data: AssistantMessage, shadows: tuple[int, ...]
    ) -> AnswerNode:
        """The final message: in the place of its bubble, under the same id, if it had one."""
        answer = AnswerNode(
            **begin(event, "assistant", shadows),
            status="interrupted" if data.interrupted else "done",
            turn=data.turn,
            step=data.step,
            message=data.message,
            usage=data.usage,
        )
        bubble = self._bubble()
        if bubble is None or not self._is_of(event, data, bubble):
            self._board.add(answer)
            return answer
        answer = msgspec.structs.replace(
            answer, id=bubble.id, seq=bubble.seq, time=bubble.time, attempt=bubble.attempt
        )
        self._board.update(answer)
        self._open = None
        return answer

    def failed(self, _event: AnyEvent, data: AssistantAttempt) -> None:
        """An attempt settled without a message."""
        if (data.turn, data.step, data.attempt) == self._attempt:
            self.drop()

    def drop(self, _event: AnyEvent | None = None, _data: object = None) -> None:
        """Whatever was unfinished is over: a foreign log does not always say that it failed."""
        if self._open is not None:
            self._board.remove(self._open)
            self._open = None

    def _bubble(self) -> AnswerNode | None:
        node = None if self._open is None else self._board.get(self._open)
        return node if isinstance(node, AnswerNode) else None

    def _is_of(self, event: AnyEvent, data: AssistantMessage, bubble: AnswerNode) -> bool:
        """Whether the message is what became of the bubble."""
        if event.surface_op != "append":
            return False
        same_step = data.turn is None or (data.turn, data.step) == self._attempt[:2]
        return same_step or bubble.seq in (event.source_event_seqs or ())
