"""What is to be said of a PostgreSQL server, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.stores.server.privileges import RIGHTS, TABLES, judged
from turnlog.stores.upkeep import Diagnosed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turnlog.stores.server.driver import Connection

_ABOUT = """
    SELECT current_setting('server_version'), current_user, current_database(), current_schema(),
    quote_ident(current_user), quote_ident(current_schema()), pg_is_in_recovery(),
    current_setting('max_connections')::bigint,
    (SELECT count(*) FROM pg_stat_activity)
"""
_SETTINGS = """
    SELECT current_setting('fsync'), current_setting('full_page_writes'),
    current_setting('synchronous_commit'), current_setting('autovacuum'),
    current_setting('server_encoding'), current_setting('default_transaction_read_only')
"""
_LACKING = """
    SELECT relname::text, one FROM pg_class, unnest(?::text[]) AS one
    WHERE relkind IN ('r', 'p') AND relnamespace = quote_ident(current_schema())::regnamespace
    AND relname = ANY(?::text[]) AND NOT has_table_privilege(oid, one)
"""
_ENCODINGS = ("UTF8", "SQL_ASCII")  # the second takes any bytes
_FEW_LEFT = 10  # connections


async def diagnose(db: Connection) -> list[Diagnosed]:
    """The version, what of its settings is not safe, what we may do."""
    ((version, user, database, schema, whom, where_to, standby, most, used),) = await db.fetch(
        _ABOUT
    )
    (settings,) = await db.fetch(_SETTINGS)
    fsync, full_page_writes, synchronous, autovacuum, encoding, read_only = settings
    where = f"as {user} in schema {schema} of database {database}"
    found = [Diagnosed("PostgreSQL", "ok", f"{version}, {where}")]
    if standby:
        detail = "a standby, which cannot be written to: name the primary"
        found.append(Diagnosed("PostgreSQL", "failed", detail))
    if read_only == "on" and not standby:
        detail = (
            "default_transaction_read_only is on, in the URL, for the user or for the database: "
            "nothing can be written"
        )
        found.append(Diagnosed("PostgreSQL", "failed", detail))
    if reason := unfit(encoding):
        found.append(Diagnosed("PostgreSQL", "failed", reason))
    found += _safety(fsync, full_page_writes, synchronous)
    if autovacuum == "off":
        detail = "autovacuum is off: tables will grow and slow down; switch it on"
        found.append(Diagnosed("PostgreSQL", "warning", detail))
    if most - used < _FEW_LEFT:
        detail = f"{used} of {most} connections are in use: raise max_connections, or pool them"
        found.append(Diagnosed("connections", "warning", detail))
    lacking = await db.fetch(_LACKING, list(RIGHTS), [table.name for table in TABLES])
    grant = f"GRANT {', '.join(RIGHTS)} ON ALL TABLES IN SCHEMA {where_to} TO {whom}"
    found.append(judged(user, ((table, right) for table, right in lacking), grant))
    return found


def unfit(encoding: str) -> str:
    """Why a database of an encoding cannot hold a store, and what to do; "" where it can."""
    if encoding in _ENCODINGS:
        return ""
    return (
        f"the database's encoding is {encoding}, in which searches fail for letters that it does "
        "not have: make another one, CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
    )


def _safety(fsync: str, full_page_writes: str, synchronous: str) -> Iterator[Diagnosed]:
    """What of the server's settings loses what it said was stored."""
    for name, value in (("fsync", fsync), ("full_page_writes", full_page_writes)):
        if value == "off":
            detail = f"{name} is off: a crash of its machine may destroy the database; switch it on"
            yield Diagnosed("server durability", "warning", detail)
    if synchronous == "off":
        detail = "synchronous_commit is off: the last commits before a crash of the server are lost"
        yield Diagnosed("server durability", "warning", detail)
