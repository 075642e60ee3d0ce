"""How MySQL and MariaDB say it."""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from turnlog.stores.mysql.diagnosis import diagnose
from turnlog.stores.server.driver import Fault, Trouble

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from turnlog.stores.server.dialect import Groups, Kind, Table, Term
    from turnlog.stores.server.driver import Connection
    from turnlog.stores.upkeep import Diagnosed

_TEXT = "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
_TERMS = "LONGTEXT CHARACTER SET ascii COLLATE ascii_bin"
TYPES: dict[Kind, str] = {
    "key": "BINARY(16)",
    "int": "BIGINT",
    "bytes": "LONGBLOB",
    "text": _TEXT,
    "terms": _TERMS,
}
_MIGRATING = "CONCAT('turnlog ', SHA1(DATABASE()))"  # a lock of the server's, not of the database's
_PATIENCE = 50  # seconds; less than a statement may take

# InnoDB leaves words out of an index that have less than three letters, or more than 84, or that
# are in a list of English ones, and does not know every script's letters.
_BEFORE = "qx"  # each term: no word in that list begins so
_LONGEST = 60  # letters of a term; of longer ones only the beginning counts
_TIMES = 8  # a term in one text: more of them would not make it better
_ROOM = 1 << 19  # bytes of all terms of a text
_EVERY = "every"  # in a text with more: no term begins so


class MySqlDialect:
    """The words of MySQL 8, of MariaDB 10.3 or later, and of what speaks like them."""

    name: str = "MySQL"
    # SYSDATE, unlike NOW, is the time at which it is asked; the session's time zone is UTC.
    now: str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6))"
    tables: str = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"

    def create(self, table: Table) -> list[str]:
        """The statement that makes a table unless it is there."""
        columns = [
            f"{column.name} {TYPES[column.kind]}" + ("" if column.null else " NOT NULL")
            for column in table.columns
        ]
        columns.append(f"PRIMARY KEY ({', '.join(table.key)})")
        columns += [f"FULLTEXT KEY {c.name} ({c.name})" for c in table.columns if c.kind == "terms"]
        options = "ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
        return [f"CREATE TABLE IF NOT EXISTS {table.name} ({', '.join(columns)}) {options}"]

    def add(self, table: Table) -> str:
        """Insert one row unless its key is there. INSERT IGNORE would ignore more than that."""
        key = table.key[0]
        return f"{_insert(table)} ON DUPLICATE KEY UPDATE {key} = {table.name}.{key}"

    def put(self, table: Table) -> str:
        """Insert one row, or put it in the place of the one with its key."""
        return f"REPLACE INTO {table.name} ({table.names}) VALUES ({table.marks})"  # noqa: S608

    def literal(self, key: bytes) -> str:
        """As hexadecimal digits."""
        return f"x'{key.hex()}'"

    def among(self, column: str, kind: Kind, values: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
        """A list of the values."""
        del kind
        return f"{column} IN ({', '.join('?' * len(values))})", tuple(values)

    def renew(
        self, keys: Sequence[bytes], holder: bytes, lease: int
    ) -> tuple[str, tuple[Any, ...]]:
        """Prolong leases, in the order of the keys."""
        condition, values = self.among("session", "key", keys)
        statement = f"""
            UPDATE sessions SET lease_until = {self.now} + ? WHERE {condition} AND holder = ?
            ORDER BY session
        """  # noqa: S608 - constants
        return statement, (lease, *values, holder)

    async def unfit(self, db: Connection) -> str:
        """Any is fit: the tables say what they need."""
        del db
        return ""

    def terms(self, found: Sequence[str]) -> str:
        """The terms as words that InnoDB indexes."""
        counts = Counter(map(_word, found))
        words = "".join(f"{word} " * min(n, _TIMES) for word, n in counts.items())
        return words if len(words) <= _ROOM else _EVERY

    def ask(
        self,
        wanted: Groups,
        common: Groups,
        within: tuple[bytes, int, int] | None,
        most: int,
    ) -> tuple[str, tuple[Any, ...]]:
        """By a query in boolean mode; long messages count less, as they hold more of everything.

        InnoDB does all that a query asks for each time that it is said in other words: the one that
        finds is the one that ranks, and a text that only may hold the terms comes last. It reads
        all that its index has of each term: for what is common a look at each message is faster.
        """
        said = f"({' '.join(map(_asked, wanted))}) {_EVERY}"
        holds, pieces = _holding(common)
        where = "" if within is None else "AND session = ? AND seq >= ? AND seq < ?"
        score = "MATCH (words) AGAINST (? IN BOOLEAN MODE)"
        query = f"""
            SELECT session, seq, IF(words = ?, 0, {score} / (1 + LN(1 + length))) AS score
            FROM search_words WHERE {score} AND {holds} {where}
            ORDER BY score DESC, seq DESC, session LIMIT ?
        """  # noqa: S608 - constants
        bounds = () if within is None else within
        return query, (_EVERY, said, said, *pieces, *bounds, most)

    def look(
        self, wanted: Groups, condition: str, values: Sequence[Any], most: int
    ) -> tuple[str, tuple[Any, ...]]:
        """By the words as they are stored."""
        holds, pieces = _holding(wanted)
        each = [_stored(term) for group in wanted for term in group]
        times = " + ".join(
            f"(LENGTH(words) - LENGTH(REPLACE(words, ?, ''))) / {len(piece)}" for piece in each
        )
        query = f"""
            SELECT session, seq, ({times}) / (1 + LN(1 + length)) AS score FROM search_words
            WHERE {condition} AND {holds} ORDER BY score DESC, seq DESC, session LIMIT ?
        """  # noqa: S608 - constants
        return query, (*each, *values, *pieces, most)

    def count(
        self, wanted: Groups, condition: str, values: Sequence[Any]
    ) -> tuple[str, tuple[Any, ...]]:
        """By the words as they are stored."""
        said = [_holding([group]) for group in wanted]
        columns = ", ".join(f"COUNT(CASE WHEN {holds} THEN 1 END)" for holds, _ in said)
        query = f"SELECT COUNT(*), {columns} FROM search_words WHERE {condition}"  # noqa: S608
        return query, (*(piece for _, pieces in said for piece in pieces), *values)

    async def end_sleepers(self, db: Connection) -> int:
        """None: `idle_transaction_timeout`, or on MySQL `wait_timeout`, ends all of them."""
        del db
        return 0

    @asynccontextmanager
    async def migrating(self, db: Connection) -> AsyncGenerator[None]:
        """Hold a lock of the server's; it goes with the connection, too."""
        ((got,),) = await db.fetch(f"SELECT GET_LOCK({_MIGRATING}, {_PATIENCE})")
        if got != 1:
            raise Fault(Trouble.BUSY, "another process makes the tables, and is not done")
        try:
            yield
        finally:
            if db.alive:
                await db.fetch(f"SELECT RELEASE_LOCK({_MIGRATING})")

    async def diagnose(self, db: Connection) -> list[Diagnosed]:
        """The version, and what of its settings is not safe, or not enough."""
        return await diagnose(db)


def _word(term: str) -> str:
    """A term in letters and digits of ASCII; what begins with it has a word that begins so."""
    if not term.isascii():
        term = "".join(letter if letter.isascii() else f"{ord(letter):x}" for letter in term)
    return f"{_BEFORE}{term}"[:_LONGEST]


def _asked(group: Sequence[Term]) -> str:
    """A group as a query in boolean mode says it: what is in parentheses takes longer."""
    words = [_word(term.text) + "*" * term.prefix for term in group]
    return f"+({' '.join(words)})" if len(words) > 1 else f"+{words[0]}"


def _stored(term: Term) -> str:
    """A term as it is in a text of terms, each of which has a blank behind it."""
    return _word(term.text) + " " * (not term.prefix)


def _holding(wanted: Groups) -> tuple[str, list[str]]:
    """The condition that a text may hold a term of each group, and what to bind."""
    each = (f"({' OR '.join(['LOCATE(?, words)'] * len(group))})" for group in wanted)
    pieces = [_stored(term) for group in wanted for term in group]
    return f"({' AND '.join(each) or 'TRUE'} OR words = ?)", [*pieces, _EVERY]


def _insert(table: Table) -> str:
    return f"INSERT INTO {table.name} ({table.names}) VALUES ({table.marks})"  # noqa: S608
