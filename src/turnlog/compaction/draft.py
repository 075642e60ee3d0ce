"""The message that is to stand for a range: made, judged by its size, and put in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from turnlog import _ambient
from turnlog.compaction.estimate import Estimator, message_size
from turnlog.compaction.pins import carried
from turnlog.compaction.sections import read, write
from turnlog.compaction.structural import outline
from turnlog.compaction.summary import Rejected, shortened, stands_for, text_of, told
from turnlog.content import Failure, Message
from turnlog.errors import CompactionFailed, ProvenanceError, SurfaceError
from turnlog.events import Replace

if TYPE_CHECKING:
    from turnlog.compaction.ranges import Nodes, Range
    from turnlog.session import Session

_CHARACTERS: Final = 4  # a token, for what is cut by characters


class Draft:
    """A message in the making.

    Args:
        session, nodes, chosen: of which surface it will replace which range.
        limit: tokens that the summary may have.
        estimator: estimates tokens.
    """

    def __init__(
        self, session: Session, nodes: Nodes, chosen: Range, limit: int, estimator: Estimator
    ) -> None:
        self._session = session
        self._limit = limit
        self._estimator = estimator
        self.chosen = chosen
        self._first = nodes.anchor(chosen.start)
        self._older = ""
        self._messages: list[tuple[int, Message]] = []
        for at in range(chosen.start, chosen.end):
            message = nodes.message(at)
            if message is None:
                continue
            if nodes.is_summary(at):
                self._older += text_of(message)
            else:
                self._messages.append((nodes.seq(at), message))

    def judged(self, text: str) -> str:
        """What is used of a model's summary.

        Raises:
            Rejected: it is not shorter than what it would stand for.
        """
        chosen = self.chosen
        self._cheaper(self._estimator.text(text))
        used = told(text, self._messages, self._older, chosen.nodes, chosen.tokens)
        return self._capped(used)

    def structural(self) -> str:
        """A summary without a model."""
        characters = min(self._limit * _CHARACTERS, self.chosen.tokens * _CHARACTERS // 2)
        return write(outline(self._messages, read(self._older), characters))

    def message(self, text: str, provider: str | None, model: str | None) -> Message:
        """The message, with what is pinned.

        Args:
            text: the summary.
            provider: of the model that made it; None when none did.
            model: that model.

        Raises:
            Rejected: it is not smaller than what it would stand for.
        """
        nodes = self.chosen.nodes
        maker = f"the model {provider}:{model}" if model else "turnlog, without a model"
        block, source = stands_for(text, self._first, max(nodes), maker, provider, model)
        content = (block, *carried(self._session, nodes))
        message = Message(_ambient.new_id(), "user", content, source)
        self._cheaper(message_size(message, self._estimator).tokens)
        return message

    def replace(self, message: Message) -> int:
        """Put the message in the place of the range; returns its seq.

        Raises:
            CompactionFailed: the range is not as it was any more.
        """
        nodes = self.chosen.nodes
        try:
            event = self._session.append(
                "user/message",
                message,
                surface_op=Replace(nodes[0], nodes[-1]),
                source_event_seqs=nodes,
            )
        except (SurfaceError, ProvenanceError) as error:
            said = f"the range was changed meanwhile: {error}"
            raise CompactionFailed(Failure(said, "range-changed")) from error
        return event.seq

    def _capped(self, text: str) -> str:
        if self._estimator.text(text) <= self._limit:
            return text
        return shortened(text, self._limit * _CHARACTERS)

    def _cheaper(self, tokens: int) -> None:
        if tokens >= self.chosen.tokens:
            said = f"{tokens} tokens would stand for {self.chosen.tokens}: nothing would be gained"
            raise Rejected("not-cheaper", said)
