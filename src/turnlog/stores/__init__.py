"""Stores, and `open_store`: the only registry of them.

memory:             forgets; `memory:NAME` is shared within the process
jsonl:DIR           a folder of JSONL files; `jsonl:DIR?compress=zstd` compresses them
sqlite:FILE         one SQLite file
postgresql://…      a database of a PostgreSQL server, also postgres://
mysql://…           a database of a MySQL or MariaDB server, also mariadb://
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, get_args
from urllib.parse import parse_qsl

from turnlog.errors import InvalidStoreUrl, MissingExtra
from turnlog.stores.port import Durability
from turnlog.stores.server.urls import shown, unreadable

if TYPE_CHECKING:
    from turnlog.stores.metrics import WriterMetrics
    from turnlog.stores.port import SessionEventStore
    from turnlog.stores.store import Store


def open_store(
    url: str,
    *,
    create: bool = True,
    durability: Durability = "turn",
    metrics: WriterMetrics | None = None,
) -> Store:
    """The store at `url`, to be used with `async with`.

    Args:
        url: `memory:`, `memory:NAME`, `jsonl:DIR`, `jsonl:DIR?compress=zstd`, `sqlite:FILE`,
            `postgresql://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=…`,
            `mysql://USER:PASSWORD@HOST:PORT/DATABASE?ssl-mode=…`.
        create: make the store if it is not there, with the folders above a file. Without it,
            entering raises `StoreError` then, and a mistyped name leaves nothing behind.
        durability: "turn" (every 200 ms and at each flush, survives power loss), "event" (at
            once), "none" (survives the process only).
        metrics: who is told what the store's writer does; `turnlog.telemetry.writer_metrics()`
            hands it on to OpenTelemetry.

    Raises:
        InvalidStoreUrl: no such kind of store; the message lists them.
        MissingExtra: the store needs a package that is not installed.
    """
    from turnlog.stores.store import Store

    if durability not in get_args(Durability):
        msg = f"expected durability event, turn or none, got {durability!r}"
        raise InvalidStoreUrl(msg)
    scheme, colon, rest = url.partition(":")
    opener = _OPENERS.get(scheme)
    if not colon or opener is None:
        known = ", ".join(f"{name}:" for name in _OPENERS)
        msg = f"no store {shown(url)!r}: a store URL begins with one of {known}"
        raise InvalidStoreUrl(msg)
    if "\0" in url:
        msg = f"no store {shown(url)!r}: no name holds a NUL"
        raise InvalidStoreUrl(msg)
    place, mark, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if mark and not options:
        options = {query: ""}
    if create:
        return Store(opener(url, place, options, durability), metrics=metrics)
    if scheme == "memory":
        msg = f"{url}: a store in memory is always made when it is opened: no create=False"
        raise InvalidStoreUrl(msg)
    from turnlog.stores.existing import ExistingStore

    backend = opener(url, place, options, durability)
    path = _path(url, place) if scheme in ("jsonl", "sqlite") else None
    return ExistingStore(backend, path, metrics=metrics)


def _memory(
    url: str, place: str, options: dict[str, str], durability: Durability
) -> SessionEventStore:
    from turnlog.stores.memory import MemoryStorage, MemoryStore

    del durability
    _no_more(url, options)
    if not place:
        return MemoryStore(url=url)
    return MemoryStore(MemoryStorage.named.setdefault(place, MemoryStorage()), url)


def _jsonl(
    url: str, place: str, options: dict[str, str], durability: Durability
) -> SessionEventStore:
    from turnlog.stores.jsonl import JsonlStore

    compress = options.pop("compress", "none")
    if compress not in ("none", "zstd"):
        msg = f"{url}: expected compress=zstd or none, got {compress!r}"
        raise InvalidStoreUrl(msg)
    _no_more(url, options)
    if not place:
        msg = "jsonl: needs a folder, as in jsonl:./sessions"
        raise InvalidStoreUrl(msg)
    return JsonlStore(_path(url, place), durability=durability, compress=compress == "zstd")


def _sqlite(
    url: str, place: str, options: dict[str, str], durability: Durability
) -> SessionEventStore:
    from turnlog.stores.sqlite import SqliteStore

    _no_more(url, options)
    if not place:
        msg = "sqlite: needs a file, as in sqlite:./sessions.db"
        raise InvalidStoreUrl(msg)
    if place == ":memory:":
        msg = f"{url}: a store that forgets is called memory:"
        raise InvalidStoreUrl(msg)
    return SqliteStore(_path(url, place, "utf-8"), durability=durability)


def _postgres(
    url: str, place: str, options: dict[str, str], durability: Durability
) -> SessionEventStore:
    del options
    _check_server(url, place)
    try:
        from turnlog.stores.postgres import open_postgres
    except ModuleNotFoundError as error:
        raise _missing(error, "asyncpg", "postgres") from error
    return open_postgres(url, durability)


def _mysql(
    url: str, place: str, options: dict[str, str], durability: Durability
) -> SessionEventStore:
    del options
    _check_server(url, place)
    try:
        from turnlog.stores.mysql import open_mysql
    except ModuleNotFoundError as error:
        raise _missing(error, "asyncmy", "mysql") from error
    return open_mysql(url, durability)


def _check_server(url: str, place: str) -> None:
    if not place.startswith("//"):
        raise unreadable(url)


def _missing(error: ModuleNotFoundError, package: str, extra: str) -> Exception:
    if error.name != package:
        return error
    return MissingExtra(f"needs {package}, which is not installed: pip install 'turnlog[{extra}]'")


def _path(url: str, place: str, encoding: str | None = None) -> Path:
    """The path that a URL names.

    Args:
        url: for messages.
        place: see above.
        encoding: which the name must have; by default the file system's.
    """
    try:
        if encoding is None:
            os.fsencode(place)
        else:
            place.encode(encoding)
        return Path(place).expanduser()
    except (UnicodeEncodeError, RuntimeError) as error:  # not to be encoded; no such user
        msg = f"{url!r}: no file can be named so: {error}"
        raise InvalidStoreUrl(msg) from error


def _no_more(url: str, options: dict[str, str]) -> None:
    if options:
        msg = (
            f"{url}: unknown option {next(iter(options))!r}: what follows a ? are options, so a "
            "file whose name has one cannot be named"
        )
        raise InvalidStoreUrl(msg)


_OPENERS: dict[str, Callable[[str, str, dict[str, str], Durability], SessionEventStore]] = {
    "memory": _memory,
    "jsonl": _jsonl,
    "sqlite": _sqlite,
    "postgresql": _postgres,
    "postgres": _postgres,
    "mysql": _mysql,
    "mariadb": _mysql,
}

__all__ = ["open_store"]
