"""What is to be said of a PostgreSQL server, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.stores.upkeep import Diagnosed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turnlog.stores.server.driver import Connection

_ABOUT = """
    SELECT current_setting('server_version'), current_user, current_database(), current_schema(),
    pg_is_in_recovery(), current_setting('max_connections')::bigint,
    (SELECT count(*) FROM pg_stat_activity)
"""
_SETTINGS = """
    SELECT current_setting('fsync'), current_setting('full_page_writes'),
    current_setting('synchronous_commit'), current_setting('autovacuum')
"""
_TABLES = """
    SELECT relname, has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
    AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE')
    FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = current_schema()::regnamespace
    AND relname IN ('sessions', 'events', 'chunks', 'blobs', 'records', 'inbox', 'posted',
    'search_words', 'search_shadows', 'search_upto')
    ORDER BY relname
"""
_FEW_LEFT = 10  # connections


async def diagnose(db: Connection) -> list[Diagnosed]:
    """The version, what of its settings is not safe, what we may do."""
    ((version, user, database, schema, standby, most, used),) = await db.fetch(_ABOUT)
    ((fsync, full_page_writes, synchronous, autovacuum),) = await db.fetch(_SETTINGS)
    where = f"as {user} in schema {schema} of database {database}"
    found = [Diagnosed("PostgreSQL", "ok", f"{version}, {where}")]
    if standby:
        detail = "a standby, which cannot be written to: name the primary"
        found.append(Diagnosed("PostgreSQL", "failed", detail))
    found += _safety(fsync, full_page_writes, synchronous)
    if autovacuum == "off":
        detail = "autovacuum is off: tables will grow and slow down; switch it on"
        found.append(Diagnosed("PostgreSQL", "warning", detail))
    if most - used < _FEW_LEFT:
        detail = f"{used} of {most} connections are in use: raise max_connections, or pool them"
        found.append(Diagnosed("connections", "warning", detail))
    refused = [name for name, granted in await db.fetch(_TABLES) if not granted]
    if refused:
        detail = (
            f"{user} may not read and change {', '.join(refused)}: GRANT SELECT, INSERT, UPDATE, "
            f"DELETE ON ALL TABLES IN SCHEMA {schema} TO {user}"
        )
        found.append(Diagnosed("privileges", "failed", detail))
    else:
        found.append(Diagnosed("privileges", "ok", "enough"))
    return found


def _safety(fsync: str, full_page_writes: str, synchronous: str) -> Iterator[Diagnosed]:
    """What of the server's settings loses what it said was stored."""
    for name, value in (("fsync", fsync), ("full_page_writes", full_page_writes)):
        if value == "off":
            detail = f"{name} is off: a crash of its machine may destroy the database; switch it on"
            yield Diagnosed("server durability", "warning", detail)
    if synchronous == "off":
        detail = "synchronous_commit is off: the last commits before a crash of the server are lost"
        yield Diagnosed("server durability", "warning", detail)
