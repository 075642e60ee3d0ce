"""The MySQL store, also for MariaDB, on asyncmy; the extra `mysql`."""
