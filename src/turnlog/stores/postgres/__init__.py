"""The PostgreSQL store, on asyncpg; the extra `postgres`."""

