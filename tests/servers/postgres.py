"""A PostgreSQL server of the tests' own: private, unprivileged, in a temporary folder.

Each process of the tests starts one, at its first use; it ends with the process, however that ends.
Every test gets a schema of its own in it. With `TURNLOG_REQUIRE_SERVERS=1` a machine without
PostgreSQL fails the tests, elsewhere it skips them.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import quote

import pytest

USER = "turnlog"
PASSWORD = "a secret"  # noqa: S105 - of a server that only this test reaches
_UNPRIVILEGED = ("postgres", "nobody")
_OPTIONS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "listen_addresses": "127.0.0.1",
    "autovacuum": "off",
}
_HBA = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
_ENDS_IT = 'read _; "$1" stop -D "$2/data" -m immediate >/dev/null 2>&1; rm -rf "$2"'


class Server:
    """One server; its only superuser is `USER`, with `PASSWORD` where it asks for one."""

    def __init__(self, programs: Path, within: Path | None = None, **options: str) -> None:
        self._programs = programs
        self._options = {**_OPTIONS, **options}
        self.folder = Path(mkdtemp(prefix="turnlog-pg-", dir=within))
        self._as_user = unprivileged()
        if self._as_user is not None:
            shutil.chown(self.folder, self._as_user)
        self.port = free_port()
        self._names = count(1)
        word = self.folder / "word"
        word.write_text(PASSWORD)
        word.chmod(0o644)
        self._run(
            "initdb", "--no-sync", "--encoding=UTF8", "--locale=C", f"--username={USER}",
            "--auth=trust", f"--pwfile={word}", f"--pgdata={self.folder}/data",
        )  # fmt: skip
        (self.folder / "data" / "pg_hba.conf").write_text(_HBA)
        # It is read at the end of this process, whatever its end is.
        self._watcher = subprocess.Popen(
            ["/bin/sh", "-c", _ENDS_IT, "sh", str(programs / "pg_ctl"), str(self.folder)],
            stdin=subprocess.PIPE,
            user=self._as_user,
            start_new_session=True,
        )
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._programs / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            user=self._as_user,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout.decode()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = " ".join(f"-c {name}={value}" for name, value in self._options.items())
        options += f" -c port={self.port} -c unix_socket_directories={self.folder}"
        self._run(
            "pg_ctl", "start", "-w", "-s", "-D", f"{self.folder}/data",
            "-l", f"{self.folder}/log", "-o", options,
        )  # fmt: skip

    def stop(self, mode: str = "immediate") -> None:
        """Stop it, unless it stopped itself: "immediate" is as a crash."""
        if not (self.folder / "data" / "postmaster.pid").exists():
            return
        self._run("pg_ctl", "stop", "-w", "-s", "-D", f"{self.folder}/data", "-m", mode)

    def end(self) -> None:
        """Stop it for good, and remove its folder."""
        if self._watcher.stdin is not None:
            self._watcher.stdin.close()
        self._watcher.wait(30)

    def url(self, schema: str = "public", *, user: str = USER, database: str = "postgres") -> str:
        """The URL of a store in a schema, over the socket, where no password is asked for."""
        where = f"host={self.folder}&port={self.port}&search_path={schema}"
        return f"postgresql://{user}@/{database}?{where}"

    def tcp_url(
        self,
        schema: str = "public",
        *,
        user: str = USER,
        word: str = PASSWORD,
        port: int | None = None,
    ) -> str:
        """The URL of a store in a schema, over TCP, with a password."""
        where = f"127.0.0.1:{self.port if port is None else port}"
        return f"postgresql://{user}:{quote(word)}@{where}/postgres?search_path={schema}"

    def sql(self, *statements: str) -> list[str]:
        """Run statements as the superuser; what psql prints of them, line by line."""
        done = subprocess.run(
            [
                str(self._programs / "psql"), "-h", str(self.folder), "-p", str(self.port),
                "-U", USER, "-d", "postgres", "-v", "ON_ERROR_STOP=1", "-qAtX",
                *(part for statement in statements for part in ("-c", statement)),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def new_schema(self) -> str:
        """The name of a new, empty schema."""
        name = f"s{next(self._names)}"
        self.sql(f"CREATE SCHEMA {name}")
        return name


def unprivileged() -> str | None:
    """Whose a server is, where the tests run as root, as whom PostgreSQL does not run."""
    if os.name != "posix" or os.geteuid() != 0:
        return None
    import pwd  # noqa: PLC0415 - only on POSIX

    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in _UNPRIVILEGED if name in known)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _programs() -> Path | None:
    """The folder of PostgreSQL's programs, of the newest version there is."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if found:
        return max(found, key=lambda path: int(path.parent.name))
    on_path = shutil.which("initdb")
    return None if on_path is None else Path(on_path).resolve().parent


@cache
def _started(programs: Path, **options: str) -> Server:
    server = Server(programs, None, **options)
    atexit.register(server.end)
    return server


def server(**options: str) -> Server:
    """The server of this process; a skip, or a failure, where there is no PostgreSQL.

    Args:
        options: settings of the server; for each set of them there is one.
    """
    return _started(_required(), **options)


def private(within: Path) -> Server:
    """A server of the caller's own, who ends it, with all its files in a folder."""
    return Server(_required(), within)


def _required() -> Path:
    programs = _programs()
    if programs is None:
        reason = "no PostgreSQL: initdb is neither in /usr/lib/postgresql nor on the PATH"
        if os.environ.get("TURNLOG_REQUIRE_SERVERS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return programs
