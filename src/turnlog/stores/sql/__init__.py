"""What SQL stores share: events as rows and back. No driver is imported here."""

from turnlog.stores.sql.chunks import ChunkRow, from_chunks, is_packable, repack
from turnlog.stores.sql.packing import BadRow
from turnlog.stores.sql.rows import EventRow, Rows, from_row, from_rows, to_rows

__all__ = [
    "BadRow",
    "ChunkRow",
    "EventRow",
    "Rows",
    "from_chunks",
    "from_row",
    "from_rows",
    "is_packable",
    "repack",
    "to_rows",
]
