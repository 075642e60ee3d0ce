"""What the meter knows of a session: the size of each node, and what was reported of which.

Which nodes a replacement shadows follows from its event alone: it cites them all, and of what it
cites those leave that lie between its ends by anchor (see `surface`). So nothing here keeps an
order, and an event costs what it adds or cites.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from turnlog.compaction.estimate import Size
from turnlog.events import AnyEvent, Replace

BIG: Final = 8192
"""Characters above which a tool result is listed for whoever shortens them."""


class Mark(msgspec.Struct):
    """What a request covered: its header, all nodes up to `seq`, and its `answer`.

    Attributes:
        header: the key of its header.
        fixed: estimated tokens of its header.
        tokens: estimated tokens of the nodes that it had, its answer among them.
        left: those of the nodes that are still on the surface.
        reported: what the provider says that they and the header are, in tokens.
        at: the event that says so; -1 before there is one.
    """

    seq: int
    header: str | None
    fixed: int
    tokens: int
    left: int
    answer: int = -1
    reported: int = 0
    at: int = -1

    def covers(self, seq: int) -> bool:
        """Whether the node was in the request, or is its answer."""
        return seq <= self.seq or seq == self.answer

    def now(self) -> int:
        """What the report still stands for: its share of what is left, in tokens."""
        whole = self.fixed + self.tokens
        if whole == 0:
            return self.reported
        return -(-self.reported * (self.fixed + self.left) // whole)


class MeterState:
    """What the meter knows of a session.

    Attributes:
        nodes: the size of every node of the surface, by seq.
        anchors: the anchor of each of them that replaced others.
        total: the sum of all sizes.
        system: the nodes with system text (imported logs keep it on the surface).
        results: characters of text of each tool result on the surface that was never replaced, in
            surface order.
        big: those with more than `BIG`.
        header, fixed: key and size of the request header in force; the key is None without one.
        model: provider and model of that header.
        windows: tokens of each model's window, as the last `request/context` of it says.
        asked: the request of the open step, until it is answered.
        report: the last request of which the provider said how large it was.
        open_step: the seq of the `step/start` whose step has not ended.
        seq: the last event that was seen; -1 before the first.
    """

    def __init__(self) -> None:
        self.nodes: dict[int, Size] = {}
        self.anchors: dict[int, int] = {}
        self.total = Size()
        self.system: set[int] = set()
        self.results: dict[int, int] = {}
        self.big: dict[int, int] = {}
        self.header: str | None = None
        self.fixed = Size()
        self.model: tuple[str, str] | None = None
        self.windows: dict[tuple[str, str], int] = {}
        self.asked: Mark | None = None
        self.report: Mark | None = None
        self.open_step: int | None = None
        self.seq = -1

    @property
    def window(self) -> int | None:
        """Tokens of the window of the model in force, if the log says."""
        return None if self.model is None else self.windows.get(self.model)

    def shadowed(self, event: AnyEvent, op: Replace) -> list[int]:
        """The nodes that a replacement takes off the surface; costs what it cites.

        Where damage lost one of its ends, it takes all that it cites (semantics.md §6, Damage).
        """
        nodes, anchors = self.nodes, self.anchors
        cited = event.source_event_seqs or ()
        if isinstance(cited, range) and len(cited) > len(nodes):  # it may be far longer
            here = [seq for seq in nodes if seq in cited]
        else:
            here = [seq for seq in cited if seq in nodes]
        low, high = anchors.get(op.start, op.start), anchors.get(op.end, op.end)
        if op.start not in nodes or op.end not in nodes or low > high:
            return here
        return [seq for seq in here if low <= anchors.get(seq, seq) <= high]

    def leave(self, seqs: Sequence[int]) -> None:
        """Take nodes off the surface."""
        tokens, size, media = self.total
        for seq in seqs:
            gone = self.nodes.pop(seq)
            tokens, size, media = tokens - gone.tokens, size - gone.bytes, media - gone.media
            for mark in (self.asked, self.report):
                if mark is not None and mark.covers(seq):
                    mark.left -= gone.tokens
            self.anchors.pop(seq, None)
            self.system.discard(seq)
            self.results.pop(seq, None)
            self.big.pop(seq, None)
        self.total = Size(tokens, size, media)

    def enter(self, seq: int, size: Size) -> None:
        """Put a node on the surface."""
        self.nodes[seq] = size
        self.total = self.total.plus(size)

    def mark(self, seq: int) -> Mark:
        """The mark of a request made now, with all nodes up to `seq`."""
        tokens = self.total.tokens
        return Mark(seq, self.header, self.fixed.tokens, tokens, tokens)


class Kept(msgspec.Struct, rename="camel"):
    """A `MeterState` as it is kept: in columns, seqs as steps from the one before.

    Attributes:
        nodes, tokens, bytes, media: of its nodes.
        results, characters: of its results.
    """

    estimator: str
    seq: int
    nodes: list[int]
    tokens: list[int]
    bytes: list[int]
    media: list[int]
    anchors: list[tuple[int, int]]
    system: list[int]
    results: list[int]
    characters: list[int]
    header: str | None
    fixed: tuple[int, int, int]
    model: tuple[str, str] | None
    windows: list[tuple[str, str, int]]
    asked: Mark | None
    report: Mark | None
    open_step: int | None
