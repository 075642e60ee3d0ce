"""Which nodes a compaction replaces: rules say where the surface may be cut, a range keeps to all.

A rule is asked with falling cuts, from the end of the surface on, so that finding a range costs
what is kept, however long the surface is. Cut `i` lies before node `i`; turns are no barrier.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from turnlog.compaction.port import SOURCE

if TYPE_CHECKING:
    from turnlog.compaction.estimate import Size
    from turnlog.content import Message
    from turnlog.session import Session


class Nodes:
    """The nodes of a surface, with their messages and sizes."""

    def __init__(self, session: Session, sizes: Mapping[int, Size]) -> None:
        self._session = session
        self._sizes = sizes
        self._seqs = session.surface.seqs
        self._length = len(self._seqs)

    def __len__(self) -> int:
        return self._length

    def seq(self, at: int) -> int:
        """The seq of a node."""
        return self._seqs[at]

    def seqs(self, start: int, end: int) -> tuple[int, ...]:
        """The seqs of the nodes from `start` to below `end`."""
        return self._seqs[start:end]

    def anchor(self, at: int) -> int:
        """The first seq that a node stands for."""
        return self._session.surface.anchor(self._seqs[at])

    def message(self, at: int) -> Message | None:
        """The message of a node; None when it is opaque."""
        return self._session.event_at(self._seqs[at]).message

    def tokens(self, at: int) -> int:
        """The estimated tokens of a node."""
        size = self._sizes.get(self._seqs[at])
        return 0 if size is None else size.tokens

    def is_summary(self, at: int) -> bool:
        """Whether a node stands for others, by a compaction."""
        message = self.message(at)
        return message is not None and message.source.kind == SOURCE


class Rule(Protocol):
    """Says where the surface may be cut."""

    def allows(self, cut: int) -> bool:
        """Whether the surface may be cut before node `cut`; asked with falling cuts."""
        ...


class SystemHead:
    """System text at the head of the surface stays; `head` is the first cut behind it."""

    def __init__(self, nodes: Nodes) -> None:
        self.head = 0
        while self.head < len(nodes) and _is_system(nodes.message(self.head)):
            self.head += 1

    def allows(self, cut: int) -> bool:
        """Behind the head."""
        return cut >= self.head


class OpenStep:
    """What belongs to the step that has not ended is not touched."""

    def __init__(self, nodes: Nodes, open_step: int | None) -> None:
        self._nodes = nodes
        self._start = open_step  # the seq of its `step/start`

    def allows(self, cut: int) -> bool:
        """Where nothing before belongs to it."""
        return self._start is None or cut == 0 or self._nodes.anchor(cut - 1) < self._start


def closed(session: Session, open_step: int | None) -> tuple[int, ...]:
    """The nodes that do not belong to the step that has not ended; costs what does.

    Args:
        session: whose they are.
        open_step: the seq of that step's `step/start`.
    """
    surface = session.surface
    seqs = surface.seqs
    end = len(seqs)
    while end and open_step is not None and surface.anchor(seqs[end - 1]) >= open_step:
        end -= 1
    return seqs[:end]


class ToolPairs:
    """A call and its results, those that repair wrote too, are not separated.

    Args:
        nodes: the surface.
        orphans: ids of results whose call is nowhere, as damaged or foreign logs have them.
    """

    def __init__(self, nodes: Nodes, orphans: frozenset[str] = frozenset()) -> None:
        self._nodes = nodes
        self._orphans = orphans
        self._read = len(nodes)
        self.waiting: set[str] = set()  # results whose call lies before

    def allows(self, cut: int) -> bool:
        """Where no result behind has its call before."""
        while self._read > cut:
            self._read -= 1
            self._take(self._nodes.message(self._read))
        return not self.waiting

    def _take(self, message: Message | None) -> None:
        if message is None:
            return
        if message.role == "tool":
            call_id = message.tool_call_id or ""
            if call_id not in self._orphans:
                self.waiting.add(call_id)
        elif self.waiting:
            self.waiting.difference_update([call.id for call in message.tool_calls])


class Range(msgspec.Struct, frozen=True):
    """A range to replace.

    Attributes:
        start, end: its positions on the surface, the end exclusive.
        nodes: the seqs of its nodes, in surface order.
        tokens: what they take together, by estimate.
        kept: what the nodes behind it take.
    """

    start: int
    end: int
    nodes: tuple[int, ...]
    tokens: int
    kept: int


def choose(
    nodes: Nodes, *, total: int, open_step: int | None, retain: int, most: int, least: int
) -> Range | None:
    """The oldest range that may be replaced; None when none is worth it.

    Args:
        nodes: the surface.
        total: tokens of all nodes.
        open_step: the seq of the `step/start` whose step has not ended.
        retain: about how many tokens of the most recent nodes stay verbatim.
        most: more than these must not stay, if that can be helped: they would be too much.
        least: fewer tokens are not worth a summary.
    """
    head = SystemHead(nodes)
    cut, kept = _cut(nodes, head, open_step, retain, most)
    if cut is None:
        return None
    leading = sum(nodes.tokens(at) for at in range(head.head))
    tokens = total - kept - leading
    if tokens < max(least, 1) or kept + tokens <= retain:
        return None
    if cut - head.head == 1 and nodes.is_summary(head.head):
        return None
    return Range(head.head, cut, nodes.seqs(head.head, cut), tokens, kept)


def _cut(
    nodes: Nodes, head: SystemHead, open_step: int | None, retain: int, most: int
) -> tuple[int | None, int]:
    """Where the range ends, and what is kept behind it.

    The cut that keeps most without keeping more than `retain`; where that keeps nothing, rather
    the next one, unless it keeps more than `most`.
    """
    last, best, kept_by_best = len(nodes), None, 0
    for cut, kept in _legal(nodes, head, open_step):
        if kept <= retain:
            best, kept_by_best = cut, kept
            continue
        if (best is None or best == last) and (kept <= most or best is None):
            best, kept_by_best = cut, kept
        break
    return best, kept_by_best


def _legal(nodes: Nodes, head: SystemHead, open_step: int | None) -> Iterator[tuple[int, int]]:
    """The cuts that all rules allow, from the end on, with the tokens of what lies behind."""
    orphans: frozenset[str] = frozenset()
    while True:
        pairs = ToolPairs(nodes, orphans)
        rules: Sequence[Rule] = (head, OpenStep(nodes, open_step), pairs)
        kept, found = 0, False
        for cut in range(len(nodes), head.head, -1):
            if cut < len(nodes):
                kept += nodes.tokens(cut)
            if all(rule.allows(cut) for rule in rules):
                found = True
                yield cut, kept
        if found or not pairs.waiting:
            return
        pairs.allows(0)
        if not pairs.waiting:
            return
        orphans |= pairs.waiting


def parts(nodes: Nodes, whole: Range, limit: int) -> list[tuple[int, int]]:
    """The range in stretches of at most `limit` tokens each, cut where the rules allow it.

    One that cannot be cut any smaller is a stretch of its own, however large.
    """
    pairs = ToolPairs(nodes)
    cuts = [cut for cut in range(whole.end, whole.start, -1) if pairs.allows(cut)]
    if not cuts:
        return [(whole.start, whole.end)]
    found: list[tuple[int, int]] = []
    start, last, tokens, since = whole.start, whole.start, 0, 0
    at = whole.start
    for cut in reversed(cuts):
        since = 0
        while at < cut:
            since += nodes.tokens(at)
            at += 1
        if last > start and tokens + since > limit:
            found.append((start, last))
            start, tokens = last, 0
        tokens += since
        last = cut
    if last > start:
        found.append((start, last))
    return found


def _is_system(message: Message | None) -> bool:
    return message is not None and message.role in ("system", "developer")
