"""What asyncmy raises, in our own words."""

from __future__ import annotations

import ssl
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

from asyncmy.errors import Error, InterfaceError, MySQLError

from turnlog.stores.server.driver import Fault, Trouble

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

# By the numbers of MySQL and MariaDB; those of 2000 to 2999 are the client's own.
_NUMBERS: Mapping[Trouble, Iterable[int]] = {
    Trouble.LOST: (
        1040,  # too many connections
        1047,  # a node of a cluster that is not ready
        1053,  # it is stopping
        *(1152, 1158, 1159, 1160, 1161, 1184),  # the network
        1927,  # MariaDB: the connection was killed
        *(2002, 2003, 2006, 2013, 2055),
        4031,  # MySQL: idle for too long
    ),
    Trouble.BUSY: (
        1020,  # MariaDB: the row changed meanwhile
        1205,  # a lock not had in time
        1213,  # a deadlock
        *(1317, 1969, 3024),  # a statement that was ended, or not done in time
        *(1412, 1615),  # a table changed meanwhile
    ),
    Trouble.TAKEN: (1062, 1586),
    Trouble.TOO_LARGE: (1118, 1153, 1197, 1301, 1406, 2020),
    Trouble.FULL: (1021, 1026, 1037, 1038, 1041, 1114, 1206, 1226, 1637),
    Trouble.REFUSED: (
        *(1044, 1045, 1049, 1129, 1130, 1142, 1143, 1227, 1251, 1370, 1410),
        *(1698, 1820, 1862, 2059, 3118, 3159, 4151),
    ),
    Trouble.READ_ONLY: (1036, 1290, 1792, 1836, 1874),
}
_BY_NUMBER = {number: kind for kind, numbers in _NUMBERS.items() for number in numbers}
_GARBLED = (struct.error, AssertionError, LookupError, ValueError)  # of what it cannot read
_PLAIN = "WRONG_VERSION_NUMBER"  # what TLS makes of an answer in clear
_ENGINE = 1030  # what the storage engine said, by its own number
_NO_SPACE = ("error 28 ", "error 122 ", "error 168 ")

_FULL_DISK = "the server's disk is full: free some space, and try again"
_NO_PRIVILEGE = (
    "this user lacks a privilege: GRANT SELECT, INSERT, UPDATE, DELETE on the database's tables, "
    "or run turnlog migrate as one who may make them"
)
_HINTS = {
    1021: _FULL_DISK,
    _ENGINE: _FULL_DISK,
    1044: "there is no such database, or this user has no privilege there: CREATE DATABASE makes "
    "one, GRANT SELECT, INSERT, UPDATE, DELETE on its tables lets the user in",
    1049: "there is no such database: CREATE DATABASE makes one",
    1045: "no such user is let in from here, or the password is not this user's: give it in the "
    "URL or in MYSQL_PWD",
    **dict.fromkeys((1142, 1143), _NO_PRIVILEGE),
    1114: "the server's disk is full, or its limit for the table: free some space, or raise it, "
    "and try again",
}
_NOT_SURE = (
    "the server is not who the URL says, or is unknown: see ssl-ca, which signed its certificate, "
    "and the host, which is to be named in it"
)
_NO_TLS = (
    "who answers there has no TLS, or is no MySQL server: see the host, the port, ssl-mode, and "
    "ssl_cert in the server's configuration"
)


def trouble_of(number: int | None, said: str) -> Trouble:
    """What kind of trouble an error is; the number is None where it is the driver's own."""
    if number == _ENGINE and any(error in said for error in _NO_SPACE):
        return Trouble.FULL
    return Trouble.OTHER if number is None else _BY_NUMBER.get(number, Trouble.OTHER)


def fault_of(error: Exception) -> Fault:
    """What an exception of asyncmy's, or of its connection's, says."""
    if isinstance(error, _GARBLED):
        return Fault(Trouble.LOST, f"what came is nothing that a MySQL server says ({error!r})")
    if not isinstance(error, MySQLError):
        return Fault(Trouble.LOST, str(error) or type(error).__name__)
    if isinstance(error.__cause__, ssl.SSLCertVerificationError):
        return Fault(Trouble.REFUSED, str(error.__cause__), hint=_NOT_SURE)  # by us
    if isinstance(error.__cause__, ssl.SSLError) and error.__cause__.reason == _PLAIN:
        return Fault(Trouble.REFUSED, str(error.__cause__), hint=_NO_TLS)
    number = next((arg for arg in error.args if isinstance(arg, int)), None)
    said = str(error.args[-1]) if error.args else type(error).__name__
    if not number:
        # What came was not the answer to what was sent, or the connection was closed before.
        broken = isinstance(error, InterfaceError) or "equence" in said
        return Fault(Trouble.LOST if broken else Trouble.OTHER, said)
    trouble = trouble_of(number, said)
    hint = "" if trouble is Trouble.OTHER else _HINTS.get(number, "")
    return Fault(trouble, said, str(number), hint)


@contextmanager
def faults() -> Generator[None]:
    """Turn what asyncmy raises into a `Fault`; nothing but asyncmy is to be called in it."""
    try:
        yield
    except (Error, OSError, EOFError, *_GARBLED) as error:
        raise fault_of(error) from error
