"""The MySQL store, also for MariaDB, on asyncmy; the extra `mysql`."""

from turnlog.stores.mysql.store import open_mysql

__all__ = ["open_mysql"]
