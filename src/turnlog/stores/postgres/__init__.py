"""The PostgreSQL store, on asyncpg; the extra `postgres`."""

from turnlog.stores.postgres.store import open_postgres

__all__ = ["open_postgres"]
