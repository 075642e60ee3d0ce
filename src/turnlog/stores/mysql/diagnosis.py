"""What is to be said of a MySQL or MariaDB server, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.stores.upkeep import Diagnosed

if TYPE_CHECKING:
    from turnlog.stores.server.driver import Connection

_ABOUT = """
    SELECT VERSION(), CURRENT_USER(), DATABASE(), @@read_only, @@innodb_flush_log_at_trx_commit,
    @@max_allowed_packet, @@log_bin, @@binlog_format, @@sync_binlog, @@innodb_ft_min_token_size
"""
_LARGEST = 64 << 20  # bytes of a payload that turnlog takes
_SHORTEST = 3  # letters of a word in the index of searches


async def diagnose(db: Connection) -> list[Diagnosed]:
    """The version, and what of its settings is not safe, or not enough."""
    (row,) = await db.fetch(_ABOUT)
    version, user, database, read_only, flushed, packet, logged, form, synced, shortest = row
    found = [Diagnosed("MySQL", "ok", f"{version}, as {user} in database {database}")]
    if read_only:
        detail = "the server is read-only, a replica perhaps: name the one that is written to"
        found.append(Diagnosed("MySQL", "failed", detail))
    if logged and form == "STATEMENT":
        detail = "binlog_format is STATEMENT: InnoDB refuses to write so; set it to MIXED or ROW"
        found.append(Diagnosed("MySQL", "failed", detail))
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
    return found
