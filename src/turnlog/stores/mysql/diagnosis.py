"""What is to be said of a MySQL or MariaDB server, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.stores.server.driver import Fault, Trouble
from turnlog.stores.server.privileges import RIGHTS, TABLES, judged
from turnlog.stores.upkeep import Diagnosed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnlog.stores.server.driver import Connection

_ABOUT = """
    SELECT VERSION(), CURRENT_USER(), DATABASE(), @@read_only, @@innodb_flush_log_at_trx_commit,
    @@max_allowed_packet, @@log_bin, @@binlog_format, @@sync_binlog, @@innodb_ft_min_token_size
"""
_NEEDING = {
    "SELECT": "EXPLAIN SELECT session FROM {}",
    "INSERT": "EXPLAIN INSERT INTO {} ({columns}) SELECT {nulls} FROM DUAL WHERE 0",
    "UPDATE": "EXPLAIN UPDATE {} SET session = '' WHERE 0",
    "DELETE": "EXPLAIN DELETE FROM {} WHERE 0",
}
_NO_TABLE = "1146"
_LARGEST = 64 << 20  # bytes of a payload that turnlog takes
_SHORTEST = 3  # letters of a word in the index of searches


async def diagnose(db: Connection) -> list[Diagnosed]:
    """The version, and what of its settings is not safe, or not enough."""
    (row,) = await db.fetch(_ABOUT)
    version, user, database, read_only, flushed, packet, logged, form, synced, shortest = row
    kind = "MariaDB" if "mariadb" in version.lower() else "MySQL"
    found = [Diagnosed(kind, "ok", f"{version}, as {user} in database {database}")]
    if read_only:
        detail = "the server is read-only, a replica perhaps: name the one that is written to"
        found.append(Diagnosed(kind, "failed", detail))
    if logged and form == "STATEMENT":
        detail = "binlog_format is STATEMENT: InnoDB refuses to write so; set it to MIXED or ROW"
        found.append(Diagnosed(kind, "failed", detail))
    unsafe = [f"innodb_flush_log_at_trx_commit is {flushed}"] if flushed != 1 else []
    unsafe += [f"sync_binlog is {synced}"] if logged and synced != 1 else []
    for setting in unsafe:
        detail = f"{setting}: the last commits before a crash of its machine are lost; set it to 1"
        found.append(Diagnosed("server durability", "warning", detail))
    if shortest > _SHORTEST:
        detail = (
            f"innodb_ft_min_token_size is {shortest}: searches do not find short words; set it to "
            f"{_SHORTEST}, and make the index of search_words again"
        )
        found.append(Diagnosed("search", "warning", detail))
    if packet <= _LARGEST:
        detail = (
            f"max_allowed_packet is {packet:,} bytes: what is larger is refused, up to "
            f"{_LARGEST:,} would be taken; raise it"
        )
        found.append(Diagnosed("max_allowed_packet", "warning", detail))
    rights = RIGHTS[:1] if read_only else RIGHTS  # what is refused to all says nothing of this user
    found.append(judged(user, await _lacking(db, rights), _grant(user, database)))
    return found


async def _lacking(db: Connection, rights: Sequence[str]) -> list[tuple[str, str]]:
    """The tables with what of these the user may not do there.

    Roles and patterns make the server's own lists of privileges hard to read. To explain a
    statement takes those of the statement, and does nothing.
    """
    lacking: list[tuple[str, str]] = []
    for table in TABLES:
        nulls = ", ".join("NULL" for _ in table.columns)
        for right in rights:
            statement = _NEEDING[right].format(table.name, columns=table.names, nulls=nulls)
            try:
                await db.fetch(statement)
            except Fault as fault:
                if fault.trouble is Trouble.REFUSED:
                    lacking.append((table.name, right))
                elif fault.code != _NO_TABLE:
                    raise
    return lacking


def _grant(user: str, database: str) -> str:
    """The statement that lets a user do all that a process does."""
    name, _, host = user.rpartition("@")
    whom = "@".join("'{}'".format(part.replace("'", "''")) for part in (name, host))
    place = "`{}`".format(database.replace("`", "``"))
    return f"GRANT {', '.join(RIGHTS)} ON {place}.* TO {whom}"
