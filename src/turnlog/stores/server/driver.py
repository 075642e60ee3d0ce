"""What a database server's driver must do for us, and how it says what went wrong.

A driver makes connections; each does one thing at a time. Queries have `?` for their values: a
driver puts in their place what its database calls them. Every exception of the package that it
wraps leaves it as a `Fault`, so that nobody else knows those.

Both packages that we wrap run on asyncio only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from turnlog.stores.server.dialect import Dialect, Table


class Trouble(Enum):
    """What went wrong, as far as it matters for what to do next."""

    LOST = "lost"  # the connection is gone, or was not to be had: a new one may do
    BUSY = "busy"  # a deadlock, a serialisation failure, a lock not had in time: try again
    TAKEN = "taken"  # a row with that key is there
    TOO_LARGE = "too large"  # a statement, row or value that this server does not take
    FULL = "full"  # no space, or another resource of the server's ran out
    REFUSED = "refused"  # a password, a privilege, a database that is not there
    READ_ONLY = "read-only"  # a standby, or a server that was set so
    OTHER = "other"


class Fault(Exception):
    """What a driver raises, whatever the package below it raised.

    Attributes:
        trouble: what it is.
        code: the server's own code for it (SQLSTATE, error number), or "".
        hint: what to do about it, in words that fit this database, or "".
    """

    def __init__(self, trouble: Trouble, said: str, code: str = "", hint: str = "") -> None:
        super().__init__(said)
        self.trouble = trouble
        self.code = code
        self.hint = hint

    def __str__(self) -> str:
        said = super().__str__()
        return f"{said} ({self.code})" if self.code else said


class Growth(NamedTuple):
    """What the row of a session is to say; `size` is what its bytes grow by.

    It holds where the row says `token` and `expected`, its next seq.
    """

    session: bytes
    token: int
    expected: int
    next_seq: int
    last_activity: int
    size: int
    stale: int
    info: bytes | None


class Connection(Protocol):
    """One connection, set up: strict, in UTC, with time limits. Every method raises `Fault`.

    Outside `begin` and `commit` each statement is a transaction of its own.
    """

    @property
    def alive(self) -> bool:
        """Whether it can still be used: connected, and in no transaction that went wrong."""
        ...

    async def fetch(self, query: str, *values: Any) -> Sequence[Sequence[Any]]:
        """The rows of a query; binary columns are `bytes`, integers `int`, texts `str`."""
        ...

    async def execute(self, query: str, *values: Any) -> int:
        """Run a statement; how many rows it changed, inserted or deleted."""
        ...

    async def many(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement with each of the values, in as few round trips as can be."""
        ...

    async def insert(self, table: Table, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows, values in the order of the table's columns, in statements that fit.

        Raises:
            Fault: TAKEN; TOO_LARGE when one row alone is more than the server takes.
        """
        ...

    async def grow(
        self,
        grown: Sequence[Growth],
        lease: int,
        gone: Sequence[tuple[bytes, int]],
        events: Sequence[Sequence[Any]],
        chunks: Sequence[Sequence[Any]],
    ) -> Collection[bytes]:
        """Store what sessions grew by, in a transaction and as few round trips as can be.

        Only of sessions whose row is as expected; of the others nothing. It may store nothing,
        too, where that would take more.

        Args:
            grown: the rows of the sessions, in the order of their keys.
            lease: microseconds from now for which their holder keeps them.
            gone: keys of the rows of chunks to delete before.
            events: rows, in the order of the table's columns.
            chunks: likewise.

        Returns:
            the keys of the sessions of which everything is stored.
        """
        ...

    async def begin(self) -> None:
        """Begin a transaction, READ COMMITTED."""
        ...

    async def commit(self) -> None:
        """End it. With LOST nobody knows whether it was done."""
        ...

    async def rollback(self) -> None:
        """Undo it."""
        ...

    async def close(self) -> None:
        """Say goodbye to the server, within a second or two. Idempotent, never raises."""
        ...

    def abort(self) -> None:
        """Cut it at once. Idempotent, never raises."""
        ...


class Bell(Protocol):
    """Tells other processes, and hears from them, which sessions have grown."""

    @property
    def alive(self) -> bool:
        """Whether it is still connected."""
        ...

    async def listen(self, *, on: bool) -> None:
        """Hear from now on what others ring for, or no more: to hear is not free. Idempotent."""
        ...

    async def ring(self, keys: Sequence[bytes]) -> None:
        """Tell that the sessions with these keys have grown."""
        ...

    async def close(self) -> None:
        """As `Connection.close`."""
        ...

    def abort(self) -> None:
        """As `Connection.abort`."""
        ...


class Driver(Protocol):
    """Makes connections to one database.

    Attributes:
        dialect: how that database says things.
        url: for messages, without a password.
    """

    dialect: Dialect
    url: str

    async def connect(self) -> Connection:
        """A new connection, set up.

        Raises:
            Fault: LOST where nobody answers, REFUSED where it was refused.
        """
        ...

    async def bell(self, heard: Callable[[Sequence[bytes]], None]) -> Bell | None:
        """A new bell, which does not listen yet.

        While it does, `heard` is called in the event loop with keys of sessions that have grown.

        None where the database has no such thing: who waits then looks twice a second.
        """
        ...
