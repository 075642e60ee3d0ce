"""SQLite: all sessions of a store in one file."""

from __future__ import annotations

from turnlog.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
