"""What a URL says of how to connect."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from turnlog.errors import InvalidStoreUrl
from turnlog.stores.server.urls import options_of_url, unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping

_MODES = ("DISABLED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
_TLS = ("ssl-mode", "ssl-ca", "ssl-capath", "ssl-cert", "ssl-key")


def options_of(url: str, shown: str) -> dict[str, Any]:
    """What asyncmy is to be told.

    Args:
        url: `mysql://USER:PASSWORD@HOST:PORT/DATABASE?unix_socket=…&ssl-mode=…&ssl-ca=…`.
            Where it has no password, that is in `MYSQL_PWD`, as for MySQL's own programs.
        shown: the same for messages, without a password.

    Raises:
        InvalidStoreUrl: it says something else, or names a file that cannot be read.
    """
    query = options_of_url(url)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # which may quote a piece of a password
        raise unreadable(url) from None
    database = unquote(parts.path.removeprefix("/"))
    if not database:
        msg = f"{shown}: it names no database, as mysql://USER@HOST/DATABASE does"
        raise InvalidStoreUrl(msg)
    tls = {name: query.pop(name) for name in _TLS if name in query}
    socket = query.pop("unix_socket", None)
    if query:
        known = ", ".join(("unix_socket", *_TLS))
        msg = f"{shown}: unknown option {next(iter(query))!r}; there are {known}"
        raise InvalidStoreUrl(msg)
    word = os.environ.get("MYSQL_PWD", "") if parts.password is None else unquote(parts.password)
    return {
        "host": parts.hostname or "localhost",
        "port": port or 3306,
        "unix_socket": socket,
        "user": unquote(parts.username) if parts.username is not None else None,
        "password": word.encode(),
        "database": database,
        "ssl": _context(tls, shown),
    }


def _context(tls: Mapping[str, str], shown: str) -> ssl.SSLContext | None:
    """How to encrypt; None for not at all. Names are those of MySQL's own programs.

    What names an authority has its server's certificate and name verified, unless it says less.
    """
    authority = tls.get("ssl-ca"), tls.get("ssl-capath")
    mode = tls.get("ssl-mode", "VERIFY_IDENTITY" if any(authority) else "").upper()
    if not mode:
        mode = "REQUIRED" if tls else "DISABLED"
    if mode not in _MODES:
        msg = f"{shown}: expected ssl-mode to be one of {', '.join(_MODES)}, got {mode}"
        raise InvalidStoreUrl(msg)
    if mode == "DISABLED":
        return None
    for name, file in tls.items():
        if name != "ssl-mode":
            _check_file(name, file, shown)
    try:
        context = ssl.create_default_context(cafile=authority[0], capath=authority[1])
        if "ssl-cert" in tls:
            context.load_cert_chain(tls["ssl-cert"], tls.get("ssl-key"))
    except OSError as error:
        msg = f"{shown}: a file of its TLS options cannot be used: {error}"
        raise InvalidStoreUrl(msg) from error
    context.check_hostname = mode == "VERIFY_IDENTITY"
    if mode == "REQUIRED":
        context.verify_mode = ssl.CERT_NONE
    return context


def _check_file(option: str, name: str, shown: str) -> None:
    """Refuse a file, or folder, that cannot be read: what is raised later does not name it."""
    path = Path(name)
    try:
        if path.is_dir():
            next(path.iterdir(), None)
        else:
            with path.open("rb"):
                pass
    except OSError as error:
        why = error.strerror or str(error)
        msg = f"{shown}: {option} {name!r} of its TLS options cannot be used: {why}"
        raise InvalidStoreUrl(msg) from error
