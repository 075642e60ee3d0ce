"""Where one message ends and the next begins, in what clients and database servers say."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Size: TypeAlias = "Callable[[bytes], int]"
"""The bytes of the message at the beginning of some bytes; 0 where they are too few to tell."""

_LENGTH = 4  # bytes, in PostgreSQL, which count themselves
_ASKS = (80877103, 80877104)  # for TLS, for GSSAPI: the answer is one byte
_CANCELS = 80877102


class PostgresWire:
    """One connection in PostgreSQL's protocol, version 3, without TLS."""

    def __init__(self) -> None:
        self._greeted = False
        self._asked = 0

    def asked(self, data: bytes) -> int:
        """The client's messages: before the greeting they have no type."""
        if self._greeted:
            return _typed(data)
        if len(data) < 2 * _LENGTH:
            return 0
        code = int.from_bytes(data[_LENGTH : 2 * _LENGTH])
        size = int.from_bytes(data[:_LENGTH])
        if len(data) >= size:
            self._asked += code in _ASKS
            self._greeted = code not in (*_ASKS, _CANCELS)
        return size

    def answered(self, data: bytes) -> int:
        """The server's messages."""
        if self._asked:
            self._asked -= 1
            return 1
        return _typed(data)


def _typed(data: bytes) -> int:
    head = 1 + _LENGTH
    return 1 + int.from_bytes(data[1:head]) if len(data) >= head else 0


class MySqlWire:
    """One connection in the protocol of MySQL and MariaDB, without TLS or compression."""

    def asked(self, data: bytes) -> int:
        """The client's packets."""
        return 4 + int.from_bytes(data[:3], "little") if len(data) >= 4 else 0

    def answered(self, data: bytes) -> int:
        """The server's packets."""
        return self.asked(data)


Wire: TypeAlias = "PostgresWire | MySqlWire"


class Messages:
    """Cuts a stream of bytes into messages.

    Args:
        size: how long the first of them is.
    """

    def __init__(self, size: Size) -> None:
        self._size = size
        self._rest = b""

    def of(self, data: bytes) -> list[bytes]:
        """The messages that are complete now that these bytes have come."""
        self._rest += data
        found: list[bytes] = []
        while self._rest:
            size = self._size(self._rest)
            if not 0 < size <= len(self._rest):
                break
            found.append(self._rest[:size])
            self._rest = self._rest[size:]
        return found
