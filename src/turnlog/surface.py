"""The surface: which events now make up the model's history, in order.

Two operations only: append puts an event's seq at the tail; replace takes out the nodes from
`start` to `end`, by position and inclusive, and puts the event's seq in their place. Whatever was
shadowed stays in the log.

The order is kept once, as an array of seqs. That array is not sorted by seq once something was
replaced, but it stays sorted by *anchor*, the first seq that a node transitively stands for, so a
bisection finds any node; the anchors of replacement nodes are the only extra state. Each
replacement is remembered with what it shadowed, so that an earlier surface is found by undoing
backwards.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import overload

from turnlog.errors import NotOnSurface, ReplaceOutOfOrder, UncitedNodes
from turnlog.events import Replace


class Seqs(Sequence[int]):
    """A read-only, live view of a list of seqs; equal to any sequence of the same seqs."""

    __slots__ = ("_seqs",)

    def __init__(self, seqs: list[int]) -> None:
        self._seqs = seqs

    def __len__(self) -> int:
        return len(self._seqs)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        found = self._seqs[index]
        return tuple(found) if isinstance(found, list) else found

    def __iter__(self) -> Iterator[int]:
        return iter(self._seqs)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Seqs):
            return self._seqs == other._seqs
        if isinstance(other, (list, tuple, range)):
            return self._seqs == list(other)  # pyright: ignore[reportUnknownArgumentType]
        return NotImplemented

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return f"Seqs({self._seqs!r})"


class Replacement:
    """One replacement that happened.

    Attributes:
        seq: the event that took the place.
        position: where it stands on the surface it made.
        shadowed: the nodes that left, in surface order.
        anchor: the anchor that it inherited from the first of them.
        scattered: when damage was worked around, the positions that the shadowed nodes had
            (they need not be neighbours then); else None.
    """

    __slots__ = ("anchor", "position", "scattered", "seq", "shadowed")

    def __init__(
        self,
        seq: int,
        position: int,
        shadowed: tuple[int, ...],
        anchor: int,
        scattered: tuple[int, ...] | None = None,
    ) -> None:
        self.seq = seq
        self.position = position
        self.shadowed = shadowed
        self.anchor = anchor
        self.scattered = scattered


class Surface:
    """The ordered nodes of one session. Mutated only by `apply`, through the session's log."""

    __slots__ = ("_anchors", "_earlier", "_replacements", "_seqs", "_shadowed_by", "append", "seqs")

    def __init__(self) -> None:
        self._seqs: list[int] = []
        self._anchors: dict[int, int] = {}  # of replacement nodes only
        self._replacements: list[Replacement] = []
        self._shadowed_by: dict[int, Replacement] = {}
        self._earlier = 0  # replacements that are not remembered
        self.seqs = Seqs(self._seqs)
        #: Puts a node at the tail; the list's own, because it runs for every message.
        self.append: Callable[[int], None] = self._seqs.append

    def resume(self, seqs: Sequence[int], anchors: Mapping[int, int], generation: int) -> None:
        """Begin with an order that was found before, by replacements nobody remembers here."""
        self._seqs[:] = seqs
        self._anchors.update(anchors)
        self._earlier = generation

    # -- reading -------------------------------------------------------------------------------

    @property
    def replace_generation(self) -> int:
        """How many replacements there were."""
        return self._earlier + len(self._replacements)

    @property
    def replacements(self) -> Sequence[Replacement]:
        """The replacements since the surface began, oldest first. Do not change."""
        return self._replacements

    @property
    def anchors(self) -> Mapping[int, int]:
        """The anchors of the nodes that are replacements. Do not change."""
        return self._anchors

    def anchor(self, seq: int) -> int:
        """The first seq that the node `seq` transitively stands for."""
        return self._anchors.get(seq, seq)

    def position(self, seq: int) -> int | None:
        """Where the node stands now, or None when it is not on the surface."""
        seqs = self._seqs
        anchors = self._anchors
        if anchors:
            at = bisect_left(seqs, anchors.get(seq, seq), key=lambda s: anchors.get(s, s))
        else:
            at = bisect_left(seqs, seq)
        return at if at < len(seqs) and seqs[at] == seq else None

    def between(self, start: int, end: int) -> tuple[int, ...] | None:
        """The nodes from `start` to `end`, inclusive; None when they are no such stretch."""
        first, last = self.position(start), self.position(end)
        if first is None or last is None or first > last:
            return None
        return tuple(self._seqs[first : last + 1])

    def __contains__(self, seq: int) -> bool:
        return self.position(seq) is not None

    def __len__(self) -> int:
        return len(self._seqs)

    def at(self, seq: int) -> list[int]:
        """The surface as it was after event `seq`: a new list."""
        seqs = list(self._seqs)
        for past in reversed(self._replacements):
            if past.seq <= seq:
                break
            undo(seqs, past)
        del seqs[bisect_left(seqs, seq + 1, key=self.anchor) :]  # what was appended later
        return seqs

    # -- planning and applying -----------------------------------------------------------------

    def plan(self, seq: int, op: Replace, cited: Sequence[int] | None) -> Replacement:
        """What replacing would do; changes nothing.

        Raises:
            NotOnSurface, ReplaceOutOfOrder, UncitedNodes: the law refuses it.
        """
        first = self.position(op.start)
        if first is None:
            msg = f"start {op.start} is not on the surface"
            raise NotOnSurface(msg, seq=seq, value=op.start)
        last = first if op.end == op.start else self.position(op.end)
        if last is None:
            msg = f"end {op.end} is not on the surface"
            raise NotOnSurface(msg, seq=seq, value=op.end)
        if first > last:
            msg = f"start {op.start} (position {first}) lies after end {op.end} (position {last})"
            raise ReplaceOutOfOrder(msg, seq=seq, value=(op.start, op.end))
        shadowed = tuple(self._seqs[first : last + 1])
        if type(cited) is range:  # which may be far longer than the surface
            missing = {node for node in shadowed if node not in cited}
        else:
            missing = set(shadowed).difference(cited or ())
        if missing:
            listed = sorted(missing)
            msg = (
                f"expected source_event_seqs to cite every shadowed node, missing {listed[:10]}"
                + (f" and {len(listed) - 10} more" if len(listed) > 10 else "")
            )
            raise UncitedNodes(msg, seq=seq, value=listed)
        return Replacement(seq, first, shadowed, self.anchor(shadowed[0]))

    def plan_around_damage(self, seq: int, cited: Sequence[int] | None) -> Replacement | None:
        """Where a replacement goes whose nodes were lost: None means the tail.

        It takes the first place of the nodes it cites that are still there (semantics, Damage).
        """
        if type(cited) is range:
            found = [p for p, node in enumerate(self._seqs) if node in cited]
        else:
            found = sorted(p for p in map(self.position, cited or ()) if p is not None)
        if not found:
            return None
        shadowed = tuple(self._seqs[p] for p in found)
        return Replacement(seq, found[0], shadowed, self.anchor(shadowed[0]), tuple(found))

    def apply(self, planned: Replacement) -> None:
        """Do what was planned against the current surface."""
        seqs = self._seqs
        at = planned.position
        if planned.scattered is None:
            seqs[at : at + len(planned.shadowed)] = [planned.seq]
        else:
            for position in reversed(planned.scattered):
                del seqs[position]
            seqs.insert(at, planned.seq)
        self._anchors[planned.seq] = planned.anchor
        for node in planned.shadowed:
            self._shadowed_by[node] = planned
        self._replacements.append(planned)

    def shadowed_by(self, seq: int) -> int | None:
        """The replacement that took the node `seq` off the surface, or None."""
        past = self._shadowed_by.get(seq)
        return None if past is None else past.seq


def undo(seqs: list[int], past: Replacement) -> None:
    """Undo a replacement on `seqs`, a surface from which all later ones were undone."""
    at = past.position
    if past.scattered is None:
        seqs[at : at + 1] = past.shadowed
        return
    del seqs[at]
    for position, node in zip(past.scattered, past.shadowed, strict=True):
        seqs.insert(position, node)
