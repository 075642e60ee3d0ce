"""How PostgreSQL says it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from turnlog.stores.postgres.diagnosis import diagnose, unfit

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from turnlog.stores.server.dialect import Groups, Kind, Table
    from turnlog.stores.server.driver import Connection
    from turnlog.stores.upkeep import Diagnosed

TYPES: dict[Kind, str] = {
    "key": "bytea",
    "int": "bigint",
    "bytes": "bytea",
    "text": "text",
    "terms": "tsvector",
}
_LONGEST = 200  # characters of a term; of longer ones only the beginning counts
_PLACES = 60  # of a term in one text: more of them would not make it better
_LAST_PLACE = 16_383  # that a tsvector can tell from those behind it
_ROOM = 700_000  # bytes of a tsvector, which may have 1 MiB
_EVERY = "'*'"  # in a text with more terms than fit: no term looks so
_RANKED = 2_000  # messages that are compared; who asks for what is in many is not kept waiting
_SCORE = "ts_rank(words, ?::tsquery, 1)::float8"
ASLEEP = 5  # seconds without a word in the middle of a statement
_END_SLEEPERS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user AND application_name = 'turnlog'
    AND state = 'active' AND wait_event = 'ClientRead' AND xact_start IS NOT NULL
    AND state_change < clock_timestamp() - interval '{} seconds'
"""
_MIGRATING = 0x746C6F67  # the number of an advisory lock: "tlog"


class PostgresDialect:
    """The words of PostgreSQL 12 or later, and of what speaks like it."""

    name: str = "PostgreSQL"
    now: str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    tables: str = "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = current_schema()"

    def create(self, table: Table) -> list[str]:
        """The statement that makes a table unless it is there."""
        columns = [
            f"{column.name} {TYPES[column.kind]}" + ("" if column.null else " NOT NULL")
            for column in table.columns
        ]
        columns.append(f"PRIMARY KEY ({', '.join(table.key)})")
        # Room for new versions of a row on its own page: no index has to follow them then.
        room = " WITH (fillfactor = 50)" if table.grows else ""
        made = [f"CREATE TABLE IF NOT EXISTS {table.name} ({', '.join(columns)}){room}"]
        made += [
            f"CREATE INDEX IF NOT EXISTS {table.name}_{column.name} ON {table.name} "
            f"USING gin ({column.name})"
            for column in table.columns
            if column.kind == "terms"
        ]
        return made

    def add(self, table: Table) -> str:
        """Insert one row unless its key is there."""
        return f"{_insert(table)} ON CONFLICT DO NOTHING"

    def put(self, table: Table) -> str:
        """Insert one row, or put it in the place of the one with its key."""
        others = (column.name for column in table.columns if column.name not in table.key)
        changes = ", ".join(f"{name} = excluded.{name}" for name in others)
        return f"{_insert(table)} ON CONFLICT ({', '.join(table.key)}) DO UPDATE SET {changes}"

    def literal(self, key: bytes) -> str:
        """As hexadecimal digits."""
        return f"'\\x{key.hex()}'::bytea"

    def among(self, column: str, kind: Kind, values: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
        """One parameter, whatever the number of values: the statement is prepared once."""
        return f"{column} = ANY(?::{TYPES[kind]}[])", (list(values),)

    def renew(
        self, keys: Sequence[bytes], holder: bytes, lease: int
    ) -> tuple[str, tuple[Any, ...]]:
        """Prolong leases; what is locked is being committed to, which prolongs it, too."""
        statement = f"""
            UPDATE sessions SET lease_until = {self.now} + ? WHERE session IN (
                SELECT session FROM sessions WHERE session = ANY(?::bytea[]) AND holder = ?
                ORDER BY session FOR UPDATE SKIP LOCKED
            )
        """  # noqa: S608 - constants
        return statement, (lease, list(keys), holder)

    async def end_sleepers(self, db: Connection) -> int:
        """Those that were stopped between the messages of one statement, as a driver sends them.

        There no limit holds: not for idle transactions, and that for statements is not looked at.
        """
        return len(await db.fetch(_END_SLEEPERS.format(ASLEEP)))

    @asynccontextmanager
    async def migrating(self, db: Connection) -> AsyncGenerator[None]:
        """A transaction that holds an advisory lock."""
        await db.begin()
        try:
            await db.execute("SELECT pg_advisory_xact_lock(?)", _MIGRATING)
            yield
            await db.commit()
        except BaseException:
            if db.alive:
                await db.rollback()
            raise

    async def unfit(self, db: Connection) -> str:
        """Its encoding has to have every letter, as that of `terms`."""
        ((encoding,),) = await db.fetch("SELECT current_setting('server_encoding')")
        return unfit(encoding)

    def terms(self, found: Sequence[str]) -> str:
        """A tsvector as text: each term with its first places."""
        at: dict[str, list[str]] = {}
        for place, term in enumerate(found, 1):
            places = at.setdefault(term[:_LONGEST], [])
            if len(places) < _PLACES:
                places.append(str(min(place, _LAST_PLACE)))
        if sum(4 * len(term) + 2 * len(places) + 8 for term, places in at.items()) > _ROOM:
            return _EVERY
        return " ".join(f"'{term}':{','.join(places)}" for term, places in at.items())

    def ask(
        self,
        wanted: Groups,
        common: Groups,
        within: tuple[bytes, int, int] | None,
        most: int,
    ) -> tuple[str, tuple[Any, ...]]:
        """By a tsquery; of many messages only the last ones are ranked.

        Their words are fetched afterwards: PostgreSQL would sort them on disk.
        """
        said = _said([*wanted, *common])
        where = "" if within is None else "AND session = ? AND seq >= ? AND seq < ?"
        query = f"""
            WITH found AS MATERIALIZED (
                SELECT session, seq FROM search_words WHERE words @@ ?::tsquery {where}
                ORDER BY time DESC, seq DESC, session LIMIT ?
            )
            SELECT session, seq, {_SCORE} AS score FROM found JOIN search_words USING (session, seq)
            ORDER BY score DESC, seq DESC, session LIMIT ?
        """  # noqa: S608 - constants
        bounds = () if within is None else within
        return query, (f"({said}) | {_EVERY}", *bounds, max(_RANKED, most), said, most)

    def look(
        self, wanted: Groups, condition: str, values: Sequence[Any], most: int
    ) -> tuple[str, tuple[Any, ...]]:
        """By a tsquery, too, said so that no index can answer it."""
        said = _said(wanted)
        query = f"""
            SELECT session, seq, {_SCORE} AS score FROM search_words
            WHERE {condition} AND (words @@ ?::tsquery) IS TRUE
            ORDER BY score DESC, seq DESC, session LIMIT ?
        """  # noqa: S608 - constants
        return query, (said, *values, f"({said}) | {_EVERY}", most)

    def count(self, wanted: Groups, condition: str, values: Sequence[Any]) -> None:
        """The index itself begins with what is rare."""
        del wanted, condition, values

    async def diagnose(self, db: Connection) -> list[Diagnosed]:
        """The version, what of its settings is not safe, what we may do."""
        return await diagnose(db)


def _said(wanted: Groups) -> str:
    """What is wanted, as a tsquery: a term of each group."""
    groups = (
        " | ".join(f"'{t.text[:_LONGEST]}'{':*' if t.prefix else ''}" for t in group)
        for group in wanted
    )
    return " & ".join(f"({group})" for group in groups)


def _insert(table: Table) -> str:
    return f"INSERT INTO {table.name} ({table.names}) VALUES ({table.marks})"  # noqa: S608
