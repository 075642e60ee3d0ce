"""`mysql:` and `mariadb:` URLs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.stores.mysql.driver import MySqlDriver
from turnlog.stores.mysql.urls import options_of
from turnlog.stores.server.store import ServerStore
from turnlog.stores.server.urls import shown

if TYPE_CHECKING:
    from turnlog.stores.port import Durability


def open_mysql(url: str, durability: Durability) -> ServerStore:
    """The store in a database of a MySQL or MariaDB server; nothing is connected yet.

    Args:
        url: `mysql://USER:PASSWORD@HOST:PORT/DATABASE?…`, see `options_of`.
        durability: whether a commit waits for the server's disk is a setting of the whole server,
            not of ours; it does so unless someone told it otherwise.

    Raises:
        InvalidStoreUrl: it says something else.
    """
    said = shown(url)
    return ServerStore(MySqlDriver(options_of(url, said), said), durability=durability)
