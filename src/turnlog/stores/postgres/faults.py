"""What asyncpg raises, in our own words."""

from __future__ import annotations

import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from turnlog.stores.server.driver import Fault, Trouble

if TYPE_CHECKING:
    from collections.abc import Generator

_BY_CODE = {
    "0A000": Trouble.OTHER,
    "23505": Trouble.TAKEN,
    "25006": Trouble.READ_ONLY,
    "25P03": Trouble.LOST,  # idle in a transaction for too long
    "26000": Trouble.REFUSED,  # a prepared statement that is another session's
    "3D000": Trouble.REFUSED,  # no such database
    "3F000": Trouble.OTHER,  # no such schema
    "42501": Trouble.REFUSED,  # no privilege
    "42P05": Trouble.REFUSED,  # a prepared statement that another client made
    "53300": Trouble.LOST,  # too many connections
    "55P03": Trouble.BUSY,  # a lock not had in time
    "57014": Trouble.BUSY,  # a statement not done in time
    "57P01": Trouble.LOST,
    "57P02": Trouble.LOST,
    "57P03": Trouble.LOST,  # it is starting, or stopping
    "57P05": Trouble.LOST,
}
_BY_CLASS = {
    "08": Trouble.LOST,
    "28": Trouble.REFUSED,
    "40": Trouble.BUSY,
    "53": Trouble.FULL,
    "54": Trouble.TOO_LARGE,
}

_POOLED = (
    "a pooler gives each transaction another session: let it pool by session (PgBouncer: "
    "pool_mode = session)"
)
# SQLSTATE -> what to do about it.
_HINTS = {
    "26000": _POOLED,
    "42P05": _POOLED,
    "28P01": "the password is not this user's: give it in the URL, in PGPASSWORD or in ~/.pgpass",
    "28000": "the server lets this user not in from here: see the role and pg_hba.conf",
    "3D000": "there is no such database: createdb makes one",
    "25006": "the server is read-only: a standby (name its primary), or "
    "default_transaction_read_only is on, in the URL, for the user or for the database",
    "3F000": "there is no such schema, or this user may not use it: CREATE SCHEMA makes one, GRANT "
    "USAGE ON SCHEMA lets the user in, search_path in the URL names it",
    "42501": "this user lacks a privilege: GRANT SELECT, INSERT, UPDATE, DELETE on the tables, and "
    "USAGE on the schema, or run turnlog migrate as the tables' owner",
    "53100": "the server's disk is full: free some space, and try again",
    "53300": "the server has no connection left: raise max_connections, or let fewer processes "
    "connect",
    "57P03": "the server is starting or stopping: try again in a moment",
}
_NOT_SURE = (
    "the server is not who the URL says, or is unknown: see sslrootcert, which signed its "
    "certificate, and the host, which is to be named in it"
)
_BAD_FILE = "a file of the TLS options is not what it should be: see sslrootcert, sslcert, sslkey"
_NO_TLS = (
    "who answers there has no TLS, or is no PostgreSQL server: see the host, the port, sslmode, "
    "and ssl in the server's configuration"
)
_CERTIFICATE = (
    "the server does not accept this client's certificate: see sslcert, sslkey, and the server's "
    "ssl_ca_file"
)


def _tls(error: Exception) -> str:
    """What to do about a fault that the next attempt will meet again; "" if it is none of TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _NOT_SURE
    if isinstance(error, ssl.SSLError):
        reason: str = error.reason or ""
        if error.library not in (None, "SSL") or "PEM lib" in str(error):  # what reads files
            return _BAD_FILE
        return _CERTIFICATE if "ALERT" in reason and _of_client(reason) else ""
    if isinstance(error, ConnectionError) and "rejected SSL upgrade" in str(error):
        return _NO_TLS
    return ""


def _of_client(reason: str) -> bool:
    return "CERTIFICATE" in reason or "UNKNOWN_CA" in reason


def trouble_of(error: Exception) -> Trouble:
    """What kind of trouble an exception of asyncpg's, or of its connection's, is."""
    if isinstance(error, asyncpg.InvalidCachedStatementError):
        return Trouble.BUSY  # a table changed under a prepared statement: the next one fits
    if isinstance(error, asyncpg.PostgresError):
        code: str = getattr(error, "sqlstate", None) or ""
        return _BY_CODE.get(code) or _BY_CLASS.get(code[:2]) or Trouble.OTHER
    if _tls(error):
        return Trouble.REFUSED
    if isinstance(error, (OSError, TimeoutError, EOFError, asyncpg.InternalClientError)):
        return Trouble.LOST
    if isinstance(error, asyncpg.InterfaceError) and "closed" in str(error):
        return Trouble.LOST
    return Trouble.OTHER


def _said(error: Exception) -> str:
    """What it says, where asyncpg means its own programmers in words of ours."""
    said = str(error)
    if said == "unexpected connection_lost() call":
        return "who answered there said nothing, and hung up"
    if isinstance(error, TimeoutError) and not said:
        return "there was no answer in time"
    return said or type(error).__name__


@contextmanager
def faults() -> Generator[None]:
    """Turn what asyncpg raises into a `Fault`."""
    try:
        yield
    except (
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
        OSError,
        EOFError,
    ) as error:
        code = getattr(error, "sqlstate", None) or ""
        said = _said(error)
        hint = _HINTS.get(code, "") or _tls(error)
        if hint is _POOLED:
            said = said.partition("\n")[0]  # what follows is advice of asyncpg's, for its own users
        raise Fault(trouble_of(error), said, code, hint) from error
