"""What a URL says of how to connect, and what of the session's settings."""

from __future__ import annotations

import os
from configparser import ConfigParser
from configparser import Error as Unreadable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlencode

from turnlog.errors import InvalidStoreUrl
from turnlog.stores.server.urls import is_port, options_of_url, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The options of libpq that asyncpg reads from a URL, and `options`, which only a new session
#: takes.
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
_KEEPING = ("keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count")
_NUMBERS = ("connect_timeout", *_KEEPING, "tcp_user_timeout")

# Options of libpq that have a meaning only with code that asyncpg does not have -> the values that
# ask for none of it.
_WITHOUT: Mapping[str, tuple[str, ...]] = {
    "channel_binding": ("disable", "prefer"),
    "gssdelegation": ("0",),
    "gssencmode": ("disable", "prefer"),
    "hostaddr": (),
    "load_balance_hosts": ("disable",),
    "max_protocol_version": ("3.0", "latest"),
    "min_protocol_version": ("3.0",),
    "replication": ("false", "off", "no", "0"),
    "require_auth": (),
    "requirepeer": (),
    "requiressl": (),
    "scram_client_key": (),
    "scram_server_key": (),
    "sslcertmode": ("allow",),
    "sslcompression": ("0", "1"),  # libpq ignores it, too
    "sslcrldir": (),
    "sslkeylogfile": (),
    "sslsni": ("1",),
}
_INSTEAD = {
    "channel_binding": "leave it out; sslmode=verify-full keeps out who stands in between, too",
    "hostaddr": "name the address as the host",
    "load_balance_hosts": "leave it out; hosts are tried in their order",
    "requiressl": "sslmode=require says that",
    "sslcrldir": "sslcrl names a file",
}
# The files of TLS: option -> environment variable.
_TLS_FILES = {
    "sslcert": "PGSSLCERT",
    "sslcrl": "PGSSLCRL",
    "sslkey": "PGSSLKEY",
    "sslrootcert": "PGSSLROOTCERT",
}


class Parts(NamedTuple):
    """What a URL says.

    Attributes:
        dsn: what asyncpg is to be told, with a password if there is one.
        service: the name of a service in `servicefile`, and that file; or None.
        settings: of the session.
        timeout: seconds that connecting may take; None for what is usual.
        sockets: numbers for the connection's socket, by the names that libpq has for them.
    """

    dsn: str
    service: str | None
    servicefile: str | None
    settings: dict[str, str]
    timeout: float | None
    sockets: dict[str, int]


def parts_of(url: str) -> Parts:
    """What a URL says.

    Raises:
        InvalidStoreUrl: it cannot be read, asks for what cannot be had here, or names a file or a
            service that is not there.
    """
    said = shown(url)
    options = options_of_url(url)
    _check_lacking(options, said)
    _check_files(options, said)
    service = options.pop("service", None)
    file = options.pop("servicefile", None)
    if service is not None:
        file = _service_file(service, file, said)
    options.pop("fallback_application_name", None)  # it has a name
    for port in options.get("port", "").split(","):
        if port and not is_port(port):
            raise InvalidStoreUrl(f"{said}: expected a port from 1 to 65535, got {port!r}")
    numbers = {name: _number(name, options.pop(name), said) for name in _NUMBERS if name in options}
    timeout = numbers.pop(
        "connect_timeout", 0
    )  # of libpq's; no limit, which is 0, is the usual one
    kept = {name: value for name, value in options.items() if name in CONNECTING}
    settings = {name: value for name, value in options.items() if name not in CONNECTING}
    dsn = _readable(url.partition("?")[0])
    if kept:
        dsn = f"{dsn}?{urlencode(kept, quote_via=quote)}"
    return Parts(dsn, service, file, settings, timeout if timeout > 0 else None, numbers)


def _readable(place: str) -> str:
    """The place as asyncpg reads it, for which the host is after the first @."""
    scheme, _, rest = place.partition("://")
    authority, slash, path = rest.partition("/")
    user, at, hosts = authority.rpartition("@")
    for letter in "@[]":
        user = user.replace(letter, quote(letter))
    return f"{scheme}://{user}{at}{hosts}{slash if path else ''}{path}"


def _number(name: str, value: str, said: str) -> int:
    try:
        return int(value)
    except ValueError:
        msg = f"{said}: expected {name} to be a whole number, got {value!r}"
        raise InvalidStoreUrl(msg) from None


def _check_lacking(options: dict[str, str], said: str) -> None:
    """Refuse what cannot be had, and take away what asks for nothing."""
    for name in [name for name in options if name in _WITHOUT]:
        value = options.pop(name)
        if value not in _WITHOUT[name]:
            asked = name if name.startswith("scram") else f"{name}={value}"
            msg = f"{said}: {asked} cannot be had here: {_INSTEAD.get(name, 'leave it out')}"
            raise InvalidStoreUrl(msg)


def _check_files(options: Mapping[str, str], said: str) -> None:
    """Refuse files of TLS that cannot be read: asyncpg would not say which."""
    mode = options.get("sslmode") or os.environ.get("PGSSLMODE") or "prefer"
    if mode == "disable":
        return
    verifying = mode in ("require", "verify-ca", "verify-full")
    for option, variable in _TLS_FILES.items():
        named = options.get(option)
        if not named and (verifying or option in ("sslcert", "sslkey")):
            named = os.environ.get(variable)
        if not named:
            continue
        try:
            with Path(named).open("rb"):
                pass
        except OSError as error:
            which = option if options.get(option) else variable
            why = error.strerror or str(error)
            if named == "system":
                why = "expected a file, such as /etc/ssl/certs/ca-certificates.crt"
            msg = f"{said}: {which} {named!r} cannot be read: {why}"
            raise InvalidStoreUrl(msg) from error


def _service_file(service: str, file: str | None, said: str) -> str:
    """The file in which a service is, which asyncpg would connect without."""
    name = file or os.environ.get("PGSERVICEFILE") or str(Path("~/.pg_service.conf").expanduser())
    known = ConfigParser()
    try:
        found = known.read(name)
        _ = [dict(known[section]) for section in known.sections()]  # fills in what has a %
    except (Unreadable, UnicodeDecodeError):  # it would quote a password
        msg = f"{said}: the file of services {name!r} cannot be read as one"
        raise InvalidStoreUrl(msg) from None
    if service not in known.sections():
        where = f"there is no service {service!r} in" if found else "there is no file of services"
        raise InvalidStoreUrl(f"{said}: {where} {name!r}")
    return name
