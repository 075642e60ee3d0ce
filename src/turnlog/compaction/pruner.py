"""Oversized tool results become their head, a marker and their tail: no model is needed for it.

A result is shortened by one `tool/result` that replaces exactly its node and differs in nothing but
content (semantics.md §2, §5). The original stays in the log: `session.event_at` reads it, and the
marker says under which seq.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from turnlog.compaction.graphemes import cut_after, cut_before
from turnlog.compaction.meter import METER
from turnlog.compaction.pins import pinned_seqs
from turnlog.compaction.tally import BIG
from turnlog.content import Text, is_empty
from turnlog.errors import InvalidOption
from turnlog.events import CompactionPrune, Replace, ToolResult

if TYPE_CHECKING:
    from turnlog.compaction.tally import MeterState
    from turnlog.content import Block
    from turnlog.session import Session


class Pruner(msgspec.Struct, frozen=True):
    """Shortens tool results that no one is about to need whole.

    Never shortened are results of a step that has not ended, those that were replaced before, and
    those that are pinned.

    Attributes:
        limit: a result with more characters of text than this is shortened.
        head, tail: how many of its first and last characters remain, or a few less: what is read
            as one character is not cut.
        keep: how many of the most recent results stay whole,
        whole: as long as they have no more characters together than this. A result that is larger
            by itself is shortened however recent it is, or it would never fit.
    """

    limit: int = 8192
    head: int = 4096
    tail: int = 1024
    keep: int = 3
    whole: int = 32_768

    def __post_init__(self) -> None:
        for option in self.__struct_fields__:
            value = getattr(self, option)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise InvalidOption(f"pruner.{option}", "a whole number, 0 or more", value)

    def plan(self, session: Session) -> list[tuple[int, ToolResult]]:
        """Which nodes would be replaced by what, oldest first; changes nothing.

        Costs what was appended since the last call, and the oversized results still there.
        """
        state = session.fold(METER)
        whole = self._recent(state) | pinned_seqs(session)
        planned: list[tuple[int, ToolResult]] = []
        for seq, characters in list((state.big if self.limit >= BIG else state.results).items()):
            if characters <= self.limit or seq in whole:
                continue
            if state.open_step is not None and seq > state.open_step:
                continue
            result = session.event_at(seq).data
            shorter = self.shortened(seq, result) if isinstance(result, ToolResult) else None
            if shorter is not None:
                planned.append((seq, shorter))
        return planned

    def prune(self, session: Session) -> list[int]:
        """Do what `plan` says: a `compaction/prune` and a replacement for each result.

        Returns:
            The seqs that were replaced.

        Raises:
            ReadOnly, QueueFull: the session takes no more; those before were replaced.
        """
        planned = self.plan(session)
        for seq, result in planned:
            session.append("compaction/prune", CompactionPrune((seq,)))
            session.append(
                "tool/result", result, surface_op=Replace(seq, seq), source_event_seqs=[seq]
            )
        return [seq for seq, _ in planned]

    def shortened(self, seq: int, result: ToolResult) -> ToolResult | None:
        """The result with the middle of its text left out; None when that makes it no shorter.

        Its text blocks count as one text; other blocks stay where they are.
        """
        content = result.message.content
        text = "".join(block.text for block in content if isinstance(block, Text))
        first = cut_before(text, min(self.head, len(text)))
        last = cut_after(text, max(len(text) - self.tail, 0))
        marker = (
            f"\n[{last - first} characters are left out here. "
            f"The whole result is event {seq} of this session: recall it by that number.]\n"
        )
        if len(marker) >= last - first:
            return None
        kept = tuple(_without(content, first, last, marker))
        return replace(result, message=replace(result.message, content=kept))

    def _recent(self, state: MeterState) -> set[int]:
        """The most recent results that stay whole."""
        recent: set[int] = set()
        left = self.whole
        for seq, characters in islice(reversed(state.results.items()), self.keep):
            if characters <= left:
                recent.add(seq)
                left -= characters
        return recent


def _without(content: tuple[Block, ...], first: int, last: int, marker: str) -> list[Block]:
    """The blocks, with the marker for the characters of their text from `first` up to `last`."""
    kept: list[Block] = []
    start = 0
    for block in content:
        if not isinstance(block, Text):
            if not is_empty(block):  # as imported logs may have it: it would be refused here
                kept.append(block)
            continue
        end = start + len(block.text)
        text = block.text[: max(first - start, 0)]
        if start <= first < end:
            text += marker
        text += block.text[max(last - start, 0) :]
        if text:
            kept.append(replace(block, text=text))
        start = end
    return kept
