"""What each replacement cost in prefix cache, in estimated tokens.

A provider may keep what it was sent and take it as read when the next request begins with the same
bytes. A replacement changes the prefix at its first node: what comes behind it has to be read anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from turnlog.compaction.estimate import DEFAULT, Estimator, message_size
from turnlog.events import CompactionPrune, RequestHeader, RequestSent

if TYPE_CHECKING:
    from turnlog.events import AnyEvent
    from turnlog.session import Session
    from turnlog.surface import Replacement

Kind: TypeAlias = Literal["summary", "prune", "other"]
_KINDS: Final[dict[str, Kind]] = {"user/message": "summary", "tool/result": "prune"}
_READ: Final = ("compaction/prune", "request/header", "request/sent")
_ANSWERS: Final = ("assistant/message", "assistant/attempt")


class Replaced(msgspec.Struct, frozen=True):
    """One replacement on the surface, in estimated tokens.

    Attributes:
        seq: the event that took the place.
        kind: a message that stands for others, one that was made shorter, or something else.
        shadowed: the nodes that left; the prefix breaks at the first of them.
        removed: tokens of these nodes.
        added: tokens of what took their place.
        resent: what it cost in prefix cache: tokens behind the break that had been sent before, are
            still there and have to be read anew. None of them twice: what an earlier replacement
            had broken already, and no request has sent since, is not counted again.
    """

    seq: int
    kind: Kind
    shadowed: tuple[int, ...]
    removed: int
    added: int
    resent: int

    @property
    def broke(self) -> int:
        """The node at which the prefix changed."""
        return self.shadowed[0]


def replacements(session: Session, *, estimator: Estimator = DEFAULT) -> tuple[Replaced, ...]:
    """Every replacement of the log, in order, and what each cost in prefix cache.

    Raises:
        NotLoaded: the first events are not in memory.
    """
    prefixes = Prefixes(session, estimator)
    found = (prefixes.read(event) for event in session.events)
    return tuple(each for each in found if each is not None)


class Prefixes:
    """Reads a log once, event by event: O(log n) each, whatever is on the surface.

    Attributes:
        model: whose request was logged last.
    """

    def __init__(self, session: Session, estimator: Estimator = DEFAULT) -> None:
        self.model: str | None = None
        self._asked_as: str | None = None  # the model that the last step asked
        self._estimator = estimator
        self._planned = {each.seq: each for each in session.surface.replacements}
        self._ranks: dict[int, int] = {}  # a node's place among all that were appended
        self._tokens: dict[int, int] = {}  # of the nodes on the surface
        self._appended = 0
        self._sent = 0  # nodes of lower ranks are what a provider may have kept
        self._pruning: set[int] = set()  # what was announced to be made shorter
        self._sums = _Sums(sum(event.surface_op is not None for event in session.events))

    @property
    def total(self) -> int:
        """Tokens of the surface, as far as the log was read."""
        return self._sums.upto(self._appended)

    def read(self, event: AnyEvent) -> Replaced | None:
        """Take the next event; says what it replaced, if it did."""
        if event.type in _ANSWERS and event.surface_op in (None, "append"):
            self._sent = self._appended  # imported logs say of a request only what came back
        if event.surface_op is not None:
            return self._node(event)
        data = event.data if event.type in _READ else None
        if isinstance(data, CompactionPrune):
            self._pruning.update(data.shadowed_seqs)
        elif isinstance(data, RequestHeader):
            self.model = data.header.config.model
        elif isinstance(data, RequestSent):
            self._asked(data)
        return None

    def _asked(self, data: RequestSent) -> None:
        """A request was sent; one that shows a part, or to another model, keeps less."""
        if data.purpose == "step":
            self.model = self._asked_as = data.model
        known = (self.model, self._asked_as)  # a header may name the same one without its provider
        if (self.model is not None and data.model not in known) or data.from_seq is not None:
            return
        last = self._ranks.get(-1 if data.through_seq is None else data.through_seq)
        self._sent = self._appended if last is None else max(self._sent, last + 1)

    def _node(self, event: AnyEvent) -> Replaced | None:
        message = event.message
        tokens = 0 if message is None else message_size(message, self._estimator).tokens
        planned = self._planned.get(event.seq)
        if planned is not None:
            return self._replace(event, planned, tokens)
        self._put(event.seq, self._appended, tokens)
        self._appended += 1
        return None

    def _replace(self, event: AnyEvent, planned: Replacement, tokens: int) -> Replaced:
        removed = 0
        for node in planned.shadowed:
            self._sums.add(self._ranks[node], -self._tokens[node])
            removed += self._tokens.pop(node)
        rank = self._ranks[planned.shadowed[0]]
        resent = self._sums.upto(self._sent) - self._sums.upto(rank) if rank < self._sent else 0
        self._sent = min(self._sent, rank)
        self._put(event.seq, rank, tokens)
        is_pruned = self._pruning.issuperset(planned.shadowed)
        kind = "prune" if is_pruned else _KINDS.get(event.type, "other")
        return Replaced(event.seq, kind, planned.shadowed, removed, tokens, resent)

    def _put(self, seq: int, rank: int, tokens: int) -> None:
        self._ranks[seq] = rank
        self._tokens[seq] = tokens
        self._sums.add(rank, tokens)


class _Sums:
    """Numbers by place, and the sum of those before a place: O(log n) each (a Fenwick tree)."""

    def __init__(self, size: int) -> None:
        self._tree = [0] * (size + 1)

    def add(self, place: int, number: int) -> None:
        """Add to the number at a place."""
        place += 1
        while place < len(self._tree):
            self._tree[place] += number
            place += place & -place

    def upto(self, place: int) -> int:
        """The sum of all numbers before a place."""
        found = 0
        while place > 0:
            found += self._tree[place]
            place &= place - 1
        return found
