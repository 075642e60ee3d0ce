"""What a URL says of how to connect."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from turnlog.errors import InvalidStoreUrl

if TYPE_CHECKING:
    from collections.abc import Mapping

_MODES = ("DISABLED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
_TLS = ("ssl-mode", "ssl-ca", "ssl-capath", "ssl-cert", "ssl-key")


def options_of(url: str, shown: str) -> dict[str, Any]:
    """What asyncmy is to be told.

    Args:
        url: `mysql://USER:PASSWORD@HOST:PORT/DATABASE?unix_socket=…&ssl-mode=…&ssl-ca=…`.
        shown: the same for messages, without a password.

    Raises:
        InvalidStoreUrl: it says something else.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        msg = f"{shown}: expected mysql://USER:PASSWORD@HOST:PORT/DATABASE"
        raise InvalidStoreUrl(msg) from error
    database = unquote(parts.path.removeprefix("/"))
    if not database:
        msg = f"{shown}: it names no database, as mysql://USER@HOST/DATABASE does"
        raise InvalidStoreUrl(msg)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    tls = {name: query.pop(name) for name in _TLS if name in query}
    socket = query.pop("unix_socket", None)
    if query:
        known = ", ".join(("unix_socket", *_TLS))
        msg = f"{shown}: unknown option {next(iter(query))!r}; there are {known}"
        raise InvalidStoreUrl(msg)
    return {
        "host": parts.hostname or "localhost",
        "port": port or 3306,
        "unix_socket": socket,
        "user": unquote(parts.username) if parts.username is not None else None,
        "password": unquote(parts.password or "").encode(),
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
