"""Encoders, and the incremental one: the next body costs what is new, and one join.

The encoded messages are kept by leaf of the `MessageList`: those that are full as one bytes object
each, the last one, which grows, message by message. A leaf is encoded again when it was replaced,
or when what is carried into it changed: the open group of calls, the last role, or a call id that
was handed out before it.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from turnlog.content import Message, user_message
from turnlog.dialects.carry import Carry, Mark
from turnlog.dialects.dialect import Dialect, begin, end, frame

if TYPE_CHECKING:
    from collections.abc import Iterable

    from turnlog.events import Header
    from turnlog.views.sequence import Leaf, MessageList


class Body:
    """An encoded request body: `segments` are sent one after the other, uncopied."""

    def __init__(self, segments: list[bytes], hashes: _Hashes | None = None) -> None:
        self.segments = segments
        self._hashes = hashes or _Hashes()

    def __len__(self) -> int:
        return sum(map(len, self.segments))

    def __bytes__(self) -> bytes:
        return self.to_bytes()

    def to_bytes(self) -> bytes:
        """All of it in one piece: one copy."""
        return b"".join(self.segments)

    @cached_property
    def digest(self) -> str:
        """`sha256:` and the hex digest of the bytes, as `request/sent` has it."""
        return f"sha256:{self._hashes.of(self.segments)}"


class _Hashes:
    """The hash after each segment of the last body, where the next one's begins that shares it."""

    __slots__ = ("_after",)

    def __init__(self) -> None:
        self._after: list[tuple[bytes, Any]] = []

    def of(self, segments: list[bytes]) -> str:
        """The hex digest of the segments in one piece; reads only those that are new."""
        after = self._after
        most = min(len(after), len(segments))
        same = next((i for i in range(most) if after[i][0] != segments[i]), most)
        del after[same:]
        hashed = after[-1][1].copy() if after else sha256()
        for segment in segments[same:]:
            hashed.update(segment)
            after.append((segment, hashed.copy()))
        return hashed.hexdigest()


class Encoder:
    """A dialect at a version: a pure function from header and messages to a request body."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    @property
    def name(self) -> str:
        """`name@version`."""
        return self._dialect.name

    def __repr__(self) -> str:
        return f"<Encoder {self.name}>"

    def encode(
        self,
        header: Header,
        messages: Iterable[Message],
        *,
        instruction: str | None = None,
        stream: bool = True,
    ) -> bytes:
        """The request body, from scratch.

        Args:
            header: configuration, system text, tools.
            messages: in request order; `Session.request_messages()` is what providers accept.
            instruction: a trailing user message, for auxiliary requests.
            stream: whether the answer is to be streamed.

        Raises:
            ConversionError: there is nothing to say.
        """
        dialect, provider = self._dialect, header.config.provider
        carry, prelude = begin(dialect, header)
        out = [prelude]
        for message in messages:
            dialect.add(message, carry, provider, out)
        tail = end(dialect, carry, header, _instruction(instruction))
        return b"".join(frame(dialect, carry, header, out, tail, stream=stream))

    def incremental(self) -> BodyEncoder:
        """An encoder of one session's bodies that keeps what it encoded."""
        return BodyEncoder(self._dialect)


class _Unfolded:
    """A leaf, message by message: what was added can be taken back."""

    __slots__ = ("carry", "items", "leaf", "marks", "pieces")

    def __init__(self, leaf: Leaf, carry: Carry) -> None:
        self.leaf = leaf
        self.carry = _carried(carry, carry.ids.base, carry.ids.clashes)
        self.items: list[Message] = []
        self.pieces: list[bytes] = []
        self.marks = [self.carry.mark()]

    def shares(self, leaf: Leaf) -> bool:
        """Whether `leaf` begins as this one does."""
        return leaf is self.leaf or self.items[:1] == leaf.items[:1]

    def fits(self, carry: Carry, base: set[str]) -> bool:
        """Whether it would be encoded to the same bytes behind `carry`."""
        ids = self.carry.ids
        unmet = base.isdisjoint(ids.fresh) and base.issuperset(ids.taken)
        return unmet and self.marks[0] == carry.mark()

    def set(self, leaf: Leaf, count: int, dialect: Dialect, provider: str) -> None:
        """Make it hold the first `count` items of `leaf`, encoding only what is new."""
        items = leaf.items
        kept = min(count, len(self.items))
        if leaf is not self.leaf:
            same = range(kept)
            kept = next((i for i in same if items[i] is not self.items[i]), kept)
            self.leaf = leaf
        del self.items[kept:], self.pieces[kept:], self.marks[kept + 1 :]
        self.carry.restore(self.marks[kept])
        for message in items[kept:count]:
            out: list[bytes] = []
            dialect.add(message, self.carry, provider, out)
            self.items.append(message)
            self.pieces.append(out[0] if len(out) == 1 else b"".join(out))
            self.marks.append(self.carry.mark())


class _Stretch:
    """A full leaf in one piece: what was carried in and out, the call ids it gave and met."""

    __slots__ = (
        "after",
        "before",
        "clashes",
        "counted",
        "data",
        "fresh",
        "leaf",
        "system",
        "taken",
    )

    def __init__(self, unfolded: _Unfolded, before: Carry) -> None:
        carry = unfolded.carry
        self.leaf = unfolded.leaf
        self.before = before.key()
        self.after = _carried(carry, set(), 0)
        self.data = b"".join(unfolded.pieces)
        self.system = carry.system
        self.fresh, self.taken = set(carry.ids.fresh), set(carry.ids.taken)
        self.clashes, self.counted = before.ids.clashes, carry.ids.counted

    def fits(self, carry: Carry, base: set[str]) -> bool:
        """Whether it would be encoded to the same bytes behind `carry`."""
        return (
            self.before == carry.key()
            and self.fresh.isdisjoint(base)
            and self.taken <= base
            and (self.counted == 0 or self.clashes == carry.ids.clashes)
        )


class BodyEncoder:
    """Encodes the bodies of one session, one after the other; see `Encoder.incremental`."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._provider: str | None = None
        self._start: Mark | None = None
        self._chain: list[_Stretch] = []
        self._base: set[str] = set()  # the call ids of the chain and of what precedes it
        self._tail: _Unfolded | None = None
        self._hashes = _Hashes()

    @property
    def name(self) -> str:
        """`name@version`."""
        return self._dialect.name

    def encode(
        self,
        header: Header,
        messages: MessageList,
        *,
        instruction: str | None = None,
        stream: bool = True,
    ) -> Body:
        """The same bytes as `Encoder.encode`, as segments.

        Raises:
            ConversionError: there is nothing to say.
        """
        provider = header.config.provider
        if provider != self._provider:
            self._provider, self._chain, self._tail = provider, [], None
            self._base = set()
        carry, prelude = begin(self._dialect, header)
        leaves = list(messages.leaves())
        carry = self._follow(leaves[:-1], carry)
        pieces = [prelude, *(stretch.data for stretch in self._chain)]
        system = [text for stretch in self._chain for text in stretch.system]
        if leaves:
            tail = self._tail = self._encoded(*leaves[-1], carry)
            pieces.append(b"".join(tail.pieces))
            carry = tail.carry
            system += carry.system
        mark = carry.mark()
        closing = end(self._dialect, carry, header, _instruction(instruction))
        carry.system = tuple(system)
        segments = frame(self._dialect, carry, header, pieces, closing, stream=stream)
        carry.restore(mark)
        return Body(segments, self._hashes)

    def _follow(self, leaves: list[tuple[Leaf, int]], carry: Carry) -> Carry:
        """Bring the chain into line with the full leaves; returns what is carried out of it."""
        chain, start = self._chain, carry.key()
        same = 0
        if start == self._start:
            most = min(len(chain), len(leaves))
            same = next((i for i in range(most) if chain[i].leaf is not leaves[i][0]), most)
        self._start = start
        known = {stretch.leaf: stretch for stretch in chain[same:]}
        if known:
            del chain[same:]
            self._base = set[str]().union(*(stretch.fresh for stretch in chain))
        carry = _carried(chain[-1].after if chain else carry, self._base, sum(map(_counted, chain)))
        for leaf, count in leaves[same:]:
            stretch = known.get(leaf)
            if stretch is None or not stretch.fits(carry, self._base):
                stretch = _Stretch(self._encoded(leaf, count, carry), carry)
            chain.append(stretch)
            self._base |= stretch.fresh
            carry = _carried(stretch.after, self._base, carry.ids.clashes + stretch.counted)
        return carry

    def _encoded(self, leaf: Leaf, count: int, carry: Carry) -> _Unfolded:
        """A leaf, message by message; what the tail has of it is not encoded again."""
        tail = self._tail
        if tail is None or not (tail.shares(leaf) and tail.fits(carry, self._base)):
            tail = _Unfolded(leaf, carry)
        tail.carry.ids.base = self._base
        tail.set(leaf, count, self._dialect, self._provider or "")
        return tail


def _counted(stretch: _Stretch) -> int:
    return stretch.counted


def _carried(carry: Carry, base: set[str], clashes: int) -> Carry:
    """What the next stretch starts with: it has given no ids yet."""
    following = Carry()
    following.follow(carry.key(), base, clashes)
    return following


def _instruction(text: str | None) -> Message | None:
    return None if text is None else user_message(text)
