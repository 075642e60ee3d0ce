"""What is to be said of a MySQL or MariaDB server, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.stores.upkeep import Diagnosed

if TYPE_CHECKING:
    from turnlog.stores.server.driver import Connection

_ABOUT = """
    SELECT VERSION(), CURRENT_USER(), DATABASE(), @@read_only, @@innodb_flush_log_at_trx_commit,
    @@max_allowed_packet
"""
_LARGEST = 64 << 20  # bytes of a payload that turnlog takes


async def diagnose(db: Connection) -> list[Diagnosed]:
    """The version, and what of its settings is not safe, or not enough."""
    ((version, user, database, read_only, flushed, packet),) = await db.fetch(_ABOUT)
    found = [Diagnosed("MySQL", "ok", f"{version}, as {user} in database {database}")]
    if read_only:
        detail = "the server is read-only, a replica perhaps: name the one that is written to"
        found.append(Diagnosed("MySQL", "failed", detail))
    if flushed != 1:
        detail = (
            f"innodb_flush_log_at_trx_commit is {flushed}: the last commits before a crash of its "
            "machine are lost; set it to 1"
        )
        found.append(Diagnosed("server durability", "warning", detail))
    if packet <= _LARGEST:
        detail = (
            f"max_allowed_packet is {packet:,} bytes: what is larger is refused, up to "
            f"{_LARGEST:,} would be taken; raise it"
        )
        found.append(Diagnosed("max_allowed_packet", "warning", detail))
    return found
