"""Certificates for the tests' servers, made by openssl; each authority signs one."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest


class Authority:
    """Signs one certificate, for one name, in a folder of its own."""

    def __init__(self, name: str) -> None:
        self.folder = Path(mkdtemp(prefix="turnlog-tls-"))
        atexit.register(shutil.rmtree, self.folder)
        self.folder.chmod(0o755)
        self._openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=tests",
            "-keyout", "ca.key", "-out", "ca.pem",
        )  # fmt: skip
        self._openssl(
            "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=server",
            "-keyout", "server.key", "-out", "server.csr",
        )  # fmt: skip
        (self.folder / "names").write_text(f"subjectAltName={name}\n")
        self._openssl(
            "x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2",
            "-CAcreateserial", "-extfile", "names", "-out", "server.pem",
        )  # fmt: skip
        (self.folder / "server.key").chmod(0o644)  # the server is another user's

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)  # noqa: S607 - whichever there is

    def __str__(self) -> str:
        return str(self.folder / "ca.pem")

    @property
    def certificate(self) -> Path:
        """The server's."""
        return self.folder / "server.pem"

    @property
    def key(self) -> Path:
        """That of the certificate, for everyone to read."""
        return self.folder / "server.key"


@cache
def authority(name: str) -> Authority:
    """The one for that name; a skip, or a failure, where there is no openssl."""
    if shutil.which("openssl") is None:
        if os.environ.get("TURNLOG_REQUIRE_SERVERS") == "1":
            pytest.fail("no openssl, to make certificates")
        pytest.skip("no openssl, to make certificates")
    return Authority(name)
