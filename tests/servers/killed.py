"""A store on a server of the tests' own that can be crashed and started again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from tests.servers import mariadb, postgres

Kind: TypeAlias = Literal["postgres", "mariadb"]


class Restartable(NamedTuple):
    """The URL of an empty store on a server, and what crashes the server and starts it again."""

    url: str
    restart: Callable[[], None]


def private(kind: Kind) -> Restartable:
    """An empty store on this process's own server of that kind."""
    if kind == "postgres":
        pg = postgres.server()

        def restart() -> None:
            pg.stop()
            pg.start()

        return Restartable(pg.url(pg.new_schema()), restart)
    maria = mariadb.server()

    def restart_maria() -> None:
        maria.stop()
        maria.start()

    return Restartable(maria.url(maria.new_database()), restart_maria)
