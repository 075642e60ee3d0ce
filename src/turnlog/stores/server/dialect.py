"""How one database says what every SQL store says: all differences between databases are here.

The modules beside this one write their queries once, with `?` for values, and ask the dialect for
what is said in different words.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from turnlog.stores.server.driver import Connection
    from turnlog.stores.upkeep import Diagnosed

Kind: TypeAlias = Literal["key", "int", "bytes", "text", "terms"]
"""Of a column. key: 16 bytes; int: 64 bits, signed; bytes: up to 1 GiB; text: ASCII, compared byte
by byte, up to 1 GiB; terms: what `Dialect.terms` makes, with a full-text index. Key columns of a
table are of the kinds key and int only."""


class Column(NamedTuple):
    """A column; `null` says whether it may hold nothing."""

    name: str
    kind: Kind
    null: bool = False


class Table(NamedTuple):
    """A table. Its key begins with the key of a session: that is what a cluster distributes by.

    Attributes:
        name: as the database knows it.
        columns: in the order in which rows are inserted.
        key: the columns of the primary key. There is no other index but full-text ones.
        grows: rows are changed in place, often: a database may leave room for that.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    grows: bool = False

    @property
    def names(self) -> str:
        """The columns, as a statement lists them."""
        return ", ".join(column.name for column in self.columns)

    @property
    def marks(self) -> str:
        """A `?` for each column."""
        return ", ".join("?" for _ in self.columns)


class Term(NamedTuple):
    """A term to look for; with `prefix` it is only the beginning of one."""

    text: str
    prefix: bool = False


Groups: TypeAlias = Sequence[Sequence[Term]]
"""What is searched for: of each group one term."""


class Dialect(Protocol):
    """The words of one database.

    Attributes:
        name: of the database, for people.
        now: an expression: microseconds since 1970 by the server's wall clock as the statement
            runs, not as its transaction began; an integer.
        tables: a query of the names of the tables where `create` puts them.
    """

    name: str
    now: str
    tables: str

    def create(self, table: Table) -> Sequence[str]:
        """The statements that make a table unless it is there."""
        ...

    def add(self, table: Table) -> str:
        """Insert one row unless its key is there; it changed no row then."""
        ...

    def put(self, table: Table) -> str:
        """Insert one row, or put it in the place of the one with its key."""
        ...

    def literal(self, key: bytes) -> str:
        """A value of a column of the kind key, as a statement's text has it."""
        ...

    def among(self, column: str, kind: Kind, values: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
        """The condition that a column has one of the values, at least one; and what to bind."""
        ...

    def renew(
        self, keys: Sequence[bytes], holder: bytes, lease: int
    ) -> tuple[str, tuple[Any, ...]]:
        """Prolong leases, with what to bind: `sessions.lease_until` is `lease` µs from now.

        Only of the sessions with these keys whose `holder` is that; rows are locked in the order
        of their keys, as every commit does, or passed over where they are locked.
        """
        ...

    async def end_sleepers(self, db: Connection) -> int:
        """End connections that keep locks while their client sleeps; how many there were.

        Where the server has a time limit for each of them by itself, there are none. Called by who
        did not get a lock in time.
        """
        ...

    def migrating(self, db: Connection) -> AbstractAsyncContextManager[None]:
        """Keep other processes from migrating meanwhile.

        Where statements that make tables can be undone it is a transaction, too.
        """
        ...

    async def unfit(self, db: Connection) -> str:
        """Why this database cannot hold a store, and what to do about it; "" where it can."""
        ...

    def terms(self, found: Sequence[str]) -> str:
        """The value of a column of terms, from the terms of a text in their order.

        Terms hold letters, digits and marks of any script, one to many. A text with more than the
        database can index may be said to hold every term.
        """
        ...

    def ask(
        self,
        wanted: Groups,
        common: Groups,
        within: tuple[bytes, int, int] | None,
        most: int,
    ) -> tuple[str, tuple[Any, ...]]:
        """A query of the messages that hold terms, best first; and what to bind.

        Its rows are session, seq, score; of equal scores the later seq comes first. It may give
        too many messages, but none too few: whoever asks looks into them.

        Args:
            wanted: of each group one term must occur.
            common: likewise; they need not count for the score, as many messages hold them.
            within: only a session with this key, from one seq to before another.
            most: how many to give.
        """
        ...

    def look(
        self, wanted: Groups, condition: str, values: Sequence[Any], most: int
    ) -> tuple[str, tuple[Any, ...]]:
        """As `ask`, without the index: by a look into each message for which a condition holds.

        Args:
            wanted: of each group one term must occur.
            condition: on `session` and `seq`, by which the table's key finds the messages.
            values: what to bind in it.
            most: how many to give.
        """
        ...

    def count(
        self, wanted: Groups, condition: str, values: Sequence[Any]
    ) -> tuple[str, tuple[Any, ...]] | None:
        """A query of one row: how many messages there are, and how many hold each group.

        None where it does not matter to `ask` which groups are common. The arguments are those of
        `look`.
        """
        ...

    async def diagnose(self, db: Connection) -> list[Diagnosed]:
        """What there is to say of the server: its version, how durable it is, what we may do."""
        ...
