"""How long a silent connection is held: options of libpq that asyncpg does not have."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# libpq's name -> that of the socket's option, where the operating system has it; all but the last
# in seconds, or a number of probes.
_OPTIONS = {
    "keepalives_idle": "TCP_KEEPIDLE",
    "keepalives_interval": "TCP_KEEPINTVL",
    "keepalives_count": "TCP_KEEPCNT",
    "tcp_user_timeout": "TCP_USER_TIMEOUT",  # milliseconds
}


def hold(sock: socket.socket, numbers: Mapping[str, int]) -> None:
    """Set what was asked for on a connection's socket.

    As with libpq 0 is the operating system's own value, what that does not have is left out, and a
    socket that is no network's has none of it.

    Args:
        sock: of the connection.
        numbers: `keepalives` and others, by libpq's names.

    Raises:
        OSError: the operating system takes no such number.
    """
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    kept = numbers.get("keepalives", 1) != 0
    if any(name.startswith("keepalives") for name in numbers):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, kept)
    for name, option in _OPTIONS.items():
        number = numbers.get(name, 0)
        wanted = number > 0 and (kept or name == "tcp_user_timeout")
        if wanted and hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), number)
