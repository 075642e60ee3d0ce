"""asyncpg as the stores on servers use it."""

from __future__ import annotations

import asyncio
import re
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from turnlog.stores.postgres.bell import PostgresBell
from turnlog.stores.postgres.dialect import TYPES, PostgresDialect
from turnlog.stores.postgres.faults import faults
from turnlog.stores.postgres.growing import statement, values
from turnlog.stores.postgres.sockets import hold
from turnlog.stores.postgres.urls import parts_of
from turnlog.stores.server.driver import Fault, Trouble

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from turnlog.stores.server.dialect import Dialect, Table
    from turnlog.stores.server.driver import Growth

OLDEST = 12
CONNECT_TIMEOUT = 10
COMMAND_TIMEOUT = 90  # the server's own limit should be the first
_AT_ONCE = 32 << 20  # bytes of the rows of one statement

SETTINGS: Mapping[str, str] = {
    "application_name": "turnlog",
    "client_encoding": "UTF8",
    "timezone": "UTC",
    "default_transaction_isolation": "read committed",
    "standard_conforming_strings": "on",
    "statement_timeout": "60s",
    "lock_timeout": "10s",
    # An owner that was stopped in the middle of a commit keeps its rows locked no longer, so that
    # who waits for them has them before its patience ends.
    "idle_in_transaction_session_timeout": "5s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
_MARK = "turnlog.connected"
"""A setting that no new session has; one that has it was given to another client before."""

_connect = cast("Callable[..., Awaitable[Any]]", asyncpg.connect)  # pyright: ignore[reportUnknownMemberType]


@cache
def numbered(query: str) -> str:
    """A query with `$1`, `$2` … in the place of each `?`."""
    parts = query.split("?")
    return parts[0] + "".join(f"${i}{part}" for i, part in enumerate(parts[1:], 1))


@cache
def _insert(table: Table) -> str:
    arrays = ", ".join(f"${i}::{TYPES[c.kind]}[]" for i, c in enumerate(table.columns, 1))
    return f"INSERT INTO {table.name} ({table.names}) SELECT * FROM unnest({arrays})"  # noqa: S608


class PostgresConnection:
    """One connection of asyncpg's."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._good = True

    @property
    def alive(self) -> bool:
        """Whether it can still be used."""
        return self._good and not self._raw.is_closed()

    async def _do(self, call: Callable[..., Any], *args: Any) -> Any:
        with faults():
            try:
                return await call(*args)
            except (asyncio.CancelledError, TimeoutError):
                self._good = False  # who knows what the server is doing
                raise

    async def fetch(self, query: str, *values: Any) -> Sequence[Sequence[Any]]:
        """The rows of a query."""
        return await self._do(self._raw.fetch, numbered(query), *values)

    async def execute(self, query: str, *values: Any) -> int:
        """Run a statement; how many rows it changed."""
        tag = await self._do(self._raw.execute, numbered(query), *values)
        count = re.search(r"\d+\Z", tag)
        return int(count[0]) if count else 0

    async def many(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement with each of the values; all are sent at once."""
        await self._do(self._raw.executemany, numbered(query), rows)

    async def insert(self, table: Table, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows, an array a column.

        COPY is as fast, but in the middle of it no time limit of the server's holds: an owner that
        was stopped there would keep its rows locked for as long as it sleeps.
        """
        for some in _fitting(table, rows):
            columns = map(list, zip(*some, strict=True))
            await self._do(self._raw.execute, _insert(table), *columns)

    async def grow(
        self,
        grown: Sequence[Growth],
        lease: int,
        gone: Sequence[tuple[bytes, int]],
        events: Sequence[Sequence[Any]],
        chunks: Sequence[Sequence[Any]],
    ) -> Collection[bytes]:
        """Store what sessions grew by, with one statement."""
        given = values(grown, lease, gone, events, chunks)
        rows = await self._do(self._raw.fetch, statement(PostgresDialect.now), *given)
        return {row[0] for row in rows}

    async def begin(self) -> None:
        """Begin a transaction, as isolated as the settings say, and only reading if they do."""
        await self._do(self._raw.execute, "BEGIN")

    async def commit(self) -> None:
        """End it."""
        await self._do(self._raw.execute, "COMMIT")

    async def rollback(self) -> None:
        """Undo it."""
        await self._do(self._raw.execute, "ROLLBACK")

    async def close(self) -> None:
        """Say goodbye, if there still is someone."""
        await close(self._raw, polite=self.alive)

    def abort(self) -> None:
        """Cut it."""
        self._good = False
        self._raw.terminate()


def _fitting(table: Table, rows: Sequence[Sequence[Any]]) -> Iterable[Sequence[Sequence[Any]]]:
    """Rows in as few statements as fit."""
    wide = [i for i, column in enumerate(table.columns) if column.kind == "bytes"]
    if not wide:
        return [rows] if rows else []
    parts: list[list[Sequence[Any]]] = []
    room = 0
    for row in rows:
        size = 100 + sum(len(row[i]) for i in wide if row[i] is not None)
        if not parts or room < size:
            parts.append([])
            room = _AT_ONCE
        parts[-1].append(row)
        room -= size
    return parts


async def close(raw: Any, *, polite: bool) -> None:
    """End a connection of asyncpg's, within two seconds, whatever state it is in."""
    if polite:
        try:
            await raw.close(timeout=2.0)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            raw.terminate()  # it does not matter to us what it cannot say any more
    else:
        raw.terminate()


async def _settle(raw: Any, settings: Mapping[str, str]) -> None:
    """Give a new session its settings, after looking whether it is one.

    They are not sent with the request to connect, of which a pooler refuses or drops what it does
    not know.

    Raises:
        Fault: it cannot have them, the server is too old, or the session is not ours alone.
    """
    version = raw.get_server_version()
    if version.major < OLDEST:
        hint = f"PostgreSQL {version.major} is too old: turnlog needs {OLDEST} or later"
        raise Fault(Trouble.REFUSED, f"version {version.major}.{version.minor}", hint=hint)
    calls = "".join(f", set_config(${i}, ${i + 1}, false)" for i in range(1, 2 * len(settings), 2))
    query = f"""
        WITH before AS MATERIALIZED (SELECT current_setting('{_MARK}', true) AS mark)
        SELECT mark, set_config('{_MARK}', 'on', false){calls} FROM before
    """  # noqa: S608 - constants
    with faults():
        values = (part for item in settings.items() for part in item)
        row = await raw.fetchrow(query, *values, timeout=CONNECT_TIMEOUT)
    if row[0]:
        hint = (
            "a pooler gave out a session that others use: let it pool by session "
            "(PgBouncer: pool_mode = session, server_reset_query = DISCARD ALL)"
        )
        raise Fault(Trouble.REFUSED, f"{_MARK} is {row[0]} already", hint=hint)


class PostgresDriver:
    """Connects to one database.

    Args:
        dsn: as asyncpg takes it: a URL, with its password and options.
        url: for messages.
        durable: whether a commit waits until it survives power loss.

    Raises:
        InvalidStoreUrl: see `parts_of`.
    """

    def __init__(self, dsn: str, url: str, *, durable: bool = True) -> None:
        self.dialect: Dialect = PostgresDialect()
        self.url = url
        self._parts = parts_of(dsn)
        synchronous = "on" if durable else "off"
        self._settings = {**self._parts.settings, **SETTINGS, "synchronous_commit": synchronous}

    async def _connect(self, **settings: str) -> Any:
        parts = self._parts
        try:
            with faults():
                raw = await _connect(
                    parts.dsn,
                    service=parts.service,
                    servicefile=parts.servicefile,
                    timeout=parts.timeout or CONNECT_TIMEOUT,
                    command_timeout=COMMAND_TIMEOUT,
                )
        except (ValueError, OverflowError):  # it quotes what it cannot read
            said = "a host, port or another option has a value that asyncpg does not take"
            raise Fault(Trouble.REFUSED, said) from None
        try:
            with faults():
                hold(raw._transport.get_extra_info("socket"), parts.sockets)  # noqa: SLF001 - it has no other way
            await _settle(raw, {**self._settings, **settings})
        except BaseException:
            raw.terminate()
            raise
        return raw

    async def connect(self) -> PostgresConnection:
        """A new connection."""
        return PostgresConnection(await self._connect())

    async def bell(self, heard: Callable[[Sequence[bytes]], None]) -> PostgresBell:
        """A new bell, on a connection of its own."""
        # To tell something is a transaction that would otherwise wait for the disk.
        raw = await self._connect(synchronous_commit="off")
        try:
            return await PostgresBell.made(raw, heard)
        except BaseException:
            raw.terminate()
            raise
