"""What a URL says of how to connect, and what of the session's settings."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, urlencode

from turnlog.errors import InvalidStoreUrl
from turnlog.stores.server.urls import shown

#: The options of libpq that asyncpg reads itself, and `options`, which only a new session takes.
CONNECTING = frozenset(
    {
        "database",
        "dbname",
        "gsslib",
        "host",
        "krbsrvname",
        "options",
        "passfile",
        "password",
        "port",
        "service",
        "servicefile",
        "sslcert",
        "sslcrl",
        "sslkey",
        "sslmode",
        "sslnegotiation",
        "sslpassword",
        "sslrootcert",
        "ssl_max_protocol_version",
        "ssl_min_protocol_version",
        "target_session_attrs",
        "user",
    }
)


def parts_of(url: str) -> tuple[str, dict[str, str]]:
    """The URL with the options of connecting alone, and the settings of the session.

    Raises:
        InvalidStoreUrl: what follows the `?` are no options.
    """
    place, mark, query = url.partition("?")
    if not mark:
        return url, {}
    try:
        options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=True))
    except ValueError as error:
        msg = f"{shown(url)}: expected options as in ?name=value&name=value"
        raise InvalidStoreUrl(msg) from error
    kept = {name: value for name, value in options.items() if name in CONNECTING}
    settings = {name: value for name, value in options.items() if name not in CONNECTING}
    return f"{place}?{urlencode(kept, quote_via=quote)}" if kept else place, settings
