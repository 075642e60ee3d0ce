"""An immutable, ordered sequence of messages that shares its structure with its predecessors.

Items lie in leaves of about a thousand. Appending writes behind the end that older snapshots see,
so it is shared; splicing copies the leaves it touches and the list of leaves. Every item has a
key, and keys ascend: the anchor of a surface node, so that a node is found by bisection.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import overload

from turnlog.content import Message
from turnlog.errors import brief

LEAF = 1024


class Leaf:
    """Up to `LEAF` neighbours with their keys. Only a last leaf grows; all others never change."""

    __slots__ = ("__weakref__", "items", "keys")

    def __init__(self, keys: list[int], items: list[Message]) -> None:
        self.keys = keys
        self.items = items


class MessageList(Sequence[Message]):
    """A snapshot: immutable, cheap to take, equal to any sequence of the same messages."""

    __slots__ = ("_count", "_leaves", "_length", "_starts", "_tail")

    def __init__(
        self, leaves: list[Leaf], starts: list[int], count: int, tail: int, length: int
    ) -> None:
        self._leaves = leaves  # shared and growing; `count` of them are ours
        self._starts = starts
        self._count = count
        self._tail = tail  # how many items of our last leaf are ours
        self._length = length

    def leaves(self) -> Iterator[tuple[Leaf, int]]:
        """Each leaf with how many of its items belong to this snapshot."""
        last = self._count - 1
        for i in range(last):
            leaf = self._leaves[i]
            yield leaf, len(leaf.items)
        if last >= 0:
            yield self._leaves[last], self._tail

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Message]:
        last = self._count - 1
        if last < 0:
            return iter(())
        whole = (leaf.items for leaf in islice(self._leaves, last))
        return chain(chain.from_iterable(whole), islice(self._leaves[last].items, self._tail))

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            if step == 1 and stop - start > 8:
                return tuple(islice(self._from(start), max(stop - start, 0)))
            return tuple([self[i] for i in range(start, stop, step)])
        at = index + self._length if index < 0 else index
        if not 0 <= at < self._length:
            msg = f"message {index} of {self._length}"
            raise IndexError(msg)
        leaf = bisect_right(self._starts, at, 0, self._count) - 1
        return self._leaves[leaf].items[at - self._starts[leaf]]

    def between(self, low: int, high: int | None) -> MessageList:
        """Those whose keys are from `low` to below `high`; a beginning shares our leaves."""
        first = self._place(low)
        last = self._length if high is None else self._place(high)
        if first >= last:
            return MessageList([], [], 0, 0, 0)
        if first == 0:
            leaf = bisect_left(self._starts, last, 0, self._count) - 1
            return MessageList(
                self._leaves, self._starts, leaf + 1, last - self._starts[leaf], last
            )
        keys = [key for leaf, count in self.leaves() for key in islice(leaf.keys, count)]
        return Builder.of(keys[first:last], list(self[first:last])).snapshot()

    def _place(self, key: int) -> int:
        """How many keys are below `key`."""
        for number, (leaf, count) in enumerate(self.leaves()):
            if leaf.keys[count - 1] >= key:
                return self._starts[number] + bisect_left(leaf.keys, key, 0, count)
        return self._length

    def _from(self, start: int) -> Iterator[Message]:
        if start >= self._length:
            return
        leaf = bisect_right(self._starts, start, 0, self._count) - 1
        offset = start - self._starts[leaf]
        while leaf < self._count:
            items = self._leaves[leaf].items
            end = self._tail if leaf == self._count - 1 else len(items)
            yield from islice(items, offset, end)
            offset = 0
            leaf += 1

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, (MessageList, list, tuple)):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        shown = ", ".join(f"{m.role} {brief(m.text, 40)}" for m in self[:5])
        return f"<{self._length} messages: {shown}{', …' if self._length > 5 else ''}>"


class Builder:
    """The mutable side of a `MessageList`: appends and splices, and takes snapshots."""

    __slots__ = ("_exposed", "_leaves", "_length", "_snapshot", "_starts")

    def __init__(self) -> None:
        self._exposed = 0  # how many items a snapshot has shown
        self._leaves: list[Leaf] = []
        self._starts: list[int] = []
        self._length = 0
        self._snapshot: MessageList | None = None

    @classmethod
    def of(cls, keys: list[int], items: list[Message]) -> Builder:
        """A builder of these items; keys ascend."""
        builder = cls()
        builder._leaves = [
            Leaf(keys[i : i + LEAF], items[i : i + LEAF]) for i in range(0, len(items), LEAF)
        ]
        builder._restart()
        return builder

    def flat(self) -> tuple[list[int], list[Message]]:
        """All keys and items, copied."""
        keys = list(chain.from_iterable(leaf.keys for leaf in self._leaves))
        return keys, list(chain.from_iterable(leaf.items for leaf in self._leaves))

    def append(self, key: int, item: Message) -> None:
        """Add an item whose key is greater than every other."""
        leaves = self._leaves
        if leaves and len(leaves[-1].items) < LEAF:
            leaf = leaves[-1]
            leaf.keys.append(key)
            leaf.items.append(item)
        else:
            leaves.append(Leaf([key], [item]))
            self._starts.append(self._length)
        self._length += 1
        self._snapshot = None

    def set(self, key: int, item: Message) -> None:
        """Put another item in the place of the one with that key, or add it.

        In place where no snapshot has seen it yet; else as `splice`.
        """
        if self._leaves:
            leaf = self._leaves[-1]
            at = bisect_left(leaf.keys, key)
            unseen = self._starts[-1] + at >= self._exposed
            if unseen and at < len(leaf.keys) and leaf.keys[at] == key:
                leaf.items[at] = item
                return
        self.splice(key, key, [key], [item])

    def splice(
        self, low: int, high: int, keys: list[int], items: list[Message]
    ) -> tuple[int, list[int], list[Message]]:
        """Put items in the place of all whose key is from `low` to `high`.

        Returns the index of the first of them, and the keys and items that left.
        """
        leaves = self._leaves
        first, at = self._find(low)
        last, end = self._find(high + 1)
        index = self._starts[first] + at if first < len(leaves) else self._length
        if first == len(leaves):
            for key, item in zip(keys, items, strict=True):
                self.append(key, item)
            return index, [], []
        head = leaves[first]
        if last < len(leaves):
            tail_keys, tail_items, stop = (
                leaves[last].keys[end:],
                leaves[last].items[end:],
                last + 1,
            )
        else:
            tail_keys, tail_items, stop = [], [], last
        gone_keys, gone_items = self._between(first, at, last, end)
        keys = head.keys[:at] + keys + tail_keys
        items = head.items[:at] + items + tail_items
        middle = [Leaf(keys[i : i + LEAF], items[i : i + LEAF]) for i in range(0, len(items), LEAF)]
        same_size = len(middle) == 1 == stop - first and len(items) == len(head.items)
        self._leaves = leaves[:first] + middle + leaves[stop:]
        if self._leaves and not middle and stop == len(leaves):
            # An inner leaf became the last one: it will grow, and older snapshots see all of it.
            inner = self._leaves[-1]
            self._leaves[-1] = Leaf(list(inner.keys), list(inner.items))
        if not same_size:
            self._restart()
        self._snapshot = None
        return index, gone_keys, gone_items

    def _between(self, first: int, at: int, last: int, end: int) -> tuple[list[int], list[Message]]:
        leaves = self._leaves
        if first == last:
            return leaves[first].keys[at:end], leaves[first].items[at:end]
        keys, items = leaves[first].keys[at:], leaves[first].items[at:]
        for leaf in islice(leaves, first + 1, last):
            keys += leaf.keys
            items += leaf.items
        if last < len(leaves):
            keys += leaves[last].keys[:end]
            items += leaves[last].items[:end]
        return keys, items

    def _find(self, key: int) -> tuple[int, int]:
        """The leaf and the place in it of the first item whose key is at least `key`."""
        leaves = self._leaves
        leaf = bisect_left(leaves, key, key=_last_key)
        if leaf == len(leaves):
            return leaf, 0
        return leaf, bisect_left(leaves[leaf].keys, key)

    def _restart(self) -> None:
        starts: list[int] = []
        total = 0
        for leaf in self._leaves:
            starts.append(total)
            total += len(leaf.items)
        self._starts, self._length = starts, total

    def snapshot(self) -> MessageList:
        """What is there now; the same object until something changes."""
        taken = self._snapshot
        if taken is None:
            leaves = self._leaves
            tail = len(leaves[-1].items) if leaves else 0
            self._exposed = self._length
            taken = MessageList(leaves, self._starts, len(leaves), tail, self._length)
            self._snapshot = taken
        return taken


def _last_key(leaf: Leaf) -> int:
    return leaf.keys[-1]
