"""What an encoder knows after a message, and needs for the next one."""

from __future__ import annotations

from typing import Any, TypeAlias

from turnlog.dialects.wire import short_hash

Mark: TypeAlias = tuple[Any, ...]


class Ids:
    """Hands out call ids that are unique in a request, and remembers what that depended on.

    Attributes:
        base: the ids handed out by everything before this stretch.
        fresh: those handed out since, in order.
        taken: candidates that were refused because `base` has them.
        clashes: how many ids needed a number, in all; `counted` says if any did in this stretch.
    """

    __slots__ = ("base", "clashes", "counted", "fresh", "taken")

    def __init__(self, base: set[str], clashes: int = 0) -> None:
        self.base = base
        self.fresh: dict[str, None] = {}
        self.taken: dict[str, None] = {}
        self.clashes = clashes
        self.counted = 0

    def unique(self, clean: str, message_id: str, place: int, limit: int) -> str:
        """`clean`, or when that is taken one that names the message, or at last a number."""
        if self._claim(clean):
            return clean
        named = f"{clean[: limit - 9]}_{short_hash(clean, message_id, str(place))}"
        while not self._claim(named):
            self.clashes += 1
            self.counted += 1
            named = f"{clean[: limit - 20]}_{self.clashes}_{short_hash(message_id)}"
        return named

    def _claim(self, candidate: str) -> bool:
        if candidate in self.fresh:
            return False
        if candidate in self.base:
            self.taken[candidate] = None
            return False
        self.fresh[candidate] = None
        return True


class Carry:
    """The state between two messages.

    Attributes:
        role: the role of the last wire message; None before the first.
        waiting: the calls of the last assistant message without result: call id -> wire ids.
        held: encoded content that must come after the results of the open group.
        leading: nothing but system text has come yet.
        system: encoded leading system texts, for dialects that have a place for them.
        thinks: the last assistant wire message begins with its reasoning.
        looping: the request ends in an answer, or in the results of its calls.
        ids: the call ids handed out.
    """

    __slots__ = ("held", "ids", "leading", "looping", "role", "system", "thinks", "waiting")

    def __init__(self) -> None:
        self.role: str | None = None
        self.waiting: dict[str, tuple[str, ...]] = {}  # never changed in place
        self.held: tuple[bytes, ...] = ()
        self.leading = True
        self.system: tuple[bytes, ...] = ()
        self.thinks = False
        self.looping = False
        self.ids = Ids(set())

    def answer(self, call_id: str) -> str | None:
        """The wire id of the call that a result answers, which is then no longer open."""
        first, *rest = self.waiting.get(call_id) or (None,)
        if first is not None:
            others = {k: v for k, v in self.waiting.items() if k != call_id}
            self.waiting = {**others, call_id: tuple(rest)} if rest else others
        return first

    def mark(self) -> Mark:
        """Everything, cheaply: for `restore`, and to compare."""
        ids = self.ids
        return (
            self.role,
            self.waiting,
            self.held,
            self.leading,
            self.thinks,
            self.looping,
            self.system,
            len(ids.fresh),
            len(ids.taken),
            ids.clashes,
            ids.counted,
        )

    def key(self) -> Mark:
        """What the encoding of the next message may depend on, call ids apart."""
        return self.mark()[:6]

    def follow(self, key: Mark, base: set[str], clashes: int) -> None:
        """Start a stretch behind one that ended with `key`."""
        self.restore((*key, (), 0, 0, clashes, 0))
        self.ids.base = base

    def restore(self, mark: Mark) -> None:
        """Go back to a mark of this stretch."""
        fresh, taken = self.ids.fresh, self.ids.taken
        (
            self.role,
            self.waiting,
            self.held,
            self.leading,
            self.thinks,
            self.looping,
            self.system,
            fresh_count,
            taken_count,
            self.ids.clashes,
            self.ids.counted,
        ) = mark
        for ids, count in ((fresh, fresh_count), (taken, taken_count)):
            while len(ids) > count:
                ids.popitem()
