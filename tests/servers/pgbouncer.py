"""A PgBouncer of the tests' own, before their PostgreSQL server.

It ends with its `with`, or with the process, however that ends. With `TURNLOG_REQUIRE_SERVERS=1` a
machine without PgBouncer fails the tests, elsewhere it skips them.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.servers import postgres
from tests.servers.postgres import free_port, unprivileged

_STARTS_WITHIN = 20
# Standard input is read at the end of the tests' process, whatever its end is.
_RUNS_IT = '"$1" "$2/ini" >"$2/log" 2>&1 </dev/null & read _; kill $!; wait; rm -rf "$2"'
_CONFIGURATION = """
[databases]
* = host={server.folder} port={server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {folder}/users
pool_mode = {mode}
default_pool_size = 60
{more}
"""


class PgBouncer:
    """One that runs."""

    def __init__(self, server: postgres.Server, port: int) -> None:
        self._server = server
        self._port = port

    def url(self, schema: str) -> str:
        """The URL of a store in a schema, through the pooler, with a password."""
        return self._server.tcp_url(schema, port=self._port)


@contextmanager
def pgbouncer(server: postgres.Server, mode: str, more: str = "") -> Generator[PgBouncer]:
    """One that pools by session, transaction or statement; a skip, or a failure, without any.

    Args:
        server: whose connections it pools.
        mode: its `pool_mode`.
        more: lines of its configuration.
    """
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        reason = "no PgBouncer: pgbouncer is neither in /usr/sbin nor on the PATH"
        if os.environ.get("TURNLOG_REQUIRE_SERVERS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    folder, port, user = Path(mkdtemp(prefix="turnlog-pgb-")), free_port(), unprivileged()
    (folder / "users").write_text(f'"{postgres.USER}" "{postgres.PASSWORD}"\n')
    settings = _CONFIGURATION.format(server=server, port=port, folder=folder, mode=mode, more=more)
    (folder / "ini").write_text(settings)
    if user is not None:
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, user)
    process = subprocess.Popen(
        ["/bin/sh", "-c", _RUNS_IT, "sh", program, str(folder)],
        stdin=subprocess.PIPE,
        user=user,
        start_new_session=True,
    )
    try:
        late = time.monotonic() + _STARTS_WITHIN
        while not _answers(port):
            assert time.monotonic() < late, (folder / "log").read_text()
            time.sleep(0.02)
        yield PgBouncer(server, port)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
