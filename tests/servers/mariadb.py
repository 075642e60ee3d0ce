"""A MariaDB server of the tests' own: private, unprivileged, in a temporary folder.

Each process of the tests starts one, at its first use; it ends with the process, however that ends.
Every test gets a database of its own in it. With `TURNLOG_REQUIRE_SERVERS=1` a machine without
MariaDB fails the tests, elsewhere it skips them.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from urllib.parse import quote

import pytest
from asyncmy.connection import Connection

USER = "turnlog"
PASSWORD = "a secret: ü/@"  # noqa: S105 - of a server that only this test reaches
_UNPRIVILEGED = ("mysql", "nobody")
_OPTIONS = {
    # Every commit reaches the system, and survives the server, but nobody waits for the disk.
    "innodb_flush_log_at_trx_commit": "2",
    "innodb_buffer_pool_size": "64M",
    "innodb_log_buffer_size": "4M",
    "key_buffer_size": "1M",
    "aria_pagecache_buffer_size": "4M",
    "innodb_log_file_size": "48M",
    "innodb_doublewrite": "0",
    "innodb_flush_method": "nosync",
    "sync_frm": "0",
    "bind_address": "127.0.0.1",
    "max_connections": "300",
    "performance_schema": "0",
    "skip_name_resolve": "1",
}
_ENDS_IT = 'read _; kill -9 $(cat "$1/pid") 2>/dev/null; rm -rf "$1"'
_STARTS_WITHIN = 60.0  # seconds


class Server:
    """One server. `USER` may do everything; over TCP it is asked for `PASSWORD`."""

    def __init__(
        self, programs: tuple[str, str], within: Path | None = None, **options: str
    ) -> None:
        self._server, installer = programs
        self._options = {**_OPTIONS, **options}
        self.folder = Path(mkdtemp(prefix="turnlog-maria-", dir=within))
        self._as_user = _unprivileged()
        if self._as_user is not None:
            shutil.chown(self.folder, self._as_user)
        self.socket = self.folder / "socket"
        self.port = _free_port()
        self._names = count(1)
        self._process: subprocess.Popen[bytes] | None = None
        installed = subprocess.run(
            [
                installer, "--no-defaults", f"--datadir={self.folder}/data",
                "--auth-root-authentication-method=normal", "--skip-test-db",
                "--skip-name-resolve", "--innodb-log-file-size=48M",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            user=self._as_user,
            check=False,
            timeout=120,
        )  # fmt: skip
        assert installed.returncode == 0, installed.stdout.decode()
        # It is read at the end of this process, whatever its end is.
        self._watcher = subprocess.Popen(
            ["/bin/sh", "-c", _ENDS_IT, "sh", str(self.folder)],
            stdin=subprocess.PIPE,
            user=self._as_user,
            start_new_session=True,
        )
        self.start()
        for host, identified in (("localhost", ""), ("127.0.0.1", f"IDENTIFIED BY '{PASSWORD}'")):
            self.sql(
                f"CREATE USER '{USER}'@'{host}' {identified}",
                f"GRANT ALL ON *.* TO '{USER}'@'{host}' WITH GRANT OPTION",
            )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = [f"--{name}={value}" for name, value in self._options.items()]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._server, "--no-defaults", f"--datadir={self.folder}/data",
                    f"--socket={self.socket}", f"--port={self.port}",
                    f"--pid-file={self.folder}/pid", *options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                user=self._as_user,
                start_new_session=True,
            )  # fmt: skip
        late = time.monotonic() + _STARTS_WITHIN
        while not self._answers():
            running = self._process.poll() is None and time.monotonic() < late
            assert running, (self.folder / "log").read_text()
            time.sleep(0.05)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self.socket))
                return bool(probe.recv(1))
            except OSError:
                return False

    def stop(self, sent: signal.Signals = signal.SIGKILL) -> None:
        """Stop it, unless it stopped itself: SIGKILL is a crash."""
        assert self._process is not None
        self._process.send_signal(sent)
        self._process.wait(60)
        self.socket.unlink(missing_ok=True)

    def signal(self, sent: signal.Signals) -> None:
        """Send it a signal, as SIGSTOP and SIGCONT."""
        assert self._process is not None
        self._process.send_signal(sent)

    def end(self) -> None:
        """Stop it for good, and remove its folder."""
        if self._watcher.stdin is not None:
            self._watcher.stdin.close()
        self._watcher.wait(30)
        if self._process is not None:
            self._process.wait(30)

    def url(self, database: str, *, user: str = USER) -> str:
        """The URL of a store, over the socket, where no password is asked for."""
        return f"mysql://{user}@localhost/{database}?unix_socket={self.socket}"

    def tcp_url(
        self, database: str, *, user: str = USER, word: str = PASSWORD, port: int | None = None
    ) -> str:
        """The URL of a store, over TCP, with a password; at a proxy's port if one is named."""
        place = f"127.0.0.1:{port or self.port}"
        return f"mariadb://{user}:{quote(word, safe='')}@{place}/{database}"

    def sql(self, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Run statements as the administrator; the rows of the last one."""
        with ThreadPoolExecutor(1) as elsewhere:  # a test may be in an event loop
            return elsewhere.submit(asyncio.run, self._run(statements, database)).result(120)

    async def _run(self, statements: tuple[str, ...], database: str | None) -> list[Any]:
        connection: Any = Connection(
            unix_socket=str(self.socket), user="root", database=database, autocommit=True
        )
        await connection.connect()
        rows: list[Any] = []
        try:
            async with connection.cursor() as cursor:
                for statement in statements:
                    await cursor.execute(statement)
                    rows = list(await cursor.fetchall())
        finally:
            await connection.ensure_closed()
        return rows

    def new_database(self) -> str:
        """The name of a new, empty database."""
        name = f"d{next(self._names)}"
        self.sql(f"CREATE DATABASE {name}")
        return name


def _unprivileged() -> str | None:
    """Whose the server is, where the tests run as root, as whom MariaDB does not run."""
    if os.name != "posix" or os.geteuid() != 0:
        return None
    import pwd  # noqa: PLC0415 - only on POSIX

    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in _UNPRIVILEGED if name in known)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _programs() -> tuple[str, str] | None:
    """MariaDB's server, and what makes a data folder for it."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))
    server, installer, its_help = (
        shutil.which(name, path=path)
        for name in ("mariadbd", "mariadb-install-db", "my_print_defaults")
    )
    return (server, installer) if server and installer and its_help else None


@cache
def _started(programs: tuple[str, str], **options: str) -> Server:
    server = Server(programs, None, **options)
    atexit.register(server.end)
    return server


def server(**options: str) -> Server:
    """The server of the process; a skip, or a failure, where there is no MariaDB.

    Args:
        options: settings of the server; for each set of them there is one.
    """
    return _started(_required(), **options)


def private(within: Path) -> Server:
    """A server of the caller's own, who ends it, with all its files in a folder."""
    return Server(_required(), within)


def _required() -> tuple[str, str]:
    programs = _programs()
    if programs is None:
        reason = "no MariaDB: mariadbd, mariadb-install-db or my_print_defaults is not on the PATH"
        if os.environ.get("TURNLOG_REQUIRE_SERVERS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return programs
