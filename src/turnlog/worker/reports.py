"""What a worker says of its work."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from turnlog.agent import TurnResult

_WELL = frozenset({"completed", "max-tokens", "suspended"})


class Ran(msgspec.Struct, frozen=True):
    """A turn was run, to its end or until it was suspended.

    Attributes:
        session_id: whose.
        result: what became of it.
        seconds: how long it took, from taking the session to giving it back.
        goes_on: whether it went on with one that a crash or a shutdown had cut off.
    """

    session_id: str
    result: TurnResult
    seconds: float
    goes_on: bool

    @property
    def is_well(self) -> bool:
        """Whether it did what was asked, or waits for an approval."""
        return self.result.end_reason.kind in _WELL


class Skipped(msgspec.Struct, frozen=True):
    """Something could not be done; nothing else waits for it.

    Attributes:
        session_id: which session: it was not run, or its turn waits for a store that is away; None
            when the store could not say what there is to do.
        error: why.
        again_in: seconds until it is tried again; None if it is given up, as by `run(once=True)`.
    """

    session_id: str | None
    error: Exception
    again_in: float | None


Report: TypeAlias = Ran | Skipped


class Tally(msgspec.Struct):
    """What a worker did, all in all.

    Attributes:
        turns: how many it ran.
        failed: how many of these ended in an error, at a limit, or were cancelled.
        cut_off: how many were cut off because it had to leave; another worker goes on with them.
        stuck: the sessions that wait and that it could not run when it ended.
    """

    turns: int = 0
    failed: int = 0
    cut_off: int = 0
    stuck: tuple[str, ...] = ()
