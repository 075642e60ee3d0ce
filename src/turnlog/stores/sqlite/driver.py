"""What is used of apsw, with types: its own are not complete."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Protocol, cast

import apsw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


class Cursor(Protocol):
    """The rows of a query."""

    def fetchone(self) -> Any:
        """The next row, a tuple; None behind the last one."""
        ...

    def fetchall(self) -> list[Any]:
        """The rows that are left."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """The rows one by one."""
        ...


class Connection(Protocol):
    """A connection; for one thread at a time. Raises `apsw.Error`."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    def execute(self, statements: str, bindings: Sequence[Any] = (), /) -> Cursor:
        """Run a statement."""
        ...

    def executemany(self, statements: str, bindings: Iterable[Sequence[Any]], /) -> Cursor:
        """Run a statement with each of the bindings; its rows follow on each other."""
        ...

    def pragma(self, name: str, value: Any = None, /) -> Any:
        """Set a pragma if a value is given; what it is."""
        ...

    def changes(self) -> int:
        """How many rows the last statement changed."""
        ...

    def set_busy_timeout(self, milliseconds: int, /) -> None:
        """How long to wait for who holds a lock."""
        ...

    def set_progress_handler(self, call: Callable[[], bool] | None, steps: int = 100, /) -> None:
        """Call it every so many steps of a statement, which it stops by True or by raising."""
        ...

    def close(self) -> None:
        """Close it. Idempotent."""
        ...


def connect(name: str, flags: int) -> Connection:
    """Open a file.

    Args:
        name: the path, or a URI if the flags say so.
        flags: `apsw.SQLITE_OPEN_…`.
    """
    return cast("Any", apsw.Connection(name, flags))


def integers(values: Iterable[int]) -> Any:
    """Integers, at least one, as a binding of `carray(?)`."""
    make = cast("Any", apsw).carray
    return make(array("q", values))
